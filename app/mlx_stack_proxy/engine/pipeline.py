"""What a stage is, and the pipeline that runs the stages of one attempt in order.

A stage may choose the first tier, rewrite the request, watch the reply grow, and mend and judge the
reply at its end. A fault in a stage must never break a good reply: the pipeline reports the
exception, drops the stage for the rest of the attempt, and goes on.
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
    :meth:`judge`, when all stages have mended and all calls are known, it may only remove text and
    calls from the reply, with the reason and the new finish_reason in their place (loop detection
    does so under ``on_break: stop``). Headers, incidents and questions go into :attr:`remarks`,
    which the driver reads for the response headers and again when the attempt has ended.
    """

    hooks: frozenset[str] = frozenset()  # the methods that the stage overrides

    def __init_subclass__(cls) -> None:
        cls.hooks |= vars(StageState).keys() & vars(cls).keys()

    @cached_property
    def remarks(self) -> Remarks:
        return Remarks()

    def hold_whole(self) -> bool:
        """Whether to hold the whole reply until it is judged; called first."""
        return False

    def text_hold(self) -> TextHold | None:
        """Return what decides how much text may flow during the reply; None: all of it."""
        return None

    def on_request(self, request: UpstreamRequest) -> None:
        """Before the upstream call: may rewrite ``request.body``."""

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        """During the reply: see what a frame has added. A verdict ends the attempt at once."""
        return None

    def is_slow(self, reply: Reply) -> bool:
        """Whether mending and judging this reply would block the event loop, even if it is short.

        If so, :meth:`mend` and :meth:`judge` run in a thread, as they do for a long reply.
        """
        return False

    def mend(self, reply: Reply) -> None:
        """Before any stage judges: repair choices and add them to ``reply.mended``."""

    def judge(self, reply: Reply) -> Verdict | None:
        """After all stages have mended: judge; add changed choices to ``reply.mended``."""
        return None


class Stage:
    """One of the stages of ``stages.py`` with its settings, shared by all exchanges.

    A stage overrides the methods it needs.
    """

    name = ""  # the label of its faults in ``mlx_stack_stage_faults_total``
    bypass = ""  # the word in X-MLX-Stack-Bypass that disables the stage; "": there is none

    def admit(self, exchange: Exchange, start: Start, view: TierView) -> Start:
        """Before the first attempt: return the tier to start on, ``start`` if the stage agrees."""
        return start

    def open(self, exchange: Exchange) -> StageState | None:
        """Return the stage's state for one attempt; None: it does nothing in it."""
        return None

    def continue_from(self, predecessor: Stage) -> None:
        """Take over the memory of the same stage with earlier settings."""

    def forget(self, session: str | None) -> None:
        """Forget a session. ``session``: its hash; None: all sessions."""


def _not_bypassed(stages: Sequence[Stage], exchange: Exchange) -> Sequence[Stage]:
    """Return the stages that the client does not bypass."""
    bypass = exchange.request.controls.bypass
    return [one for one in stages if not one.bypass or one.bypass not in bypass]


def first_tier(
    stages: Sequence[Stage], exchange: Exchange, view: TierView, report: FaultReport
) -> Start:
    """Return the tier to start on; the stages decide in reverse order.

    So escalation proposes a tier, then memory pressure and the budgets may choose another. A stage
    that raises is dropped.
    """
    start = start_on(exchange.request.route.first)
    for stage in reversed(_not_bypassed(stages, exchange)):
        try:
            start = stage.admit(exchange, start, view)
        except Exception as error:
            report(stage.name, error)
    return start


def forget(stages: Sequence[Stage], session: str | None = None) -> None:
    """Make the stages forget a session. ``session``: its hash; None: all sessions."""
    for stage in stages:
        stage.forget(session)


class Pipeline:
    """The opened stages of one attempt."""

    __slots__ = ("_opened", "_report", "_states", "_watching")

    def __init__(self, stages: Sequence[Stage], exchange: Exchange, report: FaultReport) -> None:
        self._report = report
        self._states: list[tuple[str, StageState]] = []
        for stage in _not_bypassed(stages, exchange):
            try:
                if (state := stage.open(exchange)) is not None:
                    self._states.append((stage.name, state))
            except Exception as error:
                report(stage.name, error)
        self._opened = self._states  # includes stages that are dropped later, whose remarks count
        self._watching = self._overriding("watch")

    def on_request(self, request: UpstreamRequest) -> None:
        for name, state in self._overriding("on_request"):
            body_before = dict(request.body)
            try:
                state.on_request(request)
            except Exception as error:
                request.body.clear()
                request.body.update(body_before)
                self._drop(name, state, error)

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        for name, state in self._watching:
            try:
                verdict = state.watch(reply, delta)
            except Exception as error:
                self._drop(name, state, error)
                continue
            if verdict is not None:
                return verdict
        return None

    def text_holds(self) -> list[TextHold]:
        """Return the stages' text holds, in order."""
        return self._call_all("text_hold")

    def hold_whole(self) -> bool:
        """Whether any stage wants the whole reply held."""
        return bool(self._call_all("hold_whole"))

    def is_slow(self, reply: Reply) -> bool:
        """Whether to call :meth:`end` in a thread."""
        return bool(self._call_all("is_slow", reply))

    def end(self, reply: Reply) -> Verdict | None:
        """Let all stages mend, then judge; return the severest verdict."""
        self._call_all("mend", reply)
        return severest(self._call_all("judge", reply))

    def _overriding(self, hook: str) -> list[tuple[str, StageState]]:
        """Return the states that override a hook; the others are not called."""
        return [entry for entry in self._states if hook in entry[1].hooks]

    def _call_all(self, hook: str, *about: Reply) -> list[Any]:
        """Return a hook's results, without empty ones; drop stages that raise."""
        answers = []
        for name, state in self._overriding(hook):
            try:
                if answer := getattr(state, hook)(*about):
                    answers.append(answer)
            except Exception as error:
                self._drop(name, state, error)
        return answers

    def remarks(self) -> Remarks:
        """Join the remarks of all opened stages."""
        remarks = Remarks()
        for _, state in self._opened:
            if "remarks" in vars(state):
                remarks.add(state.remarks)
        return remarks

    def _drop(self, name: str, state: StageState, error: Exception) -> None:
        self._report(name, error)
        self._states = [entry for entry in self._states if entry[1] is not state]
        self._watching = self._overriding("watch")
