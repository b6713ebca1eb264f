"""Sends the question for the loop model (:class:`Inquiry`) after its exchange has ended.

A background task sends it through the tier's queue, within ``SECONDS`` and the budgets of the
session and the hour, so the question delays no exchange. If anything goes wrong, the stage gets
None as the answer.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final

import orjson
from msgspec.structs import replace

from .. import log
from ..engine.attempt import Attempt
from ..engine.build_request import build
from ..engine.downstream import Downstream
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.outcome import Inquiry
from ..engine.request import Request, Route
from ..engine.spent import TokensUsed, tokens_used_by
from ..engine.verdicts import Failure, Verdict
from ..escalation.tiers import may_enter_cloud
from ..memory_pressure.pressure import Level
from ..settings import CLOUD_TIER
from ..state.store import StoreError
from ..telemetry import accounts
from ..token_budget import budgets
from ..token_budget.reservation import Reservation
from .answer import Answer
from .calls import Calls
from .live_rules import after_waiting
from .services import Services
from .time_limits import TimeLimits

SECONDS: Final = 120.0  # time limit of a question, including the wait in the tier's queue
# The results of questions that failed, by the attempt's reason.
_FAILED: Final = {"timeout": "timed_out", "budget_exceeded": "no_budget"}


def ask(services: Services, exchange: Exchange, headers: RawHeaders) -> None:
    """Start the question that a stage left on a finished exchange, and return at once.

    ``headers``: the request headers that went upstream with the exchange.
    """
    inquiry = exchange.inquiry
    if inquiry is None or services.life.stopping:
        return
    if services.background.is_full or not _may_ask(services, exchange, inquiry.tier):
        _count(services, "left_out")
        return
    question = _exchange_of(exchange, inquiry)

    async def asking() -> None:
        await _Question(services, question, inquiry, headers).run()  # it watches its own task

    services.background.start(asking())


def _exchange_of(exchange: Exchange, inquiry: Inquiry) -> Exchange:
    """Make an exchange for the question, in the session of ``exchange``."""
    tier = inquiry.tier
    body = {**inquiry.body, "model": tier}
    size = len(orjson.dumps(body))
    return Exchange(
        Request(
            body,
            tier,
            stream=True,
            include_usage=True,
            size=size,
            id=f"{exchange.request.id}:judge",
            session=exchange.request.session,
            route=Route((tier,), direct=exchange.request.route.direct & {tier}),
            controls=replace(exchange.request.controls, stream="buffered"),
            owner=exchange.request.owner,
            agent=exchange.request.agent,
            started=asyncio.get_running_loop().time(),
            patience=SECONDS,
        )
    )


def _may_ask(services: Services, exchange: Exchange, tier: str) -> bool:
    """Whether the tier is available, and the transcript may be sent to it."""
    settings = services.settings
    if settings.tiers[tier].local:
        if services.memory.pressure.level is Level.CRITICAL:
            return False  # the remaining memory is for the clients' requests
    elif not may_enter_cloud(exchange.request.controls.cloud, settings):
        return False
    elif tier == CLOUD_TIER and tier not in exchange.request.route.direct:
        return False  # the cloud's key is missing
    return tier not in services.tier_states.view().passed_over


def _count(services: Services, result: str) -> None:
    services.metrics.count("judge_questions", result)


class _Question:
    """One question: an exchange with one attempt and no stages, for which no client waits."""

    def __init__(
        self, services: Services, exchange: Exchange, inquiry: Inquiry, headers: RawHeaders
    ) -> None:
        settings = services.settings
        self._services, self._exchange, self._inquiry = services, exchange, inquiry
        request = build(exchange, settings, services.tier_states.view())
        self._attempt = Attempt(exchange, request, (), partial(accounts.stage_failed, services))
        clock = self._clock = asyncio.get_running_loop().time
        answer = Answer(exchange, Downstream(_drop, clock), services.memory, metadata=False)
        self._limits = TimeLimits(
            asyncio.Event().wait, services, exchange, answer, lambda *_: False
        )
        self._calls = Calls(services, exchange, answer, self._limits, headers=headers, our_key=True)
        rules, tier = settings.reliability.token_budget, exchange.tier
        # The session's and the tier's; and the cloud's cap, if the call leaves this machine.
        self._budgets = budgets.limits_for(exchange, rules) + budgets.tier_limits(
            exchange, tier, rules
        )
        cloud, in_cloud = services.cloud, exchange.request.route.is_cloud(tier, settings)
        self._cap = cloud.limits if cloud is not None and in_cloud else ()
        self._reservation = Reservation(
            services, exchange.request.id, exchange.request.session.hash
        )
        self._spent: TokensUsed | None = None  # the call's tokens; None: no server took a call

    async def run(self) -> None:
        """Ask the model, pass its answer to the stage, and count the result."""
        attempt, outcome = self._attempt, None
        self._limits.start()
        try:
            verdict = await self._calls.run(attempt, self._call_in_turn)
            rules = self._services.settings.reliability.token_budget
            self._spent = attempt.spent(verdict, count_cached=rules.count_cached_prompt)
            outcome = attempt.outcome(verdict, self._spent, self._clock())
            self._calls.note_end(attempt, outcome)
        except Exception as error:  # nothing awaits this task, so it logs its own fault
            log.fault("judge_fault", error, request_id=self._exchange.request.id)
        finally:
            self._limits.stop()
            if outcome is None:
                self._calls.note_end(attempt, None)
            await self._calls.close()
            await self._settle()
            choice, text = attempt.reply.choices.get(0), None
            if choice is not None and outcome is not None and outcome.verdict is None:
                text = choice.text
            readable = self._inquiry.take(text)
            if text is not None:
                result = "answered" if readable else "no_answer"
            else:
                result = _FAILED.get((outcome and outcome.reason) or "", "failed")
            _count(self._services, result)

    async def _call_in_turn(self) -> Verdict | None:
        """Call once the tier has a free place; all questions together count as one client."""
        if refusal := await self._reserve():
            return refusal
        queued_at = self._clock()
        async with self._services.queues.place(self._attempt.tier, "judge", "judge"):
            now = self._clock()
            self._attempt.waited = now - queued_at
            services, view = self._services, self._services.tier_states.view()
            if failure := after_waiting(self._exchange, services.settings, view, now):
                return failure
            return await self._calls.make(self._attempt)

    async def _reserve(self) -> Failure | None:
        """Reserve the tokens that the question may use, under any policy."""
        limits, body = self._budgets + self._cap, self._attempt.request.body
        tokens = self._exchange.request.prompt_tokens + budgets.most_written(body)
        try:
            if not limits or await self._reservation.make(limits, tokens, SECONDS) is None:
                return None
        except StoreError as error:
            accounts.store_failed(self._services, error)
            return Failure("server_error", "the store fails", fault="nobody")
        return Failure("budget_exceeded", "no tokens are left", fault="nobody")

    async def _settle(self) -> None:
        """Count and settle the tokens that the question has used."""
        spent, tier, limits = self._spent, self._exchange.tier, self._budgets
        if spent is not None:
            agent = self._exchange.request.agent
            accounts.count_question(self._services, agent, tier, spent.prompt, spent.output)
            if spent.estimated and limits:
                limits += (budgets.estimated_in(self._exchange.request.session.budget_hash),)
        amounts = dict.fromkeys(limits, spent.total if spent is not None else 0)
        if spent is not None and self._cap:  # a cloud bills cached tokens, too
            spent = tokens_used_by(self._exchange.request, self._attempt.reply, count_cached=True)
        amounts |= dict.fromkeys(self._cap, spent.total if spent is not None else 0)
        await self._reservation.settle(amounts, tier)


async def _drop(message: Any) -> None:
    """Discard a question's answer: no client reads it."""
