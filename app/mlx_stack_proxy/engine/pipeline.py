"""What a stage is, and the pipeline that runs the stages of one attempt in order.

A stage may choose the tier to start on, rewrite the request, watch the reply grow, and mend and
judge the reply at its end.
A fault in a stage must never break a good reply: the pipeline reports the exception, leaves the
stage out for the rest of the attempt, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

from ..wire.delta import Delta
from ..wire.reply import Reply
from .exchange import Exchange
from .gate import TextHold
from .outcome import Remarks
from .request import UpstreamRequest
from .steps import Start, start_on
from .tier_view import TierView
from .verdicts import Verdict, severest

T = TypeVar("T")
FaultReport = Callable[[str, Exception], None]


class StageState:
    """A stage's state during one attempt. A stage overrides the methods it needs.

    A stage may change the request's body in :meth:`on_request` and the reply in :meth:`mend`. In
    :meth:`judge`, where all stages have mended and all calls are known, it may only take text and
    calls out of the reply, and write in their place why they are gone and the new finish_reason
    (loop detection does so under ``on_break: stop``). Headers, incidents and questions go into
    :attr:`remarks`, which the driver reads when the response headers are due and when the attempt
    has ended.
    """

    @cached_property
    def remarks(self) -> Remarks:
        return Remarks()

    def on_request(self, request: UpstreamRequest) -> None:
        """Before the upstream call: may rewrite ``request.body``."""

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        """While the reply comes: see what a frame has added. A verdict ends the attempt at once."""
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


class Stage:
    """One of the stages of ``stages.py`` with its settings, shared by all exchanges.

    A stage overrides the methods it needs.
    """

    name = ""  # the label of its faults in ``mlx_stack_stage_faults_total``
    bypass = ""  # the word in X-MLX-Stack-Bypass that leaves the stage out; "": there is none

    def admit(self, exchange: Exchange, start: Start, view: TierView) -> Start:
        """Before the first attempt: return the tier to start on, ``start`` if it may stay so."""
        return start

    def open(self, exchange: Exchange) -> StageState | None:
        """Return the stage's state for one attempt; None: it does nothing there."""
        return None

    def continue_from(self, predecessor: Stage) -> None:
        """Take over what the same stage of earlier settings remembers."""

    def forget(self, session: str | None) -> None:
        """Drop what is remembered of a session. ``session``: its hash; None: of all sessions."""


def _takes_part(stage: Stage, exchange: Exchange) -> bool:
    """Whether the client has not left the stage out."""
    return not stage.bypass or stage.bypass not in exchange.controls.bypass


def first_tier(
    stages: Sequence[Stage], exchange: Exchange, view: TierView, report: FaultReport
) -> Start:
    """Return the tier to start on, as the stages decide from the last one to the first.

    So escalation proposes a tier, then memory pressure and the budgets may choose another. A stage
    that raises is left out.
    """
    start = start_on(exchange.route.first)
    for stage in reversed(stages):
        if _takes_part(stage, exchange):
            try:
                start = stage.admit(exchange, start, view)
            except Exception as error:
                report(stage.name, error)
    return start


class Pipeline:
    """The opened stages of one attempt."""

    __slots__ = ("_opened", "_report", "_states", "_watching")

    def __init__(self, stages: Sequence[Stage], exchange: Exchange, report: FaultReport) -> None:
        self._report = report
        self._states: list[tuple[str, StageState]] = []
        for stage in stages:
            if not _takes_part(stage, exchange):
                continue
            try:
                if (state := stage.open(exchange)) is not None:
                    self._states.append((stage.name, state))
            except Exception as error:
                report(stage.name, error)
        self._opened = self._states  # keeps the stages that are left out later, for their remarks
        # A stage that doesn't watch costs nothing per frame.
        self._watching = [
            (name, state)
            for name, state in self._states
            if type(state).watch is not StageState.watch
        ]

    def on_request(self, request: UpstreamRequest) -> None:
        for name, state in list(self._states):
            body_before = dict(request.body)
            try:
                state.on_request(request)
            except Exception as error:
                request.body.clear()
                request.body.update(body_before)
                self._leave_out(name, state, error)

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        for name, state in self._watching:
            try:
                verdict = state.watch(reply, delta)
            except Exception as error:
                self._leave_out(name, state, error)
                continue
            if verdict is not None:
                return verdict
        return None

    def text_holds(self) -> list[TextHold]:
        """Return the stages' text holds, in the stages' order."""
        return list(filter(None, self._each(lambda state: state.text_hold())))

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
        self._watching = [entry for entry in self._watching if entry[1] is not state]
