"""Which parts of a reply may go out at once, and which are held for the verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine import gate as gate_module
from mlx_stack_proxy.engine.gate import Gate
from mlx_stack_proxy.wire.chunks import Chunk, read_events
from mlx_stack_proxy.wire.events import TextDelta
from mlx_stack_proxy.wire.sse import comment_frame, data_frame
from tests.support.replies import USAGE, chunk, usage_chunk

Json = dict[str, Any]
ROLE = chunk({"role": "assistant", "content": ""})
TEXT = chunk({"content": "a"})
CALL = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]})
FINISH = chunk({}, "stop")
COMMENT = comment_frame("keepalive 1/2")


def made(payload: Json | bytes) -> Chunk:
    if isinstance(payload, bytes):
        return Chunk(payload, None, ())
    return Chunk(data_frame(repr(payload).encode()), payload, read_events(payload))


@pytest.mark.parametrize(
    "nothing",
    [
        ROLE,
        chunk({}),
        chunk({"role": "assistant", "content": None, "tool_calls": [], "refusal": None}),
        {"choices": []},
        {"choices": None},
        {"object": "ping"},
        COMMENT,
        usage_chunk(),
        {**ROLE, "usage": USAGE},
    ],
    ids=str,
)
def test_what_commits_nothing_waits_for_what_does(nothing: Json | bytes) -> None:
    gate = Gate()
    first, text = made(nothing), made(TEXT)
    assert gate.push(first) == []
    assert gate.push(text) == [first, text]
    assert gate.push(first) == [first]  # from then on it flows like all else


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "a"},
        {"reasoning": "a"},
        {"reasoning_content": "a"},
        {"content": "a", "reasoning": "b"},
        {"refusal": "a"},
        {"annotations": [{"type": "url_citation"}]},
        {"audio": {"data": "UklG"}},
    ],
    ids=str,
)
def test_what_flows(delta: Json) -> None:
    one = made(chunk(delta))
    assert Gate().push(one) == [one]


@pytest.mark.parametrize(
    "payload",
    [
        CALL,
        chunk({"function_call": {"name": "f"}}),
        FINISH,
        chunk({"content": "a"}, "stop"),
        {"error": {"message": "m"}},
    ],
    ids=str,
)
def test_what_closes_the_gate_and_all_that_follows_waits(payload: Json) -> None:
    gate = Gate()
    text, closing = made(TEXT), made(payload)
    assert gate.push(text) == [text]
    after = [made(TEXT), made(COMMENT), made(usage_chunk())]
    assert [gate.push(one) for one in [closing, *after]] == [[]] * 4
    assert gate.release() == [closing, *after]
    assert gate.release() == []


def test_a_server_that_counts_along_in_every_chunk_still_streams() -> None:
    gate = Gate()
    chunks = [made({**one, "usage": USAGE}) for one in (ROLE, TEXT, TEXT, FINISH)]
    assert [gate.push(one) for one in chunks] == [[], chunks[:2], [chunks[2]], []]
    assert gate.release() == [chunks[3]]


class Held:
    """Lets text flow up to the first `<`."""

    def __init__(self) -> None:
        self.held = ""
        self.shut = False

    def feed(self, delta: str) -> str:
        self.held += delta
        if self.shut:
            return ""
        at = self.held.find("<")
        self.shut = at >= 0
        flows = self.held if at < 0 else self.held[:at]
        self.held = self.held[len(flows) :]
        return flows


def test_text_that_may_be_a_call_waits_and_what_is_before_it_flows() -> None:
    def of(text: str) -> Chunk:
        choice = {"index": 0, "delta": {"content": text, "mood": "odd"}, "finish_reason": None}
        return made({"id": "c", "choices": [choice]})

    gate = Gate(text_hold=Held())
    first, second, third = of("Look: "), of("so<tool"), of("_call>")
    assert gate.push(first) == [first]
    assert gate.push(second) == []  # the next chunk mostly settles it
    (head,) = gate.push(third)
    assert head.events == [TextDelta(0, "so")]
    assert head.payload is not None and head.payload["choices"][0]["delta"]["mood"] == "odd"
    assert gate.flowed == len("Look: so")
    tail, last = gate.release()
    assert tail.events == [TextDelta(0, "<tool")]
    assert last is third


def test_a_hold_that_fails_lets_nothing_more_out_until_the_end() -> None:
    class Broken(Held):
        def feed(self, delta: str) -> str:
            raise RuntimeError(delta)

    said: list[str] = []
    gate = Gate(text_hold=Broken(), report=lambda error: said.append(str(error)))
    chunks = [made(chunk({"content": text})) for text in ("a", "b")]
    assert [gate.push(one) for one in chunks] == [[], []]
    assert gate.release() == chunks
    assert said == ["a"]


KINDS = [ROLE, TEXT, COMMENT, CALL, FINISH, usage_chunk(), chunk({"reasoning": "r"})]


@given(st.lists(st.sampled_from(KINDS)), st.booleans())
def test_the_order_is_kept_and_nothing_is_lost(payloads: list[Json | bytes], whole: bool) -> None:
    gate = Gate(hold_whole=whole)
    came, went = [], []
    for payload in payloads:
        one = made(payload)
        came.append(one)
        went += gate.push(one)
        assert all(a is b for a, b in zip(came, went, strict=False))
        assert not any(read_events(c.payload or {}) == read_events(CALL) for c in went)
        assert not (whole and went)
    went += gate.release()
    assert len(went) == len(came)
    assert all(a is b for a, b in zip(came, went, strict=True))


def test_chunks_that_say_nothing_are_not_held_without_end() -> None:
    gate = Gate()
    for _ in range(5_000):
        assert gate.push(made({"choices": []})) == []
    assert len(gate.push(made(TEXT))) < 300, "further ones are dropped"


def test_a_gate_that_holds_more_than_any_reply_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "MAX_HELD", 100_000)
    for first in (CALL, TEXT):
        gate = Gate(text_hold=Held() if first is TEXT else None)
        assert not gate.overfull
        gate.push(made(chunk({"content": "<"}) if first is TEXT else CALL))
        for _ in range(100):
            assert gate.push(made(first)) == []
        assert gate.overfull


def test_what_has_gone_out_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate_module, "MAX_HELD", 10_000)
    gate = Gate()
    gate.push(made(ROLE))
    for _ in range(100):
        assert gate.push(made(TEXT))
    assert not gate.overfull
