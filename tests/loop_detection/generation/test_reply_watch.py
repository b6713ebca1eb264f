"""The verdicts: which event brings them, what they carry, and what is kept of the reply."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.request import UpstreamRequest
from mlx_stack_proxy.engine.verdicts import Cut, LoopDetected, Verdict, truncated
from mlx_stack_proxy.escalation.stage import Escalation
from mlx_stack_proxy.loop_detection.generation.reply_watch import HINT, STOPPED, ReplyWatch
from mlx_stack_proxy.settings import DEFAULT_TIERS, Settings
from mlx_stack_proxy.wire.delta import Delta
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange
from tests.loop_detection.generation.texts import pieces, prose
from tests.support.deltas import call_delta, call_piece, reasoning_delta, text_delta, watched

SETTINGS = Settings(tiers=DEFAULT_TIERS)
STUCK = "I will look at the file again. "


class Watched:
    """A watch, and the reply that its events make."""

    def __init__(self, **rules: Any) -> None:
        self.exchange: Exchange = exchange()
        reliability: Any = {"loop_detection": rules}
        settings = Settings(tiers=DEFAULT_TIERS, reliability=reliability)
        self.watch = ReplyWatch(self.exchange, settings)
        self.reply = Reply()
        self.verdict: Verdict | None = None

    def on(self, *deltas: Delta) -> Verdict | None:
        self.verdict = self.verdict or watched(self.watch.watch, self.reply, deltas)
        return self.verdict

    def text(self, text: str, choice: int = 0) -> Verdict | None:
        return self.on(*(text_delta(piece, choice) for piece in pieces(text, 5)))

    def reasoning(self, text: str) -> Verdict | None:
        return self.on(*(reasoning_delta(piece) for piece in pieces(text, 5)))


def test_a_loop_in_the_text() -> None:
    one = Watched()
    verdict = one.text(prose(100) + STUCK * 20)
    assert isinstance(verdict, LoopDetected)
    assert verdict.detector == "generation"
    assert verdict.repeats == (9 * len(STUCK) + 49) // len(STUCK)
    assert verdict.hint == HINT
    assert STUCK.strip() not in verdict.message
    assert one.watch.remarks.notes["Loop"] == "circuit_break;detector=generation"
    labels = [(i.kind, i.labels) for i in one.watch.remarks.incidents]
    assert ("loop_break", ("generation", "circuit_break")) in labels


def test_the_pattern_stays_the_same() -> None:
    first, second, other = Watched(), Watched(), Watched()
    a, b = first.text(STUCK * 20), second.text("So: " + STUCK[4:] + STUCK * 20)
    c = other.text("I wait. " * 40)
    assert isinstance(a, LoopDetected)
    assert isinstance(b, LoopDetected)
    assert isinstance(c, LoopDetected)
    assert a.pattern == b.pattern != c.pattern


def test_text_and_reasoning_and_choices_are_apart() -> None:
    one = Watched()
    for _ in range(9):
        assert one.text(STUCK) is None
        assert one.reasoning(STUCK) is None
        assert one.text(STUCK, choice=1) is None
    assert isinstance(one.text(STUCK * 3, choice=1), LoopDetected)
    calls = Watched()
    for index in range(3):
        blank = call_delta(call_piece(" " * 400, f"tool_{index}", f"c{index}", index))
        assert calls.on(blank) is None, "and so are the arguments of two calls"


def test_too_much_reasoning() -> None:
    one = Watched(generation={"max_reasoning_tokens": 500})
    verdict = one.reasoning(prose(3000))
    assert verdict == truncated("reasoning")
    assert 2000 <= len(one.reply.choices[0].reasoning) <= 2100


def test_switched_off() -> None:
    one = Watched(generation={"enabled": False})
    assert one.text(STUCK * 300) is None
    assert one.reasoning(prose(80_000)) is None
    assert one.text("\n" * 3000) is None


@pytest.mark.parametrize("where", ["text", "reasoning"])
def test_on_break_stop_keeps_what_came_before_the_second_lap(where: str) -> None:
    one = Watched(on_break="stop")
    if where == "text":
        verdict = one.text("Well:\n" + STUCK * 30)
    else:
        one.text("Well:\n")
        verdict = one.reasoning(STUCK * 30)
    assert verdict == Cut("loop_detected", "stop")
    one.watch.mend(one.reply)
    assert one.reply.mended == {0}
    kept = "Well:\n" + STUCK if where == "text" else "Well:\n"
    assert one.reply.choices[0].text == kept
    assert one.watch.remarks.reply_notes["Loop"] == "circuit_break;detector=generation"


@pytest.mark.parametrize(
    "before",
    [[], [text_delta("\n\n")], [call_delta(call_piece("{}", "look", "c"))]],
    ids=["nothing", "blanks", "a call"],
)
def test_on_break_stop_says_why_where_nothing_is_left(before: list[Delta]) -> None:
    """An empty reply would be taken for a failure, and the model asked again."""
    one = Watched(on_break="stop")
    one.on(*before)
    assert one.reasoning(STUCK * 30) == Cut("loop_detected", "stop")
    one.watch.mend(one.reply)
    choice = one.reply.choices[0]
    assert choice.text.strip() == STOPPED
    assert not choice.tool_calls
    assert Escalation(SETTINGS).open(one.exchange).judge(one.reply) is None


@pytest.mark.parametrize("flowed", [0, 40])
def test_on_break_stop_keeps_nothing_that_came_after_endless_blanks(flowed: int) -> None:
    one = Watched(on_break="stop")
    text = " " * 5000 + "and what came with them"
    assert one.text(text) == Cut("loop_detected", "stop")
    one.reply.flowed = flowed  # what the client has stays as it is
    one.watch.mend(one.reply)
    assert one.reply.choices[0].text == " " * flowed + STOPPED


def test_on_break_stop_ends_the_other_choices_too() -> None:
    one = Watched(on_break="stop")
    one.text("Half an ans", choice=1)
    one.on(call_delta(call_piece('{"query": "a"}', "look", "c"), choice=2))
    one.on(call_delta(call_piece('{"que', "look", "d", 1), choice=2))
    assert one.text(STUCK * 30) == Cut("loop_detected", "stop")
    for choice in one.reply.choices.values():
        choice.finish_reason = "stop"  # as an attempt does
    one.watch.mend(one.reply)
    first, second, third = (one.reply.choices[index] for index in range(3))
    assert first.finish_reason == "stop"
    assert (second.text, second.finish_reason) == ("Half an ans", "length")
    assert [call.id for call in third.tool_calls] == ["c"]
    assert third.finish_reason == "length"
    assert one.reply.mended == {0, 1, 2}


def test_tokens_saved_are_told_where_the_limit_is_known() -> None:
    known, unknown = Watched(), Watched()
    known.watch.on_request(UpstreamRequest("fast", {"messages": [], "max_tokens": 2048}))
    unknown.watch.on_request(UpstreamRequest("fast", {"messages": []}))
    for one in (known, unknown):
        one.text(STUCK * 30)
    saved = [i.detail["tokens"] for i in known.watch.remarks.incidents if i.kind == "tokens_saved"]
    assert len(saved) == 1
    assert 1900 < saved[0] < 2000
    assert not any(i.kind == "tokens_saved" for i in unknown.watch.remarks.incidents)


# The tool-call limit

LONG_CALL = '{"command": "cat > a.py <<EOF' + prose(9000) + "x = 1\\n" * 1800 + 'EOF"}'


@pytest.mark.parametrize(
    ("budget", "asked", "limit"),
    [
        ({}, None, 2048),
        ({"tool_calls": {"default_max_tokens": 100}}, None, 100),
        ({}, 9000, 4096),
        ({"tool_calls": {"apply": "never"}}, None, None),
        ({"enabled": False}, None, None),
    ],
)
def test_beyond_the_tool_call_limit_less_is_enough(
    budget: dict[str, Any], asked: int | None, limit: int | None
) -> None:
    settings = Settings(tiers=DEFAULT_TIERS, reliability={"token_budget": budget})  # type: ignore[arg-type]
    tool = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}
    for tools in ([tool], []):
        whole = exchange(client_request(tools=tools, max_tokens=asked))
        watch = ReplyWatch(whole, settings)
        wanted = limit * 4 if limit and tools else sys.maxsize
        assert watch._late == wanted


def test_a_long_call_goes_on_and_one_that_goes_round_is_cut() -> None:
    """Issue: 25 of 2,272 turns of an agent that has only `bash` were cut in the midst."""
    rows = prose(9000) + f"<tr><td>{'x' * 90}</td></tr>\n" * 40
    tools = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}]
    for text, cut in (
        (json.dumps(prose(60_000)), False),
        (json.dumps(rows), False),
        (LONG_CALL, True),
    ):
        late = ReplyWatch(exchange(client_request(tools=tools)), SETTINGS)
        verdict = watched(late.watch, Reply(), [call_delta(call_piece(text, "bash", "c"))])
        assert isinstance(verdict, LoopDetected) is cut
