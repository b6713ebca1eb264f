"""The suffix of the history repeats: the same turns, with a period of 1 to ``max_period``.

With ``compare: turn`` a turn is what came in and what was done about it, so a result that changed
breaks the run. With ``compare: output`` only what was done counts, over the last ``window_size``
turns: the plainer rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...core.call_keys import digest
from ...core.history import History
from ...core.turn import Turn
from ...settings import LoopDetectionSettings
from . import overrides
from .finding import Finding, State, times
from .similarity import same_text


class Repetition:
    name = "repetition"

    def find(self, history: History, rules: LoopDetectionSettings) -> Finding | None:
        turns = _looked_at(history, rules)
        best: Finding | None = None
        for period, length in _runs(turns, rules):
            lap, laps = turns[-period:], length // period
            begins = turns[-length].place
            made = _made(history, period, length, rules)
            names = [call.name for turn in lap for call in turn.calls]
            warn, hard = overrides.repetition(names, rules)
            if laps >= hard:
                return _finding(State.CIRCUIT_BREAK, lap, laps, begins, made)
            if best is None and laps >= warn and _shows_no_progress(history, period, laps, rules):
                best = _finding(State.WARNING, lap, laps, begins, made)
        return best

    def could_break(self, history: History, rules: LoopDetectionSettings) -> bool:
        turns = _looked_at(history, rules)
        by_turn = rules.compare == "turn"
        if by_turn and history.pending.digest not in _asked(turns[-rules.max_period :]):
            return False  # as nearly always
        for period in range(1, min(rules.max_period, len(turns)) + 1):
            if by_turn and turns[-period].inputs.digest != history.pending.digest:
                continue
            # The reply would be the last turn of its lap; the laps before it have to be there.
            lap = turns[-period:]
            if by_turn and _is_asked_for(lap, turns):
                continue
            names = [call.name for turn in lap for call in turn.calls]
            _, hard = overrides.repetition(names, rules)
            needed = hard * period - 1
            if needed <= len(turns) and _matching(turns, period, rules, needed) >= needed - period:
                return True
        return False


def _looked_at(history: History, rules: LoopDetectionSettings) -> Sequence[Turn]:
    return history.turns[-rules.window_size :] if rules.compare == "output" else history.turns


def _runs(turns: Sequence[Turn], rules: LoopDetectionSettings) -> Iterator[tuple[int, int]]:
    """(period, length) of each suffix of two laps or more, but for the first's first turn."""
    by_turn = rules.compare == "turn"
    if (
        by_turn
        and turns
        and turns[-1].inputs.digest not in _asked(turns[-1 - rules.max_period : -1])
    ):
        return  # as nearly always
    for period in range(1, min(rules.max_period, len(turns) // 2) + 1):
        if by_turn and turns[-1].inputs.digest != turns[-1 - period].inputs.digest:
            continue
        matching = _matching(turns, period, rules, len(turns))
        if matching >= period and not (by_turn and _is_asked_for(turns[-period:], turns)):
            length = matching + period
            yield period, length - (by_turn and _answers_another(turns, period, length))


def _answers_another(turns: Sequence[Turn], period: int, length: int) -> bool:
    """Whether a run's first turn answers to a call that isn't the lap's: then it is none of it.

    Where all that tools say is "ok", it would seem to answer to the same.
    """
    before = len(turns) - length - 1
    if before < 0 or not turns[before].calls:
        return False
    return turns[before].action != turns[before + period].action


def _is_asked_for(lap: Sequence[Turn], turns: Sequence[Turn]) -> bool:
    """Whether the user asks for nothing but this lap, and the agent does something about it.

    Then it is the user who goes round. Where all that the user gets are the same words, the agent
    does nothing; and where something else was asked for before, the same words again and again
    are those with which a framework prods an agent that is stuck.
    """
    asked = {turn.inputs.digest for turn in lap if turn.inputs.starts_task}
    if not asked or not any(turn.calls for turn in lap):
        return False
    return all(turn.inputs.digest in asked for turn in turns if turn.inputs.starts_task)


def _asked(turns: Sequence[Turn]) -> list[int]:
    return [turn.inputs.digest for turn in turns]


def _matching(turns: Sequence[Turn], period: int, rules: LoopDetectionSettings, most: int) -> int:
    """How many of the newest turns are the same as the one a period before; at most ``most``."""
    count = 0
    for position in range(len(turns) - 1, period - 1, -1):
        if count >= most or not _same(turns[position], turns[position - period], rules):
            break
        count += 1
    return count


def _same(one: Turn, other: Turn, rules: LoopDetectionSettings) -> bool:
    if rules.compare == "turn" and one.inputs.digest != other.inputs.digest:
        return False
    return _same_calls(one, other, rules) and same_text(one, other, rules.similarity_threshold)


def _same_calls(one: Turn, other: Turn, rules: LoopDetectionSettings) -> bool:
    if len(one.calls) != len(other.calls):
        return False
    for mine, its in zip(one.calls, other.calls, strict=True):
        if mine.exact != its.exact or mine.name in rules.exempt_tools:
            return False
    return True


def _shows_no_progress(
    history: History, period: int, laps: int, rules: LoopDetectionSettings
) -> bool:
    """Whether a warning is due: nothing has come since that would break the run.

    Calls whose results nobody sent might have made progress; only a break's laps speak against
    them.
    """
    turns = history.turns
    pending = history.pending
    if rules.compare == "output":
        return True
    if pending.known and pending.digest != turns[-period].inputs.digest:
        return False
    for position in range(len(turns) - period * laps, len(turns)):
        if position == len(turns) - 1 and not pending.known:
            continue
        if turns[position].calls and None in (history.results(position) or (None,)):
            return False
    return True


def _made(history: History, period: int, length: int, rules: LoopDetectionSettings) -> int:
    """How many laps an agent has seen itself make.

    Of a run of single turns the first answered to something else, so it is no part of the laps, but
    its calls were the same and brought the same results. It makes up for a reply that is judged:
    the last of the laps, and not made yet.
    """
    turns, before = history.turns, len(history.turns) - length - 1
    if period > 1 or before < 0 or not history.pending.known:
        return length // period
    return length // period + _same_calls(turns[before], turns[-1], rules)


def _finding(level: State, lap: Sequence[Turn], laps: int, begins: int, made: int) -> Finding:
    tools = list(dict.fromkeys(call.name for turn in lap for call in turn.calls))
    return Finding(
        "repetition",
        level,
        laps,
        tools[0] if tools else "",
        _pattern(lap),
        _hint(tools, len(lap), made),
        begins,
        frozenset(turn.action for turn in lap),
    )


def _pattern(lap: Sequence[Turn]) -> str:
    """The same wherever in the lap the suffix ends."""
    keys = [turn.action for turn in lap]
    first = min(keys[i:] + keys[:i] for i in range(len(keys)))
    return f"{digest(*map(str, first)):016x}"


def _hint(tools: Sequence[str], period: int, laps: int) -> str:
    if not tools:
        return (
            f"You have given the same answer {times(laps)}. Do not repeat it: say something new, "
            "do the next step, or finish."
        )
    if period == 1:
        return (
            f"You have called {_listed(tools)} with the same arguments {times(laps)} and got the "
            "same result. Do not call it again: use the result you have, call something else, or "
            "answer with what you know."
        )
    return (
        f"Your last {period * laps} steps are the same {period} steps {times(laps)} over "
        f"({_listed(tools)}), with the same results. Do not go round again: use the results you "
        "have, take another approach, or answer with what you know."
    )


def _listed(tools: Sequence[str]) -> str:
    shown = ", ".join(tool[:64] for tool in tools[:4])
    return f"{shown}, …" if len(tools) > 4 else shown
