"""What a stage is, and the pipeline that runs the stages of one attempt in order.

A stage may rewrite the request, watch the reply's events, and mend and judge the reply at its end.
A fault in a stage must never break a good reply: the pipeline reports the exception, leaves the
stage out for the rest of the attempt, and goes on.
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
    """A stage's state during one attempt. A stage overrides the methods it needs.

    A stage may change the request's body in :meth:`on_request` and the reply in :meth:`mend`. In
    :meth:`judge`, where all stages have mended and all calls are known, it may only take text and
    calls out of the reply, and write in their place why they are gone and the new finish_reason
    (loop detection does so under ``on_break: stop``). Headers, incidents and questions go into
    :attr:`remarks`, which the loop reads when the response headers are due and when the attempt has
    ended.
    """

    @cached_property
    def remarks(self) -> Remarks:
        return Remarks()

    def on_request(self, request: UpstreamRequest) -> None:
        """Before the upstream call: may rewrite ``request.body``."""

    def on_event(self, event: Event) -> Verdict | None:
        """While the reply comes: see one event. A verdict ends the attempt at once."""
        return None

    def text_hold(self) -> TextHold | None:
        """Return what decides how much text may flow while the reply comes; None: all may."""
        return None

    def hold_whole(self) -> bool:
        """Whether to hold the whole reply until it is judged; asked before the reply begins."""
        return False

    def is_slow(self, reply: Reply) -> bool:
        """Whether to mend and judge this reply would hold the event loop, though it is short.

        If so, :meth:`mend` and :meth:`judge` run in a thread, as they do for a long reply.
        """
        return False

    def mend(self, reply: Reply) -> None:
        """At the end, before any stage judges: repair choices, noting them in ``reply.mended``."""

    def judge(self, reply: Reply) -> Verdict | None:
        """After all stages have mended: judge; note changed choices in ``reply.mended``."""
        return None


class Stage(Protocol):
    """A stage's configuration, shared by all exchanges."""

    name: str
    bypass: str  # the word in X-MLX-Stack-Bypass that leaves the stage out; "": there is none

    def open(self, exchange: Exchange) -> StageState: ...


class _Holds:
    """Several text holds: what one lets through, the next one gets."""

    def __init__(self, holds: Sequence[TextHold]) -> None:
        self._holds = holds

    def feed(self, delta: str) -> str:
        for hold in self._holds:
            delta = hold.feed(delta)
        return delta


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
        self._opened = self._states  # keeps the stages that are left out later, for their remarks
        # A stage that doesn't watch events costs nothing per event.
        self._event_handlers = [
            (name, state)
            for name, state in self._states
            if type(state).on_event is not StageState.on_event
        ]

    @property
    def watches_events(self) -> bool:
        return bool(self._event_handlers)

    def on_request(self, request: UpstreamRequest) -> None:
        for name, state in list(self._states):
            body_before = dict(request.body)
            try:
                state.on_request(request)
            except Exception as error:
                request.body.clear()
                request.body.update(body_before)
                self._leave_out(name, state, error)

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
        """Return the stages' text holds as one, in the stages' order; None: no stage has one."""
        holds = list(filter(None, self._each(lambda state: state.text_hold())))
        return _Holds(holds) if len(holds) > 1 else next(iter(holds), None)

    def hold_whole(self) -> bool:
        """Whether any stage wants the whole reply held."""
        return any(self._each(lambda state: state.hold_whole()))

    def is_slow(self, reply: Reply) -> bool:
        """Whether a thread should call :meth:`end`."""
        return any(self._each(lambda state: state.is_slow(reply)))

    def end(self, reply: Reply) -> Verdict | None:
        """Let all stages mend, then judge; return the severest verdict."""
        for _ in self._each(lambda state: state.mend(reply)):
            pass
        return severest(list(filter(None, self._each(lambda state: state.judge(reply)))))

    def _each(self, call: Callable[[StageState], T]) -> Iterator[T]:
        """Yield each stage's answer; a stage that raises is left out from then on."""
        for name, state in list(self._states):
            try:
                answer = call(state)
            except Exception as error:
                self._leave_out(name, state, error)
            else:
                yield answer

    def remarks(self) -> Remarks:
        """Join the remarks of all opened stages so far."""
        remarks = Remarks()
        for _, state in self._opened:
            if "remarks" in vars(state):
                remarks.add(state.remarks)
        return remarks

    def _leave_out(self, name: str, state: StageState, error: Exception) -> None:
        self._report(name, error)
        self._states = [entry for entry in self._states if entry[1] is not state]
        self._event_handlers = [entry for entry in self._event_handlers if entry[1] is not state]
