"""Loops that some project did not notice (their issues are in the docstrings)."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.loop_detection.stage import LoopDetection
from tests.loop_detection.asking import NAMED, again, asked, hint, judged
from tests.loop_detection.histories import (
    TASK,
    Json,
    Run,
    calls,
    says,
    settings,
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


def test_a_result_that_says_of_its_run_what_is_new_each_time() -> None:
    """Codex: 310 equal calls of the real one, until its time was over."""
    brought = "Chunk ID: {:06x}\nWall time: 0.{:04} seconds\n"
    brought += "Process exited with code 0\nOutput:\nquokka\n"
    made = [("exec_command", {"cmd": "cat a"}, brought.format(n * 77_777, n)) for n in range(1, 9)]
    assert Run([TASK, *steps(*made)]).broken[0] == (4, "repetition")
    moving = [(name, given, f"{said}{said[10:16]}") for name, given, said in made]
    assert Run([TASK, *steps(*moving)]).is_silent, "what it brought is compared"


def test_a_b_a_b() -> None:
    """opencode#47759."""
    run = Run([TASK, *steps(*[A, B] * 5)])
    assert run.told[0] == (6, "repetition")
    assert run.broken[0] == (7, "repetition")
    assert run.nearly[0] == 7, "what could not be taken back is held from there on, not before"


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


@pytest.mark.parametrize(
    "write",
    [
        "DISCUSSION\n{}\n```\nedit 1:1\nclass A {{\n```",
        "Thought: {}\nAction: search\nAction Input: quokka",
        "Thought: {}\n<code>\nlook('quokka')\n</code>",
    ],
)
def test_the_same_command_behind_a_thought_that_is_worded_anew(write: str) -> None:
    """16 of 43 recorded loops of such agents were missed."""
    messages: list[Json] = [TASK]
    for thought in ("Let me try.", "It failed, so once more.", "Now with care.", "Yes!", "No?"):
        messages += [says(write.format(thought)), user("Observation: syntax error")]
    run = Run(messages)
    assert run.told[0] == (4, "repetition")
    assert run.broken == [(4, "repetition"), (5, "repetition")]


def test_laps_of_five_commands_behind_reworded_thoughts() -> None:
    messages: list[Json] = [TASK]
    for number in range(18):
        command = f"```\nopen {number % 5}.java\n```"
        messages += [says(f"Try {number} it is. {command}"), user(f"text {number % 5}")]
    assert Run(messages).broken[0] == (16, "repetition")


def test_an_error_in_which_only_the_line_moves() -> None:
    """SWE-agent: `cd x/` 44 times, and the very same edit 34 times while the file grows."""
    failing = [
        ("bash", {"command": "cd x/"}, f"bash: line {17871 + 15 * n}: cd: x/: no such directory")
        for n in range(44)
    ]
    run = Run([TASK, *steps(*failing)])
    assert run.told[0] == (10, "repetition")
    assert run.broken[0] == (13, "repetition")
    edits = [
        ("bash", {"command": "edit 1:1 a"}, f"[a.java ({n} lines total)]\n1:a") for n in range(34)
    ]
    assert Run([TASK, *steps(*edits)]).broken[0] == (13, "repetition")


def test_a_fresh_id_in_every_result() -> None:
    """Codex: equal calls never looked equal, and were not broken after 20."""
    made = [
        ("exec_command", {"cmd": "ls"}, f"Chunk ID: {id}\nProcess exited with code 0\na b c")
        for id in ("7c1f3a", "f00ba4", "0d15ea", "a1b2c3") * 5
    ]
    assert Run([TASK, *steps(*made)]).broken


def test_an_answer_that_comes_and_goes() -> None:
    """Two answers by turns are a circle of two, not of one."""
    poll = [("job_status", {"id": 7}, said) for said in ("busy", "idle") * 5]
    assert Run([TASK, *steps(*poll)]).broken[0] == (7, "repetition")


def test_a_loop_whose_old_results_were_cleared() -> None:
    """Half of the loops were missed, and every request had the same hint."""
    stage = LoopDetection(settings())
    whole = [TASK, *steps(*[A, B] * 5)]
    hints, breaks = [], []
    for end in range(2, len(whole) + 1, 2):
        messages = cleared(whole[: end - 1])
        if hint(stage, messages, NAMED):
            hints.append(end // 2)
        reply = whole[end - 1] if end < len(whole) else again(A)
        verdict = judged(stage, messages, reply, asked(messages, NAMED))
        if verdict is not None and not verdict.doubt:
            breaks.append(end // 2)
    assert hints == [6]
    assert breaks[0] == 7


def test_what_looks_alike_only_because_it_was_cleared() -> None:
    stage = LoopDetection(settings(second_opinion=False))
    poll = ("job_status", {"id": 7})
    whole = [TASK, *steps(*((*poll, f"step {word}") for word in "abcdefghi"))]
    for end in range(2, len(whole) + 1, 2):
        messages = cleared(whole[: end - 1])
        assert not hint(stage, messages, NAMED)
        assert judged(stage, messages, calls(poll), asked(messages, NAMED)) is None


def cleared(messages: list[Json]) -> list[Json]:
    """As context editing does: the last three results are kept."""
    old = [at for at, one in enumerate(messages) if one["role"] == "tool"][:-3]
    return [
        {**one, "content": "[Old tool result content cleared]"} if at in old else one
        for at, one in enumerate(messages)
    ]


def test_surroundings_in_every_turn_do_not_start_a_new_count() -> None:
    messages = [TASK]
    for n in range(6):
        messages += [*step(*A), user(f"<environment>it is {n} o'clock</environment>")]
    run = Run(messages)
    assert run.told[0] == (4, "repetition")
    assert run.broken[0] == (4, "repetition")


def test_words_of_the_users_own_begin_a_new_count() -> None:
    messages = [TASK, *steps(A, A), user("Done?"), *steps(A, A, A, A, A)]
    run = Run(messages)
    assert [number for number, _ in run.broken] == [6, 7]
    assert run.told[0][0] == 6


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
    function = {"name": "get_order", "arguments": {"order_id": "A-1043"}}
    said: list[Json] = [TASK]
    for number in range(4):
        made = [{"id": f"call_{number}f3a", "type": "function", "function": function}]
        said += [says(f"Thought {number}.\nCalling tools:\n{made}"), user("Observation:\nshipped")]
    assert Run(said).told[0] == (4, "repetition")
    stage = LoopDetection(settings())
    verdict = judged(stage, said, calls(("get_order", {"order_id": "A-1043"})))
    assert verdict is not None and not verdict.doubt, "its reply is a real call"
