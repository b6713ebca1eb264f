"""The stages of one attempt, in order, and what a stage is.

A fault in a stage must never break a reply that was fine: it is reported, the stage is left out for
the rest of the attempt, and the reply goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Protocol, TypeVar

from ..wire.events import Event
from ..wire.reply import Reply
from .exchange import Exchange
from .gate import TextHold
from .outcome import Remarks
from .request import UpstreamRequest
from .verdicts import Verdict, severest

T = TypeVar("T")
FaultReport = Callable[[str, Exception], None]


class StageState:
    """What a stage keeps during one attempt. Override what the stage needs.

    A stage may change the request's body in :meth:`on_request` and the reply in :meth:`mend`. In
    :meth:`judge` it may only take text and calls out of the reply, for not before then are all
    calls known. What it has to say beside a verdict it adds to :attr:`remarks`, which the loop
    reads when a header is due, and when the attempt has ended.
    """

    @cached_property
    def remarks(self) -> Remarks:
        return Remarks()

    def on_request(self, request: UpstreamRequest) -> Verdict | None:
        """Before the upstream call; may rewrite ``request.body``."""
        return None

    def on_event(self, event: Event) -> Verdict | None:
        """While the reply comes; a verdict ends the attempt at once."""
        return None

    def text_hold(self) -> TextHold | None:
        """What knows how much of the reply's text may flow while it comes; None: all."""
        return None

    def hold_whole(self) -> bool:
        """Whether nothing of this reply may go out before it is judged; asked before it begins."""
        return False

    def mend(self, reply: Reply) -> None:
        """At the end, before any stage judges. Choices that it changes go in ``reply.mended``."""

    def judge(self, reply: Reply) -> Verdict | None:
        """After all stages have mended. Choices that it shortens go in ``reply.mended``."""
        return None


class Stage(Protocol):
    """A stage's configuration, shared by all exchanges."""

    name: str
    bypass: str  # the word in X-MLX-Stack-Bypass that leaves it out; empty: can't be

    def open(self, exchange: Exchange) -> StageState: ...


class Pipeline:
    """The opened stages of one attempt."""

    __slots__ = ("_event_handlers", "_opened", "_report", "_states")

    def __init__(self, stages: Sequence[Stage], exchange: Exchange, report: FaultReport) -> None:
        self._report = report
        self._states: list[tuple[str, StageState]] = []
        for stage in stages:
            if stage.bypass and stage.bypass in exchange.controls.bypass:
                continue
            try:
                self._states.append((stage.name, stage.open(exchange)))
            except Exception as error:
                report(stage.name, error)
        self._opened = self._states  # also those that were left out later
        # A stage that doesn't watch the stream costs nothing a chunk.
        self._event_handlers = [
            (name, state)
            for name, state in self._states
            if type(state).on_event is not StageState.on_event
        ]

    @property
    def watches_events(self) -> bool:
        return bool(self._event_handlers)

    def on_request(self, request: UpstreamRequest) -> Verdict | None:
        for name, state in list(self._states):
            before = dict(request.body)
            try:
                verdict = state.on_request(request)
            except Exception as error:
                request.body.clear()
                request.body.update(before)
                self._leave_out(name, state, error)
                continue
            if verdict is not None:
                return verdict
        return None

    def on_event(self, event: Event) -> Verdict | None:
        for name, state in self._event_handlers:
            try:
                verdict = state.on_event(event)
            except Exception as error:
                self._leave_out(name, state, error)
                continue
            if verdict is not None:
                return verdict
        return None

    def text_hold(self) -> TextHold | None:
        """The first stage's that has one."""
        return next(filter(None, self._each(lambda state: state.text_hold())), None)

    def hold_whole(self) -> bool:
        """Whether any stage wants the whole reply held."""
        return any(self._each(lambda state: state.hold_whole()))

    def end(self, reply: Reply) -> Verdict | None:
        """Mend, then judge; the severest verdict counts."""
        for _ in self._each(lambda state: state.mend(reply)):
            pass
        return severest(list(filter(None, self._each(lambda state: state.judge(reply)))))

    def _each(self, ask: Callable[[StageState], T]) -> Iterator[T]:
        """What each stage answers; one that raises is left out from then on."""
        for name, state in list(self._states):
            try:
                answer = ask(state)
            except Exception as error:
                self._leave_out(name, state, error)
            else:
                yield answer

    def remarks(self) -> Remarks:
        """What all stages have said so far."""
        said = Remarks()
        for _, state in self._opened:
            if "remarks" in vars(state):
                said.add(state.remarks)
        return said

    def _leave_out(self, name: str, state: StageState, error: Exception) -> None:
        self._report(name, error)
        self._states = [entry for entry in self._states if entry[1] is not state]
        self._event_handlers = [entry for entry in self._event_handlers if entry[1] is not state]
