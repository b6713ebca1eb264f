"""Finds turns that only repeat earlier ones, and a call that the model immediately repeats.

A turn repeats if the same action had the same result before in this task. Another action or another
result is news, and so is a turn with an exempt tool or after a user's interjection. If an agent
loops in a cycle of three steps, all its turns but the first three repeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Final

from ..settings import LoopDetectionSettings
from .call_keys import digest
from .finding import DetectorView, Finding, listed, tools_of
from .turns import Turn

# Turns of a lap. Recorded cycles have few tools; three laps of 16 turns are 48 turns without news.
MAX_PERIOD: Final = 16
NUMBERS: Final = 4  # allow this many times as many laps if results differ in their numbers
# A result is a page if it has more characters than _PAGE, and than _SHARE times the arguments.
_PAGE: Final = 2_000
_SHARE: Final = 20
_Key = tuple[int, int | None]  # a turn's action and result; None: a reply that is being judged


def same_results(view: DetectorView) -> Finding | None:
    return _repetition(view, "digest", 1)


def same_but_for_numbers(view: DetectorView) -> Finding | None:
    """Find turns whose results differ in numbers only, which may be a poll that makes progress."""
    return _repetition(view, "shape", NUMBERS)


def _repetition(view: DetectorView, compared: str, patience: int) -> Finding | None:
    """Return the cycle of the newest turns, if it has too many laps.

    ``compared``: the digest of `Inputs` that has to be equal. ``patience``: a factor on the
    settings' laps.
    """
    history, rules = view.history, view.rules
    # After the user has spoken, the effect is not known yet.
    if not history.repeats or history.pending.interjected:
        return None
    turns = history.task
    if view.judging and not _goes_on(view, turns[-1]):
        return None
    keys, start = _run(view, turns, compared)
    tools = tools_of(turns[start:])
    warn = _limit_of(tools, rules, "warn_threshold", rules.warn_threshold)
    hard = _limit_of(tools, rules, "duplicate_threshold", rules.duplicate_threshold)
    laps = patience * view.limit(warn, hard)
    for period in range(1, min(MAX_PERIOD, start) + 1):
        length = _matching(keys, period, len(keys) - start)
        if length and length + view.foreseen > (laps - 1) * period:
            cycle = turns[len(keys) - length :]
            break
    else:
        return None
    # The first lap, in which everything was new, counts only once the agent has acted.
    laps = -(-length // period) if view.judging else length // period + 1
    actions = sorted({turn.action for turn in cycle})
    return Finding(
        "repetition",
        laps,
        next(iter(tools_of(cycle)), ""),
        f"{digest(*map(str, actions)):016x}",
        _hint(tools_of(cycle), period, "twice" if laps == 2 else f"{laps} times"),
        view.places(cycle),
        certain=patience == 1,
        confirmable=True,
        length=length,
    )


def _run(view: DetectorView, turns: Sequence[Turn], compared: str) -> tuple[list[_Key], int]:
    """Return the turns' keys, and the first turn from which on all turns repeat."""
    inputs = [*[turn.inputs for turn in turns[1:]], view.history.pending]
    results = [getattr(one, compared) for one in inputs]
    start = len(turns)
    if view.judging:
        results[-1], start = None, start - 1
    keys = [(turn.action, result) for turn, result in zip(turns, results, strict=True)]
    first_indexes: dict[_Key, int] = {}
    for index, key in enumerate(keys):
        first_indexes.setdefault(key, index)
    while start and _goes_on(view, turns[start - 1]) and first_indexes[keys[start - 1]] < start - 1:
        start -= 1
    return keys, start


def _goes_on(view: DetectorView, turn: Turn) -> bool:
    return not turn.inputs.interjected and not view.is_exempt(turn)


def _matching(keys: Sequence[_Key], period: int, limit: int) -> int:
    """Count the newest turns that equal the turn one period earlier, up to ``limit``."""
    count = 0
    while count < limit:
        (action, result), earlier = keys[-1 - count], keys[-1 - count - period]
        if action != earlier[0] or result not in (None, earlier[1]):
            break
        count += 1
    return count


def _hint(tools: list[str], period: int, times: str) -> str:
    """Return an imperative: a small model would repeat a statement as its answer."""
    if not tools:
        return (
            f"Stop repeating the same answer ({times} so far). Say something new, do the next "
            "step, or finish."
        )
    if period == 1:
        return (
            f"Stop calling {listed(tools)} with the same arguments: {times}, the same result. Use "
            "that result, call something else, or give the final answer."
        )
    return (
        f"Stop repeating the same {period} steps ({listed(tools)}): {times}, the same results. Use "
        "those results, take another approach, or give the final answer."
    )


def identical_hard(tools: Iterable[str], rules: LoopDetectionSettings) -> int:
    """Return from how many equal calls with equal results on a second tier can't confirm them."""
    return _limit_of(tools, rules, "identical_hard", rules.tool_calls.identical_hard)


def _limit_of(tools: Iterable[str], rules: LoopDetectionSettings, name: str, common: int) -> int:
    """Return the highest limit of a run that calls these tools.

    A tool's own limit replaces the common one.
    """
    overrides = rules.tool_calls.overrides
    limits = [getattr(overrides.get(tool), name, None) for tool in tools]
    return max([common if limit is None else limit for limit in limits], default=common)


def repeated_call(view: DetectorView, argument_chars: int) -> Finding | None:
    """Return a finding if the newest turn repeats the last turn's calls, which all have results.

    The model may be waiting or lost. A hint that says so mostly misleads a weak model; a stronger
    model that is asked instead, without a hint, sees what to do next.

    Return None if the user has spoken since, if the results of the run differ, or if a short call
    returned a long page, because the next page may follow. ``argument_chars``: characters of the
    calls' arguments.
    """
    turns = view.history.turns
    if not view.rules.second_opinion or len(turns) < 2:
        return None
    newest = turns[-1]
    inputs, calls = newest.inputs, newest.calls
    results = [result for result in inputs.results if result is not None]
    if inputs.user or not results or len(results) < len(inputs.results):
        return None
    run = list(takewhile(lambda turn: turn.calls == calls, reversed(turns[:-1])))
    if not calls or not run or view.is_exempt(newest):
        return None
    if sum([result.size for result in results]) > max(_PAGE, _SHARE * argument_chars):
        return None
    if any(turn.inputs.results != inputs.results for turn in run[:-1]):
        return None
    places = tuple([turn.place for turn in reversed(run)])
    return Finding("repetition", 2, calls[0].name, newest.pattern, "", places)
