"""Calls as text that nobody reads: ⏺ lines, and marked formats where no tools are offered."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.verdicts import Cut, LoopDetected
from mlx_stack_proxy.loop_detection.generation.marked_calls import MarkedCalls
from mlx_stack_proxy.wire.growing import GrowingText
from tests.loop_detection.generation.test_repeated_calls import ROLE, TOOLS, Reply
from tests.loop_detection.generation.test_reply_watch import Watched
from tests.loop_detection.generation.texts import operations, pieces, prose
from tests.support.replies import chunk

READ = "⏺ Read: the file README.md\n"
BASH = "⏺ Bash: ls -la\n"
CALLED = "⏺ Read(README.md)\n"
LM_STUDIO = '[TOOL_REQUEST]{"name": "look", "arguments": {"query": "a"}}[END_TOOL_REQUEST]\n'
HARMONY = (
    "<|start|>assistant<|channel|>commentary to=functions.look <|constrain|>json"
    '<|message|>{"query": "a"}<|call|>'
)
QWEN = (
    "<tool_call>\n<function=look>\n<parameter=query>\na\n</parameter>\n</function>\n</tool_call>\n"
)
TASK = "⏺ Task: the same first fifty characters of a description, part {}\n"


def replied(text: str, size: int = 7, **rules: Any) -> Reply:
    rules.setdefault("tools", [])
    parts = [chunk({"content": part}) for part in pieces(text, size)]
    return Reply([ROLE, *parts, chunk({}, "stop")], **rules)


CUT = {
    "a line": (READ * 3, READ * 2),
    "many": (READ * 40, READ * 2),
    "without a last line break": ((READ * 3).rstrip(), READ * 2),
    "arguments": (CALLED * 12, CALLED * 2),
    "in prose": (f"I begin.\n{READ * 3}That is all.", f"I begin.\n{READ * 2}"),
    "BAAA": (BASH + READ * 3, BASH + READ * 2),
    "AAAB": (READ * 3 + BASH, READ * 2),
    "ABABABAB": ((READ + BASH) * 4, (READ + BASH) * 2),
    "with what it brought": ((CALLED + "  ⎿ 20 lines\n") * 5, (CALLED + "  ⎿ 20 lines\n") * 2),
    "exactly 50": (f"{TASK[:50]}\n{TASK[:50]}\n{TASK}" * 2, f"{TASK[:50]}\n" * 2),
    "50 characters": ("".join(map(TASK.format, range(9))), TASK.format(0) + TASK.format(1)),
    "lm_studio": (LM_STUDIO * 3, LM_STUDIO * 2),
    "lm_studio with prose": ((LM_STUDIO + "Again:\n") * 9, (LM_STUDIO + "Again:\n") * 2),
    "harmony": (HARMONY * 5, HARMONY * 2),
    "qwen_xml": (QWEN * 40, QWEN * 2),
}


@pytest.mark.specification(4, 6, 18)
@pytest.mark.parametrize("name", CUT)
@pytest.mark.parametrize(("size", "stream"), [(1, True), (7, True), (9_999, True), (7, False)])
def test_three_equal_calls_are_cut_to_two(name: str, size: int, stream: bool) -> None:
    text, wanted = CUT[name]
    reply = replied(text, size, stream=stream)
    assert reply.text == wanted
    assert reply.was_cut
    assert reply.finishes == ["stop"]
    assert size > 7 or reply.taken <= (len(text) / size) + 4


@pytest.mark.specification(4, 18)
@pytest.mark.parametrize("stream", [True, False])
def test_lines_are_cut_where_tools_are_offered_too(stream: bool) -> None:
    reply = replied(READ * 40, stream=stream, tools=TOOLS)
    assert reply.text == READ * 2
    assert reply.was_cut
    assert isinstance(reply.ended_by, Cut)


WHOLE = {
    "two": READ * 2 + "Done.",
    "two calls": LM_STUDIO * 2,
    "tests after edits": "".join(
        f"⏺ Bash(npm test)\n  ⎿ {at} failed\n⏺ Edit(a{at}.py)\n" for at in range(9)
    ),
    "a plan": (READ + BASH + READ + CALLED + READ),
    "prose between": "".join(f"{READ}So {prose(40, at)}\n" for at in range(6)),
    "other arguments": "".join(LM_STUDIO.replace('"a"', f'"{at}"') for at in range(6)),
    "longer arguments": CALLED * 2 + "⏺ Read(README.md) failed\n",
    "steps": "".join(f"⏺ Run: step {at}\n" for at in (1, 1, 10, 11)),
    "bullets": "⏺ Let me look at the file\n" * 5,
    "within a line": "He wrote ⏺ Read: a. " * 3,
    "a fence": f"So:\n```\n{CALLED * 5}{LM_STUDIO * 5}```\n",
    "inline code": f"Write `{LM_STUDIO.strip()}`, `{LM_STUDIO.strip()}`, `{LM_STUDIO.strip()}`.",
    "marks alone": "A <tool_call> begins a call. A <tool_call> begins a call. A <tool_call> is it.",
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("size", [1, 9_999])
def test_what_is_no_repetition_stays_whole(name: str, size: int) -> None:
    reply = replied(WHOLE[name], size)
    assert reply.text == WHOLE[name]
    assert not reply.was_cut
    assert reply.ended_by is None


def test_limits_and_exempt_tools() -> None:
    in_response = {"loop_detection": {"in_response": {"max_repeats": 4}}}
    assert replied(CALLED * 9, **in_response).text.count(CALLED.strip()) == 4
    assert replied("⏺ wait(5)\n" * 9).text == "⏺ wait(5)\n" * 9


def test_a_line_flows_until_it_may_be_surplus() -> None:
    watched = Watched()
    hold, flowed = watched.watch.text_hold(), ""
    for piece in pieces(READ * 2 + "⏺ Read: the file LICENSE\n", 1):
        assert watched.text(piece) is None
        flowed += hold.feed(piece)
        text = watched.reply.choices[0].text
        assert flowed == text or text.removeprefix(flowed) in READ


def test_a_repetition_before_the_calls_is_a_loop() -> None:
    text = "I will look at the file again. " * 30 + "\n" + READ * 3
    one = Watched()
    assert isinstance(one.text(text), LoopDetected)


def watch(text: str) -> None:
    marked, written = MarkedCalls(2, (), formats=True), GrowingText()
    for piece in pieces(text, 16):
        written.add(piece)
        marked.add(piece, written)


@pytest.mark.parametrize(
    "one",
    [
        "⏺ Read(%d)\n",
        "<tool_call>",
        '<tool_call>{"name": "a", "arguments": {"a": %d}}',
        "[TOOL_REQUEST]{",
        "⏺",
        "⏺ Read: a " * 4,
    ],
)
def test_work_is_linear(one: str) -> None:
    texts = ("".join(one.replace("%d", str(at)) for at in range(size)) for size in (500, 1000))
    short, long = (operations(lambda text=text: watch(text)) for text in texts)
    assert long <= 2.5 * short
