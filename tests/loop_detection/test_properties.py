"""What holds for every history, whatever an agent does."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tests.loop_detection.histories import TASK, Json, says, step, steps, user
from tests.loop_detection.played import Played

# A step of an agent: what it calls, with what, and what it gets.
Made = tuple[str, Json, str]
NAMES = ("read_file", "search", "bash", "fetch", "list_files", "http", "think", "plan")


def distinct(count: int) -> st.SearchStrategy[list[Made]]:
    """Steps that have nothing in common but their tools' names."""
    return st.lists(st.sampled_from(NAMES), min_size=count, max_size=count).map(
        lambda names: [(name, {"n": at}, f"found {chr(97 + at)}") for at, name in enumerate(names)]
    )


HISTORIES = st.integers(0, 19).flatmap(distinct)


@given(HISTORIES)
def test_a_history_that_does_not_repeat_itself_is_never_stopped(made: list[Made]) -> None:
    assert Played([TASK, *steps(*made)]).is_silent


@given(st.integers(0, 4).flatmap(distinct), st.integers(1, 8).flatmap(distinct))
def test_a_lap_gone_three_times_is_broken(before: list[Made], lap: list[Made]) -> None:
    """And one step more: the first lap answers to something else than the two after it."""
    before = [(name, {"b": arguments["n"]}, f"before {said}") for name, arguments, said in before]
    made = steps(*before, *lap * 3, lap[0])
    run = Played([TASK, *made])
    assert run.broken
    assert run.hints
    assert run.hints[0][0] <= run.broken[0][0], "told before it is broken"


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True), st.data())
def test_one_result_that_changes_in_each_lap_is_progress(
    names: list[str], data: st.DataObject
) -> None:
    """Names that come twice in a lap may be a circle of their own."""
    lap = [(name, {"n": at}, f"found {at}") for at, name in enumerate(names)]
    often = data.draw(st.integers(3, 5))
    at = data.draw(st.integers(0, len(lap) - 1))
    laps: list[Made] = []
    for number in range(often):
        name, arguments, _ = lap[at]
        changed = (name, arguments, f"new in lap {number}")
        laps += [*lap[:at], changed, *lap[at + 1 :]]
    assert not Played([TASK, *steps(*laps, laps[0])]).broken


LIMITS = st.integers(1, 4)
OWN = st.fixed_dictionaries({}, optional={"identical_hard": LIMITS})
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "duplicate_threshold": st.integers(2, 4),
        "window_size": st.integers(1, 6),
        "exempt_tools": st.just((NAMES[1],)),
        "tool_calls": st.fixed_dictionaries(
            {},
            optional={
                "identical_hard": LIMITS,
                "overrides": st.dictionaries(st.sampled_from(NAMES[:3]), OWN),
            },
        ),
    },
)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=14), CHANGES, st.booleans())
@example([1, 1], {"tool_calls": {"overrides": {NAMES[1]: {"identical_hard": 2}}}}, False)
def test_what_need_not_be_judged_is_foreseen(made: list[int], changes: Json, alike: bool) -> None:
    """By whatever rules, a reply of one call at most that is broken was foreseen; 0 is a text."""
    run = Played(mixed(made, alike), **changes)
    assert {number for number, _ in run.broken if number > 1} <= set(run.held)


def mixed(made: list[int], alike: bool) -> list[Json]:
    messages: list[Json] = [TASK]
    for at, number in enumerate(made):
        if not number:
            messages += [says("Let me think."), user("Go on." if alike else f"Go on, {at}.")]
            continue
        arguments = {"query": number // 2, "reason": str(at if alike else 0)}
        messages += step(NAMES[number % 3], arguments, str(number % 2))
    return messages
