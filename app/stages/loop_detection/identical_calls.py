"""The same calls again, one after the other or with others in between.

Calls are the same when equal (``key: exact``, noise left out where the results are equal, too) or
when they act on the same thing (``key: salient``). Counted are those since the last that brought a
result not seen for that call: an answer that moves is a poll, not a loop. What is done in between
may be a reason to make the call again (:class:`Between`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from ...core.call_keys import Call, digest
from ...core.history import History
from ...core.progress import News, Progress, changes_things
from ...core.turn import Result, Turn
from ...core.turns import MAX_TURNS
from ...settings import LoopDetectionSettings
from . import overrides
from .finding import Finding, State, times

_Results = tuple[int, ...] | None  # of a turn's calls, in no order; None where one is missing
_UNKNOWN: Final = None


class Between(IntEnum):
    """What a turn between two of the same calls says about them."""

    NOTHING = 0
    LEARNT = 1  # something was found out: the agent gets on, so the calls are told but not broken
    REASON = 2  # a wait, work that was done, another answer to an old question: counted anew


class IdenticalCalls:
    name = "identical_calls"

    def find(self, history: History, rules: LoopDetectionSettings) -> Finding | None:
        last = len(history.turns) - 1
        if last < 0 or not (calls := _counted(history.turns[last], rules)):
            return None
        warn, hard = overrides.identical_calls([call.name for call in calls], rules)
        fewest = min(warn, hard)
        if _most(history, rules) < fewest:
            return None  # as mostly
        if _keys(history, rules).count(_key(calls, rules)) < fewest:
            return None
        counted = count(history, rules)
        if counted.vain >= hard:
            level, repeats = State.CIRCUIT_BREAK, counted.vain
        elif counted.since_user >= fewest and not history.pending.interjected:
            level, repeats = State.WARNING, counted.total
        else:
            return None
        turn = history.turns[last]
        return Finding(
            self.name,
            level,
            repeats,
            calls[0].name,
            f"{digest(*(str(key) for key in _key(calls, rules))):016x}",
            _hint([call.name for call in calls], repeats),
            history.turns[counted.first].place,
            frozenset({turn.action}),
        )

    def could_break(self, history: History, rules: LoopDetectionSettings) -> bool:
        before = overrides.fewest_identical(rules) - 1  # so often they were made already
        if _most(history, rules) < before:
            return False  # as mostly
        keys = _keys(history, rules)
        often = Counter(keys)
        for turn, key in zip(history.turns[-len(keys) :], keys, strict=True):
            made = often[key]
            if not key or made < before:
                continue
            calls = _counted(turn, rules)
            _, hard = overrides.identical_calls([call.name for call in calls], rules)
            reply = Turn(history.pending, 0, "", 0, turn.calls)
            again = History((*history.turns, reply))
            if made >= hard - 1 and count(again, rules).vain >= hard:
                return True
        return False


def _most(history: History, rules: LoopDetectionSettings) -> int:
    """In so many of the task's turns the same calls were made, or in fewer."""
    return MAX_TURNS if rules.tool_calls.key == "salient" else history.counted.most


def _keys(history: History, rules: LoopDetectionSettings) -> list[tuple[int, ...]]:
    """What was called in each turn of the window, in whatever task; empty where nothing counts."""
    turns = history.turns[-overrides.widest_window(rules) :]
    if rules.tool_calls.key == "salient":
        return [_key(_counted(turn, rules), rules) for turn in turns]
    exempt = rules.exempt_tools
    return [
        (turn.calls[0].loose,)  # one call, as nearly always
        if len(turn.calls) == 1 and turn.calls[0].name not in exempt
        else _key(_counted(turn, rules), rules)
        for turn in turns
    ]


def is_exhausted(history: History, rules: LoopDetectionSettings) -> bool:
    """Whether the newest turn's calls were made so often that nobody is to be believed."""
    _, hard = overrides.identical_calls([c.name for c in history.turns[-1].calls], rules)
    return count(history, rules).vain >= hard


@dataclass(slots=True)
class Count:
    """How often the newest turn's calls were made, itself included, since there was a reason to.

    ``since_user``: those since the user last put in a word; ``vain``: since anything was learnt.
    ``first``: the turn that was the first.
    """

    first: int
    total: int = 0
    since_user: int = 0
    vain: int = 0
    _known: set[_Results] = field(default_factory=set)

    def restart(self, position: int) -> None:
        self.total = self.since_user = self.vain = 0
        self.first = position

    def add(self, position: int, results: _Results, rules: LoopDetectionSettings) -> None:
        news = results is not _UNKNOWN and results not in self._known
        if rules.tool_calls.require_no_progress and news and self._known:
            self.restart(position)
        if results is not _UNKNOWN:
            self._known.add(results)
        if not self.total:
            self.first = position
        self.total += 1
        self.since_user += 1
        self.vain += 1


def count(history: History, rules: LoopDetectionSettings) -> Count:
    """Count the newest turn's calls over the window, within the user's last task."""
    turns = history.turns
    last = len(turns) - 1
    newest = _counted(turns[last], rules)
    key = _key(newest, rules)
    exact = tuple(call.exact for call in newest)
    start = max(history.task_start, len(turns) - overrides.window(newest, rules), 0)
    others = _Others(rules)
    found = Count(first=last)
    for position in range(start, len(turns)):
        turn = turns[position]
        calls = _counted(turn, rules)
        if turn.inputs.interjected:
            found.since_user = 0
        between = others.take(turn, history.results(position))
        if calls and _key(calls, rules) == key and _is_same(history, position, calls, exact, rules):
            found.add(position, _results(history, position, rules), rules)
        elif found.total and between is Between.REASON:
            found.restart(position + 1)
        elif between is Between.LEARNT:
            found.vain = 0
    return found


class _Others:
    """Judges what is done between the same calls. It has to be shown all turns, oldest first."""

    def __init__(self, rules: LoopDetectionSettings) -> None:
        self._rules = rules
        self._news = News()
        self._brought: dict[int, set[int]] = {}  # what each call has brought, by its exact digest

    def take(self, turn: Turn, results: Sequence[Result | None]) -> Between:
        if not self._rules.tool_calls.require_no_progress:
            return Between.NOTHING
        return max(
            (
                self._judge(call, results[at] if at < len(results) else None)
                for at, call in enumerate(turn.calls)
            ),
            default=Between.NOTHING,
        )

    def _judge(self, call: Call, result: Result | None) -> Between:
        if call.name in self._rules.exempt_tools:
            return Between.REASON
        before = self._brought.setdefault(call.exact, set())
        is_first = not before
        if result is None:
            before.add(0)
            return Between.REASON if is_first else Between.NOTHING
        progress = self._news.of_call(call, result)
        moved = result.digest not in before
        before.add(result.digest)
        worked = progress is Progress.WORK and (
            # A shell's answer may be all that it was called for.
            call.writes or result.empty or changes_things(call.name) is True
        )
        if worked or (moved and not is_first):
            return Between.REASON
        return Between.LEARNT if progress in (Progress.NEWS, Progress.WORK) else Between.NOTHING


def _is_same(
    history: History,
    position: int,
    calls: tuple[Call, ...],
    exact: tuple[int, ...],
    rules: LoopDetectionSettings,
) -> bool:
    """Calls that only differ in noise count where it is known what they brought."""
    if rules.tool_calls.key == "salient" or tuple(call.exact for call in calls) == exact:
        return True
    return position == len(history.turns) - 1 or _results(history, position, rules) is not None


def _counted(turn: Turn, rules: LoopDetectionSettings) -> tuple[Call, ...]:
    calls = turn.calls
    exempt = rules.exempt_tools
    if len(calls) == 1:  # as nearly always
        return calls if calls[0].name not in exempt else ()
    return tuple([call for call in calls if call.name not in exempt])


def _key(calls: tuple[Call, ...], rules: LoopDetectionSettings) -> tuple[int, ...]:
    if len(calls) == 1:
        return (calls[0].salient if rules.tool_calls.key == "salient" else calls[0].loose,)
    if rules.tool_calls.key == "salient":
        return tuple(sorted(call.salient for call in calls))
    return tuple(sorted(call.loose for call in calls))


def _results(history: History, position: int, rules: LoopDetectionSettings) -> _Results:
    calls = history.turns[position].calls
    results = history.results(position)
    found = []
    for at, call in enumerate(calls):
        if call.name in rules.exempt_tools:
            continue
        result = results[at] if at < len(results) else None
        if result is None:
            return None
        found.append(result.digest)
    return tuple(sorted(found))


def _hint(tools: list[str], repeats: int) -> str:
    shown = ", ".join(dict.fromkeys(tool[:64] for tool in tools[:4]))
    return (
        f"You have called {shown} with the same arguments {times(repeats)} and got nothing new. Do "
        "not call it again: use the result you have, call something else, or answer with what you "
        "know."
    )
