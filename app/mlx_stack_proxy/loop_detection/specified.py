"""The detectors of the original documents, exactly as these have them, whatever results hold.

Each is off until the settings have its section. A history whose newest turn is a reply that is
being judged is held against the limit for a break, any other against the limit for a hint. The
``may_…`` functions say whether the next reply, with one call at most, may reach the former.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

from .. import likeness
from ..engine.exchange import Exchange
from ..likeness import Digest, alike
from ..settings import LoopDetectionSettings, ToolFrequencySettings
from ..wire.reply import ChoiceReply
from .call_keys import digest
from .finding import Finding, is_exempt, listed, tools_of
from .history import History
from .turn import Turn

# A shorter reply is a label, or `HEARTBEAT_OK`, which is rightly the same each time.
_LEAST_CHARS: Final = 64
_LAST_REPLIES: Final = 5  # whether the next reply is like one of so many is foreseen
_CallSet = tuple[tuple[str, int], ...]


def _limit(history: History, warn: int, hard: int) -> int:
    return warn if history.pending.known else hard


def _pattern(what: object) -> str:
    return f"{digest(str(what)):016x}"


# The same set of calls


def identical_calls(history: History, rules: LoopDetectionSettings) -> Finding | None:
    section, newest = rules.identical_calls, next(_sets(history, rules), None)
    if section is None or newest is None or newest[0] is not history.turns[-1]:
        return None
    window = islice(_sets(history, rules), section.window)
    same = [turn for turn, calls in window if calls == newest[1]][::-1]
    if len(same) < _limit(history, section.warn, section.hard):
        return None
    tools = list(dict.fromkeys(name for name, _ in newest[1]))
    return Finding(
        "identical_calls",
        len(same),
        tools[0],
        _pattern(newest[1]),
        f"The same call of {listed(tools)} came up {len(same)} times. Use the result it had, take "
        "a different step, or finish.",
        _places(history, same),
    )


def may_be_identical(history: History, rules: LoopDetectionSettings) -> bool:
    if (section := rules.identical_calls) is None:
        return False
    window = islice(_sets(history, rules), section.window - 1)
    return max(Counter(calls for _, calls in window).values(), default=0) >= section.hard - 1


def _sets(history: History, rules: LoopDetectionSettings) -> Iterator[tuple[Turn, _CallSet]]:
    """Yield the task's turns with calls, each with what is compared of these, the newest first."""
    salient = rules.identical_calls is not None and rules.identical_calls.key == "salient"
    for turn in reversed(history.task):
        keys = [
            (call.name, call.salient or call.key if salient else call.key)
            for call in turn.calls
            if call.name not in rules.exempt_tools
        ]
        if keys:
            yield turn, tuple(sorted(keys))


def _places(history: History, turns: list[Turn]) -> tuple[int, ...]:
    """Return the places of the turns, without that of a reply that is being judged."""
    places = [turn.place for turn in turns]
    return tuple(places if history.pending.known else places[:-1])


# Tools' names in a cycle


def name_cycle(
    history: History, rules: LoopDetectionSettings, *, foreseen: bool = False
) -> Finding | None:
    """``foreseen``: whether the next reply, if it goes on with the cycle, closes its last lap."""
    if (section := rules.name_cycle) is None or not history.task:
        return None
    limit = section.hard if foreseen else _limit(history, section.warn, section.hard)
    calls = list(islice(_calls(history, rules), section.max_length * limit))
    names = [name for name, _ in calls]
    if not foreseen and (not calls or calls[0][1] is not history.turns[-1]):
        return None
    for period in range(section.min_length, section.max_length + 1):
        cycle, count = names[:period], period
        while count < len(names) and names[count] == names[count - period]:
            count += 1
        if len(set(cycle)) > 1 and count + foreseen >= period * limit:
            turns = list(dict.fromkeys([turn for _, turn in reversed(calls[:count])]))
            return Finding(
                "name_cycle",
                (count + foreseen) // period,
                cycle[-1],
                _pattern(sorted(cycle)),
                f"The last {count} tool calls repeat one cycle: {listed(cycle[::-1], ' → ')}. Use "
                "what they brought, take a different step, or finish.",
                _places(history, turns),
            )
    return None


def may_close_cycle(history: History, rules: LoopDetectionSettings) -> bool:
    return name_cycle(history, rules, foreseen=True) is not None


def _calls(history: History, rules: LoopDetectionSettings) -> Iterator[tuple[str, Turn]]:
    """Yield the name and the turn of each call of the task, the newest first."""
    for turn in reversed(history.task):
        for call in reversed(turn.calls):
            if call.name not in rules.exempt_tools:
                yield call.name, turn


# One tool very often


def tool_frequency(history: History, rules: LoopDetectionSettings) -> Finding | None:
    if (section := rules.tool_frequency) is None or not (task := history.task):
        return None
    counts = Counter(name for name, _ in _calls(history, rules))
    for tool in tools_of(task[-1:]):
        if counts[tool] >= _limit(history, *_of_tool(section, tool)):
            return Finding(
                "tool_frequency",
                counts[tool],
                tool,
                _pattern(tool),
                f"{listed([tool])} was called {counts[tool]} times in this task. Go on with what "
                "its results say, take a different step, or finish.",
                (hash((task[0].place, tool)),),
            )
    return None


def may_be_too_frequent(history: History, rules: LoopDetectionSettings) -> bool:
    if (section := rules.tool_frequency) is None:
        return False
    counts = Counter(name for name, _ in _calls(history, rules))
    return any(count >= _of_tool(section, tool)[1] - 1 for tool, count in counts.items())


def _of_tool(section: ToolFrequencySettings, tool: str) -> tuple[int, int]:
    """Return how many calls of a tool bring a hint, and how many break."""
    own = section.overrides.get(tool)
    warn, hard = (own.warn, own.hard) if own is not None else (None, None)
    return section.warn if warn is None else warn, section.hard if hard is None else hard


# Text replies that are nearly the same; the store keeps their digests


def replies_before(
    exchange: Exchange, history: History, rules: LoopDetectionSettings
) -> tuple[Digest, ...]:
    """Return the last text replies; none if the settings don't compare them.

    Of a session without a name only those that the transcript has: the same script may run again,
    or twice at a time.
    """
    if rules.similar_replies is None or exchange.began is None:
        return ()
    replies: list[Digest] = []
    with contextlib.suppress(ValueError):  # another version's
        replies = [likeness.loaded(reply) for reply in exchange.began.replies]
    if exchange.session.derived:
        sent = Counter(turn.action for turn in history.turns if not turn.calls)
        sent &= Counter(reply.text for reply in replies)
        by_text = {reply.text: reply for reply in replies}
        replies = [by_text[text] for text in sent.elements()]
    return tuple(replies)


def reply_digest(
    choice: ChoiceReply, exchange: Exchange, rules: LoopDetectionSettings
) -> Digest | None:
    """Return the digest of a text reply that counts; None of any other."""
    section, body = rules.similar_replies, exchange.request.body
    if section is None or choice.tool_calls or body.get("response_format"):
        return None
    is_short = len(choice.text.strip()) < _LEAST_CHARS
    return None if is_short else likeness.digest(choice.text)


def similar_replies(history: History, rules: LoopDetectionSettings) -> Finding | None:
    section, replies = rules.similar_replies, history.replies
    if section is None or not replies:
        return None
    window = replies[-section.window :]
    least = section.similarity
    same = [one for one in window if alike(one, window[-1], least) >= least]
    if len(same) < _limit(history, max(2, section.threshold - 1), section.threshold):
        return None
    return Finding(
        "similar_replies",
        len(same),
        "",
        _pattern(same[0].text),
        f"The last {len(same)} answers were nearly the same. Say something new, take the next "
        "step, or finish.",
        tuple([one.text for one in same]),
    )


def may_be_similar(history: History, rules: LoopDetectionSettings) -> bool:
    """Whether one of the last replies has so many like it that one more breaks."""
    if (section := rules.similar_replies) is None:
        return False
    window, least = history.replies[-section.window :], section.similarity
    counts = [
        sum([alike(one, other, least) >= least for other in window])
        for one in window[-_LAST_REPLIES:]
    ]
    return max(counts, default=0) >= section.threshold - 1


# Calls that bring nothing new


def no_progress(history: History, rules: LoopDetectionSettings) -> Finding | None:
    """Return the run of calls without progress that ends the history, if it is too long.

    A result is progress if the same tool hasn't brought it before in this task; the call's own
    arguments are taken out of it before. A reply without a call breaks nothing.
    """
    run = list(without_news(history, rules))
    judging = not history.pending.known
    calls = (run[-1][1] if run else 0) + judging
    limit = _limit(history, rules.no_progress.warn, rules.no_progress.hard)
    if calls < limit or not run or (judging and not history.turns[-1].acts):
        return None
    newest, first = run[0][0], history.task[0].place
    return Finding(
        "no_progress",
        calls,
        newest.calls[0].name if newest.calls else "",
        _pattern(first),
        f"The last {calls} tool calls brought nothing new. If the task needs more of them, go on; "
        "if not, take a different approach, or say what is missing.",
        (first,),
    )


def may_make_no_progress(history: History, rules: LoopDetectionSettings) -> bool:
    calls = [calls for _, calls in without_news(history, rules)]
    return bool(calls) and calls[-1] >= rules.no_progress.hard - 1


def without_news(history: History, rules: LoopDetectionSettings) -> Iterator[tuple[Turn, int]]:
    """Yield the turns whose calls brought nothing new, and the calls so far, the newest first."""
    turns, calls = history.turns, 0
    inputs = [history.pending] if history.pending.known else []
    for position in range(len(turns) - 1, history.task_start - 1, -1):
        turn = turns[position]
        if inputs:
            if inputs[0].interjected or is_exempt(turn, rules):
                return
            if inputs[0].old:
                calls += inputs[0].old
                yield turn, calls
            if inputs[0].fresh:
                return
        inputs = [turn.inputs]
