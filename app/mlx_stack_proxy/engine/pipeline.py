"""What a stage is, and the pipeline that runs the stages of one attempt in order.

A stage may choose the tier to start on, rewrite the request, watch the reply grow, and mend and
judge the reply at its end.
A fault in a stage must never break a good reply: the pipeline reports the exception, leaves the
stage out for the rest of the attempt, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from ..wire.delta import Delta
from ..wire.reply import Reply
from .exchange import Exchange
from .gate import TextHold
from .outcome import Remarks
from .request import UpstreamRequest
from .steps import Start, start_on
from .tier_view import TierView
from .verdicts import Verdict, severest

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

    hooks: frozenset[str] = frozenset()  # the methods that the stage has of its own

    def __init_subclass__(cls) -> None:
        cls.hooks |= vars(StageState).keys() & vars(cls).keys()

    @cached_property
    def remarks(self) -> Remarks:
        return Remarks()

    def hold_whole(self) -> bool:
        """Whether to hold the whole reply until it is judged; asked first of all."""
        return False

    def text_hold(self) -> TextHold | None:
        """Return what decides how much text may flow while the reply comes; None: all may."""
        return None

    def on_request(self, request: UpstreamRequest) -> None:
        """Before the upstream call: may rewrite ``request.body``."""

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        """While the reply comes: see what a frame has added. A verdict ends the attempt at once."""
        return None

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


def _taking_part(stages: Sequence[Stage], exchange: Exchange) -> Sequence[Stage]:
    """Return the stages that the client has not left out."""
    bypass = exchange.request.controls.bypass
    return [one for one in stages if not one.bypass or one.bypass not in bypass]


def first_tier(
    stages: Sequence[Stage], exchange: Exchange, view: TierView, report: FaultReport
) -> Start:
    """Return the tier to start on, as the stages decide from the last one to the first.

    So escalation proposes a tier, then memory pressure and the budgets may choose another. A stage
    that raises is left out.
    """
    start = start_on(exchange.request.route.first)
    for stage in reversed(_taking_part(stages, exchange)):
        try:
            start = stage.admit(exchange, start, view)
        except Exception as error:
            report(stage.name, error)
    return start


def forget(stages: Sequence[Stage], session: str | None = None) -> None:
    """Drop what the stages remember of a session. ``session``: its hash; None: of all sessions."""
    for stage in stages:
        stage.forget(session)


class Pipeline:
    """The opened stages of one attempt."""

    __slots__ = ("_opened", "_report", "_states", "_watching")

    def __init__(self, stages: Sequence[Stage], exchange: Exchange, report: FaultReport) -> None:
        self._report = report
        self._states: list[tuple[str, StageState]] = []
        for stage in _taking_part(stages, exchange):
            try:
                if (state := stage.open(exchange)) is not None:
                    self._states.append((stage.name, state))
            except Exception as error:
                report(stage.name, error)
        self._opened = self._states  # keeps the stages that are left out later, for their remarks
        self._watching = self._with("watch")

    def on_request(self, request: UpstreamRequest) -> None:
        for name, state in self._with("on_request"):
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
        return self._ask("text_hold")

    def hold_whole(self) -> bool:
        """Whether any stage wants the whole reply held."""
        return bool(self._ask("hold_whole"))

    def is_slow(self, reply: Reply) -> bool:
        """Whether a thread should call :meth:`end`."""
        return bool(self._ask("is_slow", reply))

    def end(self, reply: Reply) -> Verdict | None:
        """Let all stages mend, then judge; return the severest verdict."""
        self._ask("mend", reply)
        return severest(self._ask("judge", reply))

    def _with(self, hook: str) -> list[tuple[str, StageState]]:
        """Return the states that have a hook of their own: no other is called."""
        return [entry for entry in self._states if hook in entry[1].hooks]

    def _ask(self, hook: str, *about: Reply) -> list[Any]:
        """Return what a hook answers, without empty answers; leave out stages that raise."""
        answers = []
        for name, state in self._with(hook):
            try:
                if answer := getattr(state, hook)(*about):
                    answers.append(answer)
            except Exception as error:
                self._leave_out(name, state, error)
        return answers

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
        self._watching = self._with("watch")
