"""The one loop over an exchange's attempts: the driver, the judge's question and ``replay`` run it.

Each attempt is begun, called, judged and noted; then the next step is decided. Only a course makes
attempts, and only it appends to the exchange's outcomes and steps. It waits for nothing itself: the
driver (``driver.py``) calls LiteLLM, ``replay`` plays what was recorded.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..engine.attempt import Attempt
from ..engine.build_request import build
from ..engine.exchange import Exchange
from ..engine.outcome import Outcome
from ..engine.pipeline import FaultReport, Stage
from ..engine.steps import LastStep, Move, Retry, Step
from ..engine.tier_view import TierView
from ..engine.verdicts import Cut, Verdict, is_doubt, reason_of
from ..settings import Settings


class Course:
    """Runs the attempts of one exchange. A subclass makes the calls, and decides."""

    def __init__(
        self,
        exchange: Exchange,
        settings: Settings,
        stages: Sequence[Stage],
        report: FaultReport,  # takes the name of a stage that raised, and its error
    ) -> None:
        self._exchange = exchange
        self._settings = settings
        self._stages = stages
        self._report_fault = report
        self._doubted_attempt: Attempt | None = None  # its reply may still be delivered

    async def _to_last_step(self) -> LastStep:
        """Make attempts; return the step that ends the exchange."""
        step: Step | None = None
        while True:
            attempt = self._begin_attempt()
            verdict = attempt.on_request()
            if verdict is None:
                verdict = await self._make(attempt, step)
                if verdict is None or isinstance(verdict, Cut):
                    verdict = await self._judge(attempt)
            self._end_attempt(attempt, verdict)
            step = await self._decide()
            self._exchange.steps.append(step)
            self._note_step(step)
            if not isinstance(step, (Retry, Move)):
                return step
            if is_doubt(verdict):
                self._doubted_attempt = attempt

    def _begin_attempt(self) -> Attempt:
        request = build(self._exchange, self._settings, self._view())
        return Attempt(self._exchange, request, self._stages, self._report_fault)

    def _view(self) -> TierView:
        """Return what is known of the tiers."""
        return TierView()

    async def _make(self, attempt: Attempt, step: Step | None) -> Verdict | None:
        """Make an attempt's call and read its reply; return what ended it early, None: its end.

        ``step``: led to the attempt; None: it is the first.
        """
        raise NotImplementedError

    async def _judge(self, attempt: Attempt) -> Verdict | None:
        """Let the stages mend and judge the reply."""
        return attempt.settle()

    def _end_attempt(self, attempt: Attempt, verdict: Verdict | None) -> None:
        """Append the outcome of an attempt that ended."""
        tier, reason = attempt.request.tier, reason_of(verdict)
        outcome = Outcome(tier, verdict, reason, remarks=attempt.remarks(), reply=attempt.reply)
        self._exchange.outcomes.append(outcome)

    async def _decide(self) -> Step:
        """Return the step that follows the exchange's last outcome."""
        raise NotImplementedError

    def _note_step(self, step: Step) -> None:
        """Note the step that was appended to the exchange."""
