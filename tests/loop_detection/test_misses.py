"""Loops that some project did not notice (their issues are in the docstrings)."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.loop_detection.stage import LoopDetection
from tests.loop_detection.asking import A, B, judged
from tests.loop_detection.histories import TASK, Json, calls, says, settings, step, steps, user
from tests.loop_detection.played import Played

CODEX = (
    "Chunk ID: {:06x}\nWall time: 0.{:04} seconds\nProcess exited with code 0\nOutput:\nquokka\n"
)
FIVE = [
    message
    for n in range(18)
    for message in (says(f"Try {n} it is.\n```\nopen {n % 5}.java\n```"), user(f"text {n % 5}"))
]
THOUGHTS = ("Let me try.", "It failed, so once more.", "Now with care.", "Yes!", "No?")


def reworded(write: str) -> list[Json]:
    """The same command behind a thought that is worded anew each time."""
    return [
        message
        for thought in THOUGHTS
        for message in (says(write.format(thought)), user("Observation: syntax error"))
    ]


def lap(period: int) -> list[Json]:
    return steps(*[("read_file", {"path": f"{n}.md"}, f"text {n}") for n in range(period)] * 4)


# What is done, in which request it is told first, and which reply is broken first. The first lap
# answers to the user, so that the fourth equal call is the third lap.
GOING_ROUND: dict[str, tuple[list[Json], int, int]] = {
    "the same call (pi#9637: 220 times)": (steps(*[A] * 8), 4, 4),
    "a result that says of its run what is new each time (Codex: 310 times)": (
        steps(*[("exec", {"cmd": "cat a"}, CODEX.format(n * 77_777, n)) for n in range(9)]),
        4,
        4,
    ),
    "a fresh id in every result": (
        steps(*[("exec", {"cmd": "ls"}, f"ID: {n:06x}a\na b c") for n in range(99, 120)]),
        10,
        13,
    ),
    "a b a b (opencode#47759)": (steps(*[A, B] * 5), 6, 7),
    "three steps": (lap(3), 8, 10),
    "five steps": (lap(5), 12, 16),
    "sixteen steps": (lap(16), 34, 49),
    "the same answer over several messages (opencode#25254)": (
        [says("I will now fix the build."), user("Go on.")] * 4,
        4,
        4,
    ),
    "SWE-agent": (reworded("DISCUSSION\n{}\n```\nedit 1:1\nclass A {{\n```"), 4, 4),
    "ReAct": (reworded("Thought: {}\nAction: search\nAction Input: quokka"), 4, 4),
    "CodeAgent": (reworded("Thought: {}\n<code>\nlook('quokka')\n</code>"), 4, 4),
    "five commands behind reworded thoughts": (FIVE, 12, 16),
    "an error in which only the line moves (SWE-agent: 44 times)": (
        steps(*[("bash", {"command": "cd x/"}, f"bash: line {n}: no x/") for n in range(44)]),
        10,
        13,
    ),
    "the same edit while the file grows (34 times)": (
        steps(*[("bash", {"command": "edit 1:1 a"}, f"[a ({n} lines)]\n1:a") for n in range(34)]),
        10,
        13,
    ),
    "an answer that comes and goes: a circle of two": (
        steps(*[("job_status", {"id": 7}, said) for said in ("busy", "idle") * 5]),
        6,
        7,
    ),
    "surroundings in every turn": (
        [
            message
            for n in range(6)
            for message in (*step(*A), user(f"<environment>it is {n} o'clock</environment>"))
        ],
        4,
        4,
    ),
    "calls of which no results are known (gemini-cli)": (
        [calls(("bash", {"command": "ls"})) for _ in range(6)],
        4,
        4,
    ),
}


@pytest.mark.parametrize("name", GOING_ROUND)
def test_it_goes_round(name: str) -> None:
    messages, told, broken = GOING_ROUND[name]
    run = Played([TASK, *messages])
    assert next(one for one in run.hints if one[1] == "repetition") == (told, "repetition")
    assert run.broken[0] == (broken, "repetition")
    questions = {number for number, _ in run.asked}
    held = next(number for number in run.held if number not in questions)
    assert held == broken, "what can't be taken back is held from there on, not before"
    last = sum(one["role"] == "assistant" for one in messages)
    assert [number for number, _ in run.broken] == list(range(broken, last + 1)), "again at once"


def test_what_a_command_brought_is_compared() -> None:
    moving = [("exec", {"cmd": "a"}, f"{CODEX.format(n, n)}{chr(n + 97)}") for n in range(9)]
    assert Played([TASK, *steps(*moving)]).is_silent


def test_words_of_the_users_own_begin_a_new_count() -> None:
    messages = [TASK, *steps(A, A), user("Done?"), *steps(A, A, A, A, A)]
    run = Played(messages)
    assert [number for number, _ in run.broken] == [6, 7]
    assert run.hints[0][0] == 6


def test_calls_that_a_transcript_tells_as_text() -> None:
    """smolagents sends back no `tool_calls`: it writes them out, each with an id of its own."""
    function = {"name": "get_order", "arguments": {"order_id": "A-1043"}}
    said: list[Json] = [TASK]
    for number in range(4):
        made = [{"id": f"call_{number}f3a", "type": "function", "function": function}]
        said += [says(f"Thought {number}.\nCalling tools:\n{made}"), user("Observation:\nshipped")]
    assert Played(said).hints[0] == (4, "repetition")
    stage = LoopDetection(settings())
    verdict = judged(stage, said, calls(("get_order", {"order_id": "A-1043"})))
    assert verdict is not None and not verdict.doubt, "its reply is a real call"
