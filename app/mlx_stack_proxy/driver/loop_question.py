"""Sends the question for the loop model (:class:`Inquiry`) once its exchange has ended.

A background task sends the question through the tier's queue, within ``SECONDS`` and within the
budgets of the session and the hour, so the question delays no exchange. If anything goes wrong,
the stage gets None for an answer.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

import orjson

from .. import log
from ..engine.attempt import Attempt
from ..engine.build_request import build
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.outcome import Inquiry
from ..engine.request import Request, Route
from ..engine.spent import Spent, spent_by
from ..engine.upstream import UpstreamError
from ..escalation.tier_queue import QueueTimeout
from ..escalation.tiers import may_enter_cloud
from ..memory_pressure.pressure import Level
from ..settings_cloud import CLOUD_TIER
from ..state.store import Limit, StoreError
from ..telemetry import accounts
from ..token_budget import budgets
from ..token_budget.reservation import Reservation
from .call import UpstreamCall, send, way_to
from .services import Services

SECONDS: Final = 120.0  # time limit of a question, the wait in the tier's queue included
# The queue takes turns between clients; all questions together count as one client.
_IN_QUEUE: Final = "judge"


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
    services.background.start(_Question(services, question, inquiry, headers).run())


def _exchange_of(exchange: Exchange, inquiry: Inquiry) -> Exchange:
    """Make the question an exchange of its own, in the session of ``exchange``."""
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
            id=f"{exchange.id}:judge",
            session=exchange.session,
            route=Route((tier,), direct=exchange.route.direct & {tier}),
            controls=exchange.controls,
            owner=exchange.request.owner,
            started=asyncio.get_running_loop().time(),
        )
    )


def _may_ask(services: Services, exchange: Exchange, tier: str) -> bool:
    """Whether the tier is available, and the transcript may be sent to it."""
    settings = services.settings
    if settings.tiers[tier].local:
        if services.memory.pressure.level is Level.CRITICAL:
            return False  # the memory that is left is for the clients' requests
    elif not may_enter_cloud(exchange.controls.cloud, settings):
        return False
    elif tier == CLOUD_TIER and tier not in exchange.route.direct:
        return False  # there is no key for it
    return tier not in services.tier_states.view().passed_over


def _count(services: Services, result: str) -> None:
    services.metrics.judge_questions.labels(result).inc()


class _Question:
    """One question: an exchange with one attempt and no stages."""

    def __init__(
        self, services: Services, exchange: Exchange, inquiry: Inquiry, headers: RawHeaders
    ) -> None:
        settings = services.settings
        self._services = services
        self._exchange = exchange
        self._inquiry = inquiry
        self._headers = headers
        rules = settings.reliability.token_budget
        tier_limits = budgets.tier_limits(exchange, exchange.tier, rules)
        self._limits = budgets.limits_for(exchange, rules) + tier_limits
        self._capped: tuple[Limit, ...] = ()  # the cloud's cap, if the call leaves this machine
        if services.cloud is not None and exchange.route.is_cloud(exchange.tier, settings):
            self._capped = services.cloud.limits
        self._reservation = Reservation(
            services, exchange.id, exchange.session.hash, exchange.request.agent
        )
        self._attempt = Attempt(
            exchange,
            build(exchange, settings),
            (),
            lambda stage, error: None,  # there are no stages
        )
        self._spent: Spent | None = None
        self._billed = 0  # tokens with cached ones, which a cloud bills too

    async def run(self) -> None:
        """Ask the model, hand its answer to the stage, and count the result."""
        text: str | None = None
        result = "failed"
        try:
            async with asyncio.timeout(SECONDS):
                text, result = await self._within_budget()
        except TimeoutError:
            result = "timed_out"
        except (QueueTimeout, UpstreamError, orjson.JSONDecodeError):
            pass
        except StoreError as error:
            accounts.store_failed(self._services, error)
        except Exception as error:  # nobody awaits this task, so it logs its own fault
            log.fault("judge_fault", error, request_id=self._exchange.id)
        readable = self._inquiry.take(text)
        _count(self._services, result if readable or text is None else "no_answer")

    async def _within_budget(self) -> tuple[str | None, str]:
        """Ask with tokens reserved. Return the answer's text, and the result as a metric's label.

        Tokens are reserved under every budget policy, so that the proxy's own question never takes
        a session over its budget.
        """
        reserved = self._limits + self._capped
        if not reserved:
            return await self._in_turn()
        request = self._exchange.request
        tokens = request.prompt_tokens + budgets.most_written(request.body)
        if await self._reservation.make(reserved, tokens, SECONDS) is not None:
            return None, "no_budget"
        try:
            return await self._in_turn()
        finally:
            limits, spent = self._limits, self._spent
            if spent is not None and spent.estimated:
                limits += (budgets.estimated_in(self._exchange.session.budget_hash),)
            amounts = dict.fromkeys(limits, spent.total if spent is not None else 0)
            amounts |= dict.fromkeys(self._capped, self._billed)
            await self._reservation.settle(amounts, self._exchange.tier)

    async def _in_turn(self) -> tuple[str | None, str]:
        async with self._services.queues.place(self._exchange.tier, _IN_QUEUE, _IN_QUEUE):
            return await self._call()

    async def _call(self) -> tuple[str | None, str]:
        attempt = self._attempt
        content = orjson.dumps(attempt.request.body)
        way = way_to(self._services, self._exchange, self._headers)
        response = await send(self._services, self._exchange, way, content)
        async with aclosing(response):
            try:
                verdict = await UpstreamCall(attempt, self._exchange).read(response)
            finally:
                if response.status < 400:
                    self._count_tokens()
        choice = attempt.reply.choices.get(0)
        if verdict is not None or choice is None:
            return None, "failed"
        return choice.text, "answered"

    def _count_tokens(self) -> None:
        services, request, reply = self._services, self._exchange.request, self._attempt.reply
        count_cached = services.settings.reliability.token_budget.count_cached_prompt
        spent = spent_by(request, reply, count_cached=count_cached)
        self._billed = spent_by(request, reply, count_cached=True).total
        accounts.count_tokens(services, self._exchange.tier, spent)
        self._spent = spent
