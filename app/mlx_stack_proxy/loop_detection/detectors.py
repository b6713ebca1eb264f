"""The detectors: each is a row of ``DETECTORS`` and examines the newest turns of a history.

Those of the original documents follow these exactly, whatever the results are; each is off until
the settings have its section.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from .. import likeness
from ..engine.exchange import Exchange
from ..likeness import Digest, alike
from ..settings import LoopDetectionSettings, ToolFrequencySettings
from ..wire.reply import ChoiceReply
from . import repetition
from .call_keys import digest
from .finding import DetectorView, Finding, listed, tools_of
from .history import History
from .turns import Turn

# A shorter reply is a label, or `HEARTBEAT_OK`, which is legitimately the same each time.
_MIN_CHARS: Final = 64
_LAST_REPLIES: Final = 5  # replies by which it is foreseen whether the next one is similar


def _pattern(what: object) -> str:
    return f"{digest(str(what)):016x}"


# The same set of calls


def identical_calls(view: DetectorView) -> Finding | None:
    if (section := view.rules.identical_calls) is None:
        return None
    window = list(islice(_sets(view), section.window - view.foreseen))
    if not window or (not view.foreseen and window[0][0] is not view.history.turns[-1]):
        return None
    counts = Counter([calls for _, calls in window])
    calls = max(counts, key=counts.__getitem__) if view.foreseen else window[0][1]
    if counts[calls] + view.foreseen < view.limit(section.warn, section.hard):
        return None
    tools = list(dict.fromkeys([name for name, _ in calls]))
    return Finding(
        "identical_calls",
        counts[calls],
        tools[0],
        _pattern(calls),
        f"The same call of {listed(tools)} came up {counts[calls]} times. Use the result it had, "
        "take a different step, or finish.",
        view.places([turn for turn, made in reversed(window) if made == calls]),
    )


def _sets(view: DetectorView) -> Iterator[tuple[Turn, tuple[tuple[str, int], ...]]]:
    """Yield the task's turns with calls, each with the part that is compared, the newest first."""
    section, exempt = view.rules.identical_calls, view.rules.exempt_tools
    salient = section is not None and section.key == "salient"
    for turn in reversed(view.history.task):
        calls = [call for call in turn.calls if call.name not in exempt]
        keys = [(call.name, (salient and call.salient) or call.key) for call in calls]
        if keys:
            yield turn, tuple(sorted(keys))


# Tools' names in a cycle


def name_cycle(view: DetectorView) -> Finding | None:
    if (section := view.rules.name_cycle) is None or not view.history.task:
        return None
    limit = view.limit(section.warn, section.hard)
    calls = list(islice(_calls(view), section.max_length * limit))
    names = [name for name, _ in calls]
    if not view.foreseen and (not calls or calls[0][1] is not view.history.turns[-1]):
        return None
    for period in range(section.min_length, section.max_length + 1):
        cycle, count = names[:period], period
        while count < len(names) and names[count] == names[count - period]:
            count += 1
        if len(set(cycle)) > 1 and count + view.foreseen >= period * limit:
            return Finding(
                "name_cycle",
                count // period,
                cycle[-1],
                _pattern(sorted(cycle)),
                f"The last {count} tool calls repeat one cycle: {listed(cycle[::-1], ' → ')}. Use "
                "what they brought, take a different step, or finish.",
                view.places(dict.fromkeys([turn for _, turn in reversed(calls[:count])])),
            )
    return None


def _calls(view: DetectorView) -> Iterator[tuple[str, Turn]]:
    """Yield the name and the turn of each call of the task, the newest first."""
    for turn in reversed(view.history.task):
        for call in reversed(turn.calls):
            if call.name not in view.rules.exempt_tools:
                yield call.name, turn


# One tool very often


def tool_frequency(view: DetectorView) -> Finding | None:
    section, task = view.rules.tool_frequency, view.history.task
    if section is None or not task:
        return None
    counts = Counter([name for name, _ in _calls(view)])
    for tool in counts if view.foreseen else tools_of(task[-1:]):
        if counts[tool] + view.foreseen >= view.limit(*_tool_limits(section, tool)):
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


def _tool_limits(section: ToolFrequencySettings, tool: str) -> tuple[int, int]:
    """Return how many calls of a tool give a hint, and how many break."""
    own = section.overrides.get(tool)
    warn, hard = (own.warn, own.hard) if own is not None else (None, None)
    return section.warn if warn is None else warn, section.hard if hard is None else hard


# Text replies that are nearly the same; the store keeps their digests


def replies_before(
    exchange: Exchange, turns: Sequence[Turn], rules: LoopDetectionSettings
) -> tuple[Digest, ...]:
    """Return the last text replies; none if the settings don't compare them.

    Of an unnamed session, only those in the transcript: the same script may run again, or twice at
    a time.
    """
    if rules.similar_replies is None or exchange.session_start is None:
        return ()
    replies: list[Digest] = []
    with contextlib.suppress(ValueError):  # written by another version
        replies = [likeness.loaded(reply) for reply in exchange.session_start.replies]
    if exchange.request.session.derived:
        sent = Counter([turn.action for turn in turns if not turn.calls])
        sent &= Counter([reply.text for reply in replies])
        by_text = {reply.text: reply for reply in replies}
        replies = [by_text[text] for text in sent.elements()]
    return tuple(replies)


def reply_digest(
    choice: ChoiceReply, exchange: Exchange, rules: LoopDetectionSettings
) -> Digest | None:
    """Return the digest of a text reply that counts; None for any other."""
    if rules.similar_replies is None or choice.tool_calls:
        return None
    is_short = len(choice.text.strip()) < _MIN_CHARS
    in_format = exchange.request.body.get("response_format")
    return None if is_short or in_format else likeness.digest(choice.text)


def similar_replies(view: DetectorView) -> Finding | None:
    if (section := view.rules.similar_replies) is None:
        return None
    window, least = view.history.replies[-section.window :], section.similarity
    for newest in window[-_LAST_REPLIES if view.foreseen else -1 :]:
        same = [one for one in window if alike(one, newest, least) >= least]
        warn, hard = max(2, section.threshold - 1), section.threshold
        if len(same) + view.foreseen >= view.limit(warn, hard):
            return Finding(
                "similar_replies",
                len(same),
                "",
                _pattern(same[0].text),
                f"The last {len(same)} answers were nearly the same. Say something new, take the "
                "next step, or finish.",
                tuple([one.text for one in same]),
            )
    return None


# Calls that bring nothing new


def no_progress(view: DetectorView) -> Finding | None:
    """Return the run of calls without progress at the history's end, if it is too long.

    A result is progress if the same tool hasn't returned it before in this task; the call's own
    arguments are removed from it first. A reply without a call breaks nothing.
    """
    history, section = view.history, view.rules.no_progress
    run = list(without_news(view))
    calls = (run[-1][1] if run else 0) + (view.judging or view.foreseen)
    if not run or calls < view.limit(section.warn, section.hard):
        return None
    if view.judging and not history.turns[-1].acts:
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


def without_news(view: DetectorView) -> Iterator[tuple[Turn, int]]:
    """Yield the turns whose calls brought nothing new, with the calls so far, the newest first."""
    turns, calls = view.history.turns, 0
    inputs = None if view.judging else view.history.pending
    for position in range(len(turns) - 1, view.history.task_start - 1, -1):
        turn = turns[position]
        if inputs is not None:
            if inputs.interjected or view.is_exempt(turn):
                return
            if inputs.old:
                calls += inputs.old
                yield turn, calls
            if inputs.fresh:
                return
        inputs = turn.inputs


# By their names in docs/loops.md. Each row can be removed by itself. The first detector that finds
# a loop acts; once its hint is given, the later ones ignore that turn.
DETECTORS: dict[str, Callable[[DetectorView], Finding | None]] = {
    "identical_calls": identical_calls,
    "name_cycle": name_cycle,
    "similar_replies": similar_replies,
    "repetition": repetition.same_results,
    "numbers": repetition.same_but_for_numbers,
    "tool_frequency": tool_frequency,
    "no_progress": no_progress,
}


def findings(history: History, rules: LoopDetectionSettings) -> Iterator[Finding]:
    """Yield the loops that the newest turn is part of, at most one per detector."""
    view = DetectorView(history, rules)
    return filter(None, (find(view) for find in DETECTORS.values()))


def breaks(
    history: History, rules: LoopDetectionSettings, *, uncertain: bool = True
) -> Finding | None:
    """Return the loop to break if the newest turn, a reply, closes one.

    ``uncertain``: whether that includes loops that may be polls.
    """
    found = findings(history, rules)
    return next((finding for finding in found if finding.certain or uncertain), None)


def could_break(history: History, rules: LoopDetectionSettings) -> bool:
    """Whether the next reply, with at most one call, may close a loop that has to be broken."""
    view = DetectorView(history, rules, foreseen=True)
    return any(find(view) is not None for find in DETECTORS.values())
