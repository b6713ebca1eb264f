"""Texts that come in one read: which of them a stage sees each by itself, and which together."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.pipeline import StageState
from mlx_stack_proxy.engine.verdicts import Verdict
from mlx_stack_proxy.wire.events import Event, TextDelta
from tests.core.exchanges import Faults, attempt, client_request, exchange
from tests.support.replies import stream_bytes, text_chunks

TEXTS = ["First", " of", " all", " that", " come", " at", " once"]
WHOLE = stream_bytes(text_chunks(*TEXTS))
Seen = list[str | tuple[str, ...]]


class Watching(StageState):
    """Sees each piece."""

    def __init__(self) -> None:
        self.seen: Seen = []

    def on_event(self, event: Event) -> Verdict | None:
        if isinstance(event, TextDelta):
            self.seen.append(event.text)
        return None


class Patient(Watching):
    """Need not see the next `room` characters."""

    def __init__(self, room: int = sys.maxsize) -> None:
        super().__init__()
        self.most = room

    def room(self, choice: int) -> int:
        return self.most

    def take_at_once(self, choice: int, texts: Sequence[str]) -> None:
        self.seen.append(tuple(texts))


class BreaksWhenAsked(Patient):
    def room(self, choice: int) -> int:
        raise RuntimeError("a bug")


class BreaksWhenGiven(Patient):
    def take_at_once(self, choice: int, texts: Sequence[str]) -> None:
        raise RuntimeError("a bug")


class Opens:
    name = "stage"
    bypass = ""

    def __init__(self, state: StageState) -> None:
        self.state = state

    def open(self, exchange: Exchange) -> StageState:
        return self.state


def fed(*states: StageState, stream: bool = False, faults: Faults | None = None) -> Attempt:
    whole = exchange(client_request(stream=stream))
    one = attempt(whole, stages=[Opens(state) for state in states], faults=faults)
    one.feed(WHOLE, 0.0)
    assert one.done
    assert one.settle() is None
    assert one.reply.choices[0].text == "".join(TEXTS)
    assert one.reply.pieces == len(TEXTS)
    if not stream:
        assert one.completion()["choices"][0]["message"]["content"] == "".join(TEXTS)
    return one


# By the first chunk the others are told.
@pytest.mark.parametrize(
    ("room", "seen"),
    [
        (sys.maxsize, ["First", tuple(TEXTS[1:])]),
        (9, ["First", (" of", " all"), (" that",), (" come", " at"), (" once",)]),
        (5, ["First", (" of",), (" all",), (" that",), (" come",), (" at",), (" once",)]),
        (4, ["First", (" of",), (" all",), " that", " come", (" at",), " once"]),
        (0, TEXTS),
    ],
)
def test_as_many_as_there_is_room_for_come_together(room: int, seen: Seen) -> None:
    state = Patient(room)
    fed(state)
    assert state.seen == seen


def test_one_that_has_to_see_each_piece_is_shown_each() -> None:
    watching, patient = Watching(), Patient()
    fed(watching, patient)
    assert watching.seen == patient.seen == TEXTS


def test_the_least_room_counts() -> None:
    states = [Patient(9), Patient(4), Patient(sys.maxsize)]
    fed(*states)
    seen = ["First", (" of",), (" all",), " that", " come", (" at",), " once"]
    assert [state.seen for state in states] == [seen] * 3


def test_a_client_that_streams_gets_each_piece_when_it_was_seen() -> None:
    state = Patient()
    fed(state, stream=True)
    assert state.seen == TEXTS


@pytest.mark.parametrize("state", [BreaksWhenAsked(), BreaksWhenGiven()])
def test_a_stage_that_breaks_is_left_out_and_the_reply_goes_on(state: StageState) -> None:
    faults, other = Faults(), Patient()
    fed(state, other, faults=faults)
    assert [str(error) for _, error in faults] == ["a bug"]
    assert other.seen == ["First", tuple(TEXTS[1:])]
