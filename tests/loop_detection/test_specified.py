"""The detectors of the original documents, with their numbers: rows of the specification."""

from __future__ import annotations

from itertools import cycle, islice
from typing import Any

import pytest

from mlx_stack_proxy.engine.session_id import SessionId
from tests.loop_detection.histories import TASK, Json, answers, calls, says, step, steps, user
from tests.loop_detection.played import Asked, Played

SPECIFICATION: Json = {"preset": "specification", "on_break": "error"}
Made = list[tuple[str, Json, str]]


def named(names: str, count: int) -> Made:
    """Calls of the tools in turn, each with new arguments and a new result."""
    tools = {"A": "search", "B": "fetch", "C": "read", "D": "bash"}
    turns = islice(cycle(names), count)
    return [(tools[name], {"query": f"q{n}"}, f"text {n * 7}") for n, name in enumerate(turns)]


def played(made: Made, **changes: Any) -> Played:
    return Played([TASK, *steps(*made)], **{**SPECIFICATION, **changes})


# 002: cycles of names


@pytest.mark.specification(115, 116)
def test_two_names_in_turn_warn_at_call_6_and_break_at_call_8() -> None:
    run = played(named("AB", 9))
    assert run.hints == [(7, "name_cycle")], "the request after call 6"
    assert run.broken[0] == (8, "name_cycle")
    assert run.held[0] == 8, "a reply that may close the cycle is held"


@pytest.mark.specification(117)
def test_three_names_break_at_call_12() -> None:
    run = played(named("ABC", 12))
    assert (run.hints, run.broken) == ([(10, "name_cycle")], [(12, "name_cycle")])


@pytest.mark.specification(118)
def test_search_and_fetch_without_results_are_stopped() -> None:
    """#2569: 200 and more alternating calls."""
    made = [
        one
        for n in range(110)
        for one in (
            ("search", {"query": f"w{n}"}, "No results found."),
            ("fetch", {"url": f"http://x/{n}"}, "404 Not Found"),
        )
    ]
    assert played(made).broken[0] == (8, "name_cycle")


@pytest.mark.parametrize("names", ["A" * 40, "ABACABDCBADBCADBBACD"])
def test_one_name_and_names_without_order_are_no_cycle(names: str) -> None:
    changes: Json = {"tool_frequency": {"warn": 99, "hard": 99}}
    run = played(named(names, len(names)), **changes)
    assert not run.hints and not run.broken


@pytest.mark.specification(122)
@pytest.mark.parametrize(
    ("changes", "names", "broken"),
    [
        ({}, "ABCD", 16),
        ({"max_length": 3}, "ABCD", 0),
        ({"min_length": 3}, "AB", 16),  # A B A B: a cycle of four
        ({"min_length": 3, "max_length": 3}, "AB", 0),
        ({"hard": 6}, "AB", 12),
        ({"warn": 2}, "AB", 8),
    ],
)
def test_each_key_of_name_cycle(changes: Json, names: str, broken: int) -> None:
    run = Played([TASK, *steps(*named(names, 17))], name_cycle=changes)
    assert [number for number, _ in run.broken][:1] == ([broken] if broken else [])
    hinted = {"warn": 5}.get(next(iter(changes), ""), 0)
    assert not hinted or run.hints[0] == (hinted, "name_cycle")


# 003: identical calls and frequency


def moving(count: int, **arguments: Any) -> Made:
    return [("bash", {"command": "make", **arguments}, f"line {n} of it") for n in range(count)]


@pytest.mark.specification(136, 157)
def test_three_equal_calls_warn_and_the_fifth_breaks_whatever_they_bring() -> None:
    run = played(moving(6))
    assert run.hints == [(4, "identical_calls")]
    assert run.broken[0] == (5, "identical_calls")
    assert run.held[0] == 5
    same = played([("bash", {"command": "ls"}, "a b")] * 6)
    assert (same.hints, same.broken[0]) == ([(4, "identical_calls")], (5, "identical_calls"))
    assert not same.asked


@pytest.mark.specification(135)
def test_the_same_set_in_another_order_every_third_turn_is_the_same() -> None:
    pair = [("read", {"path": "a"}), ("read", {"path": "b"})]
    messages = [TASK]
    for n in range(15):
        made = pair if n % 2 else pair[::-1]
        message = calls(*(made if n % 3 == 0 else [("think", {"n": n})]))
        messages += [
            message,
            *answers(message, *[f"r{n}{k}" for k, _ in enumerate(message["tool_calls"])]),
        ]
    run = Played(messages, identical_calls={})
    assert run.hints == [(8, "identical_calls")]
    assert run.broken == [(13, "identical_calls")]
    assert not Played(messages, identical_calls={"window": 10}).broken


@pytest.mark.parametrize(
    ("changes", "hinted", "broken"),
    [
        ({"warn": 2}, 3, 5),
        ({"hard": 7}, 4, 7),
        ({"key": "salient"}, 4, 5),
        ({"window": 3}, 4, 0),
    ],
)
def test_each_key_of_identical_calls(changes: Json, hinted: int, broken: int) -> None:
    run = Played([TASK, *steps(*moving(8))], identical_calls=changes)
    assert run.hints[0] == (hinted, "identical_calls")
    assert [number for number, _ in run.broken][:1] == ([broken] if broken else [])


def read(n: int, **arguments: Any) -> tuple[str, Json, str]:
    return "read_file", {"path": "a.py", **arguments}, f"text {n}"


SALIENT: dict[str, tuple[Made, bool]] = {
    "windows that slide by one": (
        [read(n, start_line=n + 1, end_line=n + 40) for n in range(6)],
        True,
    ),
    "the next page": ([read(n, start_line=200 * n + 1) for n in range(6)], False),
    "offset and limit": ([read(n, offset=n + 1, limit=40) for n in range(6)], True),
    "another description": (
        [("bash", {"command": "npm test", "description": f"{n}"}, f"t{n}") for n in range(6)],
        True,
    ),
    "another limit": ([("find", {"query": "q", "limit": n}, f"t{n}") for n in range(6)], True),
    "another query": ([("find", {"query": f"q{n}"}, f"t{n}") for n in range(6)], False),
    "files written": (
        [("write_file", {"path": "a", "content": f"{n}"}, f"t{n}") for n in range(6)],
        False,
    ),
    "edits": ([("str_replace", {"path": "a", "new": f"{n}"}, f"t{n}") for n in range(6)], False),
    "no such field": ([("book", {"seat": n}, f"t{n}") for n in range(6)], False),
}


@pytest.mark.specification(130, 131)
@pytest.mark.parametrize("name", SALIENT)
def test_salient_arguments(name: str) -> None:
    made, same = SALIENT[name]
    messages = [TASK, *steps(*made)]
    assert bool(Played(messages, identical_calls={"key": "salient"}).broken) is same
    assert not Played(messages, identical_calls={}).broken


@pytest.mark.specification(126, 147, 148, 150)
def test_one_tool_warns_at_30_calls_and_breaks_at_50() -> None:
    run = played([("read_file", {"path": f"{n}"}, f"text {n * 7}") for n in range(51)])
    assert run.hints == [(31, "tool_frequency")]
    assert run.words[0].startswith("read_file was called 30 times in this task. ")
    assert run.broken[0] == (50, "tool_frequency")
    assert run.held[0] == 50


@pytest.mark.specification(149)
@pytest.mark.parametrize(
    ("changes", "hinted", "broken"),
    [
        ({"warn": 3}, 4, 50),
        ({"hard": 9}, 0, 9),
        ({"overrides": {"bash": {"warn": 4, "hard": 6}}}, 5, 6),
        ({"overrides": {"bash": {"hard": 60}}}, 31, 60),
        ({"overrides": {"fetch": {"hard": 6}}}, 31, 50),
    ],
)
def test_each_key_of_tool_frequency(changes: Json, hinted: int, broken: int) -> None:
    made = [("bash", {"command": f"{n}"}, f"text {n * 7}") for n in range(61)]
    run = Played([TASK, *steps(*made)], tool_frequency=changes)
    assert run.hints[:1] == ([(hinted, "tool_frequency")] if hinted else run.hints[:1])
    assert run.broken[0] == (broken, "tool_frequency")


def test_exempt_tools_are_never_counted() -> None:
    made = [("poll", {"id": 7}, f"t{n}") for n in range(60)]
    assert not played(made, exempt_tools=["poll"]).broken


def test_a_new_task_begins_all_counts_anew() -> None:
    """A user who asks for the same each day: the agent comes to an end each time."""
    day = [user("Build."), *steps(*moving(4)), says("It is built.")]
    run = Played(day * 4, **SPECIFICATION)
    assert not run.broken


# 001: text replies that are nearly the same

TEXT = (
    "I looked at the build log once more, and the failing step is still the linker, which can't "
    "find the library. This is look number {}; I will check the paths next."
)


@pytest.mark.parametrize("questions", ["What now?", "Look at {}."])
def test_the_third_reply_that_is_nearly_the_same_breaks(questions: str) -> None:
    session = Asked(**SPECIFICATION)
    found = [session.ask(questions.format(n), says(TEXT.format(n))) for n in range(8)]
    assert [broken for _, broken in found] == ["", "", *["similar_replies"] * 6]
    assert [hint for hint, _ in found[:3]] == ["", "", "similar_replies"]


def test_the_same_within_a_transcript_of_a_session_without_a_name() -> None:
    """Its own replies count; those of another run of the same script don't."""
    derived = SessionId("derived", "2" * 32, "2" * 32)
    session = Asked(derived, **SPECIFICATION)
    assert [session.ask("What now?", says(TEXT.format(n)))[1] for n in range(6)] == [""] * 6


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({}, 3),
        ({"threshold": 4}, 4),
        ({"similarity": 0.999}, 0),
        ({"window": 2}, 0),
    ],
)
def test_each_key_of_similar_replies(changes: Json, broken: int) -> None:
    session = Asked(similar_replies=changes, on_break="error")
    found = [session.ask("Go on.", says(TEXT.format(n)))[1] for n in range(8)]
    assert (found.index("similar_replies") + 1 if any(found) else 0) == broken


@pytest.mark.parametrize(
    ("reply", "body"),
    [
        ("HEARTBEAT_OK", {}),
        (TEXT, {"response_format": {"type": "json_object"}}),
    ],
)
def test_labels_and_formats_do_not_count(reply: str, body: Json) -> None:
    session = Asked(**SPECIFICATION)
    assert [session.ask(f"{n}?", says(reply), **body)[1] for n in range(6)] == [""] * 6


def test_replies_that_differ_are_no_loop() -> None:
    """Its false alarm: answers of one form about different things."""
    session = Asked(**SPECIFICATION)
    form = "The file {0} has {1} functions, of which {2} lack a test; the longest is {3}."
    words = ["parser", "lexer", "printer", "resolver", "loader", "emitter", "walker"]
    for n, word in enumerate(words):
        text = form.format(f"src/{word}.py", 3 * n + 4, n, f"{word}_{words[n - 3]}_of_{n * 13}()")
        assert session.ask("Next?", says(text)) == ("", "")


# All of them


def test_each_is_off_by_default() -> None:
    for made in (named("AB", 40), moving(8)):
        assert not Played([TASK, *steps(*made)]).broken


def test_hints_hold_nothing_that_a_model_could_repeat_as_its_own() -> None:
    runs = [played(named("AB", 7)), played(moving(4)), Played([TASK, *silent(16)])]
    for run in runs:
        assert run.words
        assert not any("You " in words or "I " in words for words in run.words)


def silent(count: int) -> list[Json]:
    return [
        message
        for n in range(count)
        for message in step("find", {"name": f"w{n}"}, f"No results found for 'w{n}'")
    ]


def test_a_next_tier_that_makes_the_same_call_does_not_confirm_it() -> None:
    """A hard stop is one, whoever asks for the call."""
    run = Played([TASK, *steps(*moving(8))], identical_calls={}, on_break="escalate")
    assert [number for number, _ in run.broken] == [5, 6, 7, 8]
