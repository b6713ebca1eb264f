"""Loops that some project did not notice (their issues are in the docstrings)."""

from __future__ import annotations

import pytest

from app.stages.loop_detection import detectors
from tests.core.test_told_calls import observed, told
from tests.stages.loop_detection.histories import (
    TASK,
    Json,
    Run,
    calls,
    closed,
    rules,
    says,
    step,
    steps,
    user,
)

A = ("search", {"query": "quokka"}, "nothing found")
B = ("read_file", {"path": "notes.md"}, "# Notes")
C = ("list_files", {}, "notes.md")


def test_the_same_call_again_and_again() -> None:
    """pi#9637: 220 equal calls. The first answers to the user, so the 4th is the third lap."""
    run = Run([TASK, *steps(*[A] * 8)])
    assert run.told[0] == (4, "repetition")
    assert run.broken[0] == (4, "repetition")
    assert [number for number, _ in run.broken] == [4, 5, 6, 7, 8], "and again at once"


def test_a_b_a_b() -> None:
    """opencode#47759."""
    run = Run([TASK, *steps(*[A, B] * 5)])
    assert run.told[0] == (6, "repetition")
    assert run.broken[0] == (7, "repetition")
    assert run.nearly[0] == 7, "what could not be taken back is held from there on, not before"


def test_a_b_a_b_by_outputs_alone() -> None:
    run = Run([TASK, *steps(*[A, B] * 5)], compare="output")
    assert run.told[0] == (5, "repetition")
    assert run.broken[0] == (6, "repetition")


@pytest.mark.parametrize("period", [3, 5, 16])
def test_longer_laps(period: int) -> None:
    lap = [("read_file", {"path": f"{n}.md"}, f"text {n}") for n in range(period)]
    run = Run([TASK, *steps(*lap * 4)])
    assert run.broken[0] == (3 * period + 1, "repetition")
    repetitions = [number for number, name in run.told if name == "repetition"]
    assert repetitions[0] <= 2 * period + 2


def test_the_same_answer_over_several_messages() -> None:
    """opencode#25254."""
    said: list[Json] = []
    for _ in range(4):
        said += [says("I will now fix the build."), user("Go on.")]
    run = Run([TASK, *said])
    assert run.told[0] == (4, "repetition")
    assert run.broken[0] == (4, "repetition")


def test_an_answer_that_is_nearly_the_same() -> None:
    long = (
        "I am going to look at the build now and will tell you what I have found as soon as I am "
    )
    said: list[Json] = []
    for word in ("done", "finished", "ready", "through"):
        said += [says(f"{long}{word} with all of it, step by step, file by file, line by line.")]
        said += [user("Go on.")]
    assert Run([TASK, *said]).broken[0] == (4, "repetition")
    assert Run([TASK, *said], similarity_threshold=1).is_silent


def test_other_arguments_same_error() -> None:
    """crush#2856."""
    failing = [("search", {"query": f"try {n}"}, "Error: rate limit") for n in range(8)]
    run = Run([TASK, *steps(*failing)])
    assert run.told[0] == (6, "same_error")
    assert not run.broken


@pytest.mark.parametrize(
    "said", ["Permission denied", "Connection refused", "Ошибка: нет доступа", "错误：无权限"]
)
def test_an_error_in_other_words(said: str) -> None:
    failing = [("search", {"query": f"try {n}"}, said) for n in range(8)]
    assert Run([TASK, *steps(*failing)]).told[0] == (6, "same_error")


def test_a_new_description_does_not_make_it_another_call() -> None:
    """deer-flow#1578."""
    made = [
        ("bash", {"command": "make", "description": f"Attempt {n} at the build"}, "make: red")
        for n in range(7)
    ]
    run = Run([TASK, *steps(*made)])
    assert run.told[0] == (4, "identical_calls")
    assert run.broken[0] == (5, "identical_calls")
    assert Run([TASK, *steps(*((n, a, f"{r} {i}") for i, (n, a, r) in enumerate(made)))]).is_silent


def test_a_fresh_id_or_timestamp_does_not_either() -> None:
    made = [
        ("fetch", {"url": "http://a", "request_id": f"r{n}", "timestamp": n}, "404")
        for n in range(6)
    ]
    assert Run([TASK, *steps(*made)]).broken[0] == (5, "identical_calls")


@pytest.mark.parametrize("name", ["requestId", "request-id", "call_id", "traceId", "createdAt"])
def test_whatever_the_id_is_called(name: str) -> None:
    made = [("fetch", {"url": "http://a", name: f"r{n}"}, "404") for n in range(6)]
    assert Run([TASK, *steps(*made)]).broken[0] == (5, "identical_calls")


def test_more_calls_than_the_window_is_long() -> None:
    """A tool's own number counts, or it would never be reached."""
    own = {"duplicate_threshold": 99, "identical_warn": 10, "identical_hard": 30}
    made = [("job_status", {"id": 1}, "running")] * 33
    run = Run([TASK, *steps(*made)], tool_calls={"overrides": {"job_status": own}})
    assert run.broken[0] == (30, "identical_calls")
    assert {number for number, _ in run.broken} <= set(run.nearly)


def test_what_a_tool_only_thinks_is_no_noise() -> None:
    thoughts = [("think", {"thought": f"thought {n}"}, "ok") for n in range(9)]
    assert Run([TASK, *steps(*thoughts)]).is_silent


@pytest.mark.parametrize(
    ("nothing", "missing"),
    [
        ("no results", "404: not found"),
        ('{"results": []}', "Here is the page: it has moved."),
        ("没有找到结果", "页面不存在"),
        ("Nichts gefunden.", "Fehler 404"),
        ("None", "null"),
        ("404", '{"status": 404}'),
        ("unknown page", "HTTP status code 500"),
        ("1. Quokka (disambiguation), 2. Quokka Ltd", "Please enable JavaScript to see the page."),
    ],
)
def test_search_and_fetch_in_turns(nothing: str, missing: str) -> None:
    """deer-flow#2569: web_search → web_fetch, other arguments each time, nothing gained."""
    made = []
    for n in range(10):
        made.append(("web_search", {"query": f"quokka {n}"}, nothing))
        made.append(("web_fetch", {"url": f"http://x/{n}"}, missing))
    run = Run([TASK, *steps(*made)])
    assert run.told[0] == (7, "name_cycle")
    assert run.broken[0] == (8, "name_cycle")


def test_the_same_call_with_others_in_between() -> None:
    made = []
    for n in range(6):
        made += [A, ("read_file", {"path": f"{n}.md"}, "# an empty page")]
    no_circles = {"name_cycle_warn": 99, "name_cycle_hard": 99}
    run = Run([TASK, *steps(*made)], tool_calls=no_circles)
    assert run.told[0] == (6, "identical_calls")
    assert run.broken[0] == (11, "identical_calls"), "the first page was news"


def test_the_same_call_is_told_but_not_broken_while_others_bring_something_new() -> None:
    made = []
    for n in range(9):
        made += [A, ("bash", {"command": f"cat {n}.md"}, f"text {n}")]
    assert Run([TASK, *steps(*made)]).told[0] == (6, "identical_calls")
    assert not Run([TASK, *steps(*made)]).broken
    made = []
    for n in range(9):
        made += [A, ("read_file", {"path": f"{n}.md"}, f"text {n}")]
    run = Run([TASK, *steps(*made)])
    assert run.told[0] == (6, "identical_calls")
    assert not run.broken
    run = Run([TASK, *steps(*made, *[A, B] * 3, A)])
    assert run.broken, "once that is over"


def test_surroundings_in_every_turn_do_not_start_a_new_count() -> None:
    messages = [TASK]
    for n in range(6):
        messages += [*step(*A), user(f"<environment>it is {n} o'clock</environment>")]
    run = Run(messages)
    assert run.told[0] == (4, "identical_calls")
    assert run.broken[0] == (5, "identical_calls")


def test_words_of_the_users_own_hold_the_hint_back_but_not_the_break() -> None:
    messages = [TASK, *steps(A, A), user("Done?"), *steps(A, A, A)]
    run = Run(messages)
    assert run.broken == [(5, "identical_calls")]
    assert all(number > 4 for number, _ in run.told)


def test_the_order_of_parallel_calls_does_not_matter() -> None:
    messages: list[Json] = [TASK]
    for n in range(5):
        pair = [("search", {"query": "a"}), ("search", {"query": "b"})]
        message = calls(*(pair if n % 2 else pair[::-1]))
        results = {'{"query": "a"}': "one", '{"query": "b"}': "two"}
        messages.append(message)
        for one in reversed(message["tool_calls"]):
            said = results[one["function"]["arguments"]]
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": said})
    assert Run(messages).broken[0] == (4, "repetition")


def test_without_results_the_calls_themselves_are_enough() -> None:
    """gemini-cli: nothing is known of what the calls brought."""
    made = [calls(("bash", {"command": "ls"})) for _ in range(6)]
    run = Run([TASK, *made])
    assert run.broken[0] == (4, "repetition")
    broken_up = [*made[:2], *(calls(("bash", {"command": str(n)})) for n in range(5)), made[2]]
    assert Run([TASK, *broken_up]).is_silent


def test_calls_that_a_transcript_tells_as_text() -> None:
    """smolagents sends back no `tool_calls`: it writes them out, each with an id of its own."""
    said: list[Json] = [TASK]
    broken = []
    reply = calls(("get_order", {"order_id": "A-1043"}))
    for number in range(1, 8):
        if detectors.breaks(closed(said, reply), rules()) is not None:
            broken.append(number)
        said += [told("get_order", {"order_id": "A-1043"}, number), observed("shipped")]
    assert broken == [4, 5, 6, 7]
