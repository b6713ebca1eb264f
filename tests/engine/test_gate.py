"""Which parts of a reply may go out at once, and which are held for the verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine import gate as gate_module
from mlx_stack_proxy.engine.gate import Gate
from mlx_stack_proxy.wire.delta import Delta, typed
from mlx_stack_proxy.wire.reply import Reply
from tests.support.replies import USAGE, chunk, data, usage_chunk

Json = dict[str, Any]
ROLE = chunk({"role": "assistant", "content": ""})
TEXT = chunk({"content": "a"})
CALL = chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]})
FINISH = chunk({}, "stop")


def made(payload: Json) -> Delta:
    """A chunk in form, as a reply has taken it."""
    delta = typed(data(payload), payload)
    Reply().take(delta)
    return delta


class Holding:
    """Holds all text back, until it is ``flowing``."""

    def __init__(self) -> None:
        self.flowing = False
        self._held = ""

    def feed(self, delta: str) -> str:
        self._held += delta
        out, self._held = (self._held, "") if self.flowing else ("", self._held)
        return out


def pushed(gate: Gate, delta: Delta) -> list[Delta]:
    """What goes out with a frame; an attempt holds it once the gate is closed."""
    return [] if gate.closed else list(gate.push(delta))


@pytest.mark.parametrize(
    "nothing",
    [
        ROLE,
        chunk({}),
        chunk({"role": "assistant", "content": None, "tool_calls": [], "refusal": None}),
        {"choices": []},
        {"object": "ping"},
        usage_chunk(),
        {**ROLE, "usage": USAGE},
    ],
    ids=str,
)
def test_what_commits_nothing_waits_for_what_does(nothing: Json) -> None:
    gate = Gate()
    first, text = made(nothing), made(TEXT)
    assert pushed(gate, first) == []
    assert pushed(gate, text) == [first, text]
    assert pushed(gate, first) == [first]  # from then on it flows like all else


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
    assert pushed(Gate(), one) == [one]


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
def test_what_closes_the_gate(payload: Json) -> None:
    gate = Gate()
    text = made(TEXT)
    assert pushed(gate, text) == [text]
    assert pushed(gate, made(payload)) == []
    assert gate.closed


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
    gate = Gate(text_holds=[Held()])
    first, second, third = (
        made(chunk({"content": text, "mood": "odd"})) for text in ("Look: ", "so<tool", "_call>")
    )
    assert pushed(gate, first) == [first]
    assert pushed(gate, second) == []  # the next chunk mostly settles it
    (head,) = pushed(gate, third)
    assert (head.text, head.more) == ("so", second.more)
    tail, last = gate.close()
    assert (tail.text, tail.more) == ("<tool", None)
    assert last is third
    assert gate.closed and not gate.close()


def test_a_hold_that_fails_lets_nothing_more_out_until_the_end() -> None:
    class Broken(Held):
        def feed(self, delta: str) -> str:
            raise RuntimeError(delta)

    said: list[str] = []
    gate = Gate(text_holds=[Broken()], report=lambda error: said.append(str(error)))
    assert pushed(gate, made(chunk({"content": "a"}))) == []
    assert gate.closed
    assert said == ["a"]


KINDS = [ROLE, TEXT, CALL, FINISH, usage_chunk(), chunk({"reasoning": "r"})]


@given(st.lists(st.sampled_from(KINDS)), st.booleans())
def test_the_order_is_kept_and_nothing_is_lost(payloads: list[Json], whole: bool) -> None:
    gate = Gate(hold_whole=whole)
    came, went, held = [], [], []
    for payload in payloads:
        one = made(payload)
        came.append(one)
        went += pushed(gate, one)
        if gate.closed:
            held += [*gate.close(), one]
        assert not any(delta.grown for delta in went)
        assert not (whole and went)
    went += [*held, *gate.close()]
    assert len(went) == len(came)
    assert all(a is b for a, b in zip(came, went, strict=True))


def test_frames_that_say_nothing_are_not_held_without_end() -> None:
    gate = Gate()
    for _ in range(5_000):
        assert pushed(gate, made({"choices": []})) == []
    assert len(pushed(gate, made(TEXT))) < 300, "further ones are dropped"


def test_the_gate_says_how_much_waits() -> None:
    gate = Gate(text_holds=[Held()])
    waiting = [made(chunk({"content": text})) for text in ("<", "a", "b")]
    for one in waiting:
        pushed(gate, one)
    assert gate.waiting_bytes == sum(len(one.raw) for one in waiting)
    other = Gate()
    for _ in range(100):
        assert pushed(other, made(TEXT))
    assert other.waiting_bytes == 0


def test_frames_that_wait_for_content_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Delta] = []

    def is_empty(delta: Delta) -> bool:
        looked.append(delta)
        return not delta.kinds

    monkeypatch.setattr(gate_module, "_is_empty", is_empty)
    hold = Holding()
    gate = Gate(text_holds=[hold])
    counts, texts = [made(usage_chunk()) for _ in range(200)], [made(TEXT) for _ in range(100)]
    for one in (*counts, *texts):
        assert pushed(gate, one) == []
    assert len(looked) == 200
    hold.flowing = True
    assert pushed(gate, made(TEXT))[:300] == [*counts, *texts]
