"""Sends the question for the loop model (:class:`Inquiry`) once its exchange has ended.

A background task sends the question through the tier's queue, within ``SECONDS`` and within the
budgets of the session and the hour, so the question delays no exchange. If anything goes wrong,
the stage gets None for an answer.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import Any, Final

import orjson
from msgspec.structs import replace

from .. import log
from ..engine.downstream import Downstream
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.outcome import Inquiry, Outcome
from ..engine.request import Request, Route
from ..engine.steps import Deliver, LastStep, Step
from ..engine.verdicts import Failure
from ..escalation.tiers import may_enter_cloud
from ..memory_pressure.pressure import Level
from ..settings import CLOUD_TIER
from ..state.store import Limit, StoreError
from ..telemetry import accounts
from ..token_budget import budgets
from .books import Books
from .driver import Driver
from .services import Services

SECONDS: Final = 120.0  # time limit of a question, the wait in the tier's queue included
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
            controls=replace(exchange.controls, stream="buffered"),
            owner=exchange.request.owner,
            started=asyncio.get_running_loop().time(),
            patience=SECONDS,
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
    services.metrics.count("judge_questions", result)


class QuestionBooks(Books):
    """A question's books: tokens are reserved under every policy, and not waited for.

    So the proxy's own question never takes a session over its budget.
    """

    async def set_aside(self, tier: str, body: Mapping[str, Any]) -> Failure | None:
        limits = self._limits + budgets.tier_limits(self._exchange, tier, self._rules)
        self._attempt_limits = limits
        reserved = limits + self._capped
        tokens = self._exchange.request.prompt_tokens + budgets.most_written(body)
        try:
            if not reserved or await self._reservation.make(reserved, tokens, SECONDS) is None:
                return None
        except StoreError as error:
            accounts.store_failed(self._services, error)
            return Failure("server_error", "the store fails", fault="nobody")
        return Failure("budget_exceeded", "no tokens are left", fault="nobody")

    async def settle_question(self) -> None:
        self._note_attempt()
        amounts = self._unsettled | dict.fromkeys(self._capped, self._cloud_tokens)
        await self._reservation.settle(amounts, self._exchange.tier)

    @property
    def _capped(self) -> tuple[Limit, ...]:
        """The cloud's cap, if the call leaves this machine."""
        services, exchange = self._services, self._exchange
        in_cloud = exchange.route.is_cloud(exchange.tier, services.settings)
        return services.cloud.limits if services.cloud is not None and in_cloud else ()


class _Question(Driver):
    """One question: an exchange with one attempt and no stages, for which no client waits."""

    _open_books = QuestionBooks
    _books: QuestionBooks
    _in_queue = ("judge", "judge")  # all questions together count as one client

    def __init__(
        self, services: Services, exchange: Exchange, inquiry: Inquiry, headers: RawHeaders
    ) -> None:
        alone = copy.copy(services)
        alone.stages = alone.observers = ()
        clock = asyncio.get_running_loop().time
        super().__init__(
            alone,
            exchange,
            headers=headers,
            our_key=True,
            downstream=Downstream(_drop, clock),
            receive=asyncio.Event().wait,
            arrived=clock(),
        )
        self._arrived = None  # the overhead of clients' requests is not measured here
        self._inquiry = inquiry

    async def run(self) -> None:
        """Ask the model, hand its answer to the stage, and count the result."""
        self._limits.start()
        try:
            await self._to_last_step()
        except Exception as error:  # nobody awaits this task, so it logs its own fault
            log.fault("judge_fault", error, request_id=self._exchange.id)
        finally:
            await self._end()
            outcome = self._exchange.delivered
            text = _text_of(outcome)
            readable = self._inquiry.take(text)
            if text is not None:
                result = "answered" if readable else "no_answer"
            else:
                result = _FAILED.get((outcome and outcome.reason) or "", "failed")
            _count(self._services, result)

    async def _decide(self) -> Step:
        return Deliver()  # there is one attempt only

    def _note_call(self, outcome: Outcome, *, answered: bool) -> None:
        tier, figures = outcome.tier, outcome.figures
        accounts.count_tokens(self._services, tier, figures.tokens_in, figures.tokens_out)

    def _note_step(self, step: Step) -> None:
        """The records, and what counts them, are of clients' requests only."""

    async def _close_books(self, outcome: str, step: LastStep | None = None) -> None:
        await self._books.settle_question()


def _text_of(outcome: Outcome | None) -> str | None:
    """Return the text of a question's answer; None: there is none."""
    if outcome is None or outcome.verdict is not None or outcome.reply is None:
        return None
    choice = outcome.reply.choices.get(0)
    return choice.text if choice is not None else None


async def _drop(message: Any) -> None:
    """Nobody reads a question's answer as it comes."""
