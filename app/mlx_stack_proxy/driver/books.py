"""One exchange's accounts with the session store: its session, its token budgets, the cloud's cap.

:meth:`Books.open` reads the session and its budgets' counts when the exchange starts, and
:meth:`Books.close` writes both at its end. Under ``policy: hard_stop`` the books also reserve
tokens before each attempt, and settle the previous attempt first, because other exchanges need the
exact count by then. Under the other policies one settlement at the end suffices.

The books are closed before the client gets the last byte, so that the count includes every reply
that a client has seen finished. A failing store stops no exchange, except under ``hard_stop``,
which refuses an attempt while the count is unknown.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import cached_property
from typing import Any

from ..engine.attempt import Attempt
from ..engine.exchange import Exchange
from ..engine.spent import TokensUsed
from ..engine.verdicts import Failure, Verdict
from ..escalation.tiers import named_by_client
from ..settings import PASS_THROUGH
from ..state.store import Limit, SessionState, Settlement, Sticky, StoreError
from ..telemetry import accounts
from ..token_budget import budgets
from ..token_budget.reservation import Reservation
from ..wire.usage import window_of
from .services import Services


class Books:
    """The books of one exchange: the driver opens and closes them, each attempt reserves here."""

    def __init__(self, services: Services, exchange: Exchange) -> None:
        self._services = services
        self._exchange = exchange
        self._rules = services.settings.reliability.token_budget
        self._limits = budgets.limits_for(exchange, self._rules)
        self._policy = budgets.policy_for(exchange, self._rules)
        self._cloud_tokens = 0  # the attempt's tokens in the cloud
        # The used tokens of each budget, as this exchange last read them.
        self._used_by_scope: dict[str, int] = {}
        self._attempt_limits = self._limits  # `_limits` and those of the attempt's tier
        # The attempt's tokens; None: `_note_attempt` has booked them, or no call has ended.
        self._attempt_spent: TokensUsed | None = None
        self._unsettled: dict[Limit, int] = {}  # booked, but not yet settled in the store
        self.sticky: str | None = None  # the tier that the session was escalated to
        # Cloud tiers for which the hourly cap had too few tokens left.
        self.capped_tiers: frozenset[str] = frozenset()
        self.warning = ""  # for `X-MLX-Stack-Budget-Warning`, e.g. "86%"

    @property
    def closed_tiers(self) -> frozenset[str]:
        """The tiers that the exchange may not use now, for lack of tokens."""
        return self.spent_tiers | self.capped_tiers

    @property
    def spent_tiers(self) -> frozenset[str]:
        """The tiers whose own budget is used up."""
        return budgets.spent_tiers(self._exchange, self._used_by_scope, self._rules)

    @cached_property
    def _reservation(self) -> Reservation:
        """The reservation of the budgets; created when tokens are first reserved or settled."""
        return self._new_reservation()

    @property
    def _reserves(self) -> bool:
        return "_reservation" in vars(self)

    @cached_property
    def _cloud_reservation(self) -> Reservation:
        """The reservation of the cloud's cap; created only if a cloud is configured."""
        return self._new_reservation()

    def _new_reservation(self) -> Reservation:
        request = self._exchange.request
        return Reservation(self._services, request.id, request.session.hash, request.agent)

    # At its start

    async def open(self) -> SessionState | None:
        """Read the session and its budgets' usage; return None if the store fails."""
        exchange, services, limits = self._exchange, self._services, self._limits
        if limits and self._rules.per_tier:
            for tier in (*exchange.request.route.tiers, *exchange.request.route.cheaper):
                limits += budgets.tier_limits(exchange, tier, self._rules)
        session, now = exchange.request.session.hash, services.wall_clock()
        try:
            state = await services.store.load(session, now, limits)
        except StoreError as error:
            accounts.store_failed(services, error)
            return None
        self._used_by_scope = dict(state.counts)
        entry = state.sticky.get(exchange.request.model)
        self.sticky = entry.tier if entry is not None else None
        return state

    @property
    def downgrades(self) -> bool:
        """Whether a used-up budget sends the exchange to a cheaper tier (``policy: escalate``)."""
        return self._policy == "escalate"

    @property
    def over_budget(self) -> bool:
        """Whether a budget of the session is used up, on any tier, so a cheaper one is needed."""
        return self.downgrades and budgets.share_used(self._limits, self._used_by_scope) >= 1.0

    # While it runs

    @property
    def waited(self) -> float:
        """Seconds that this exchange has waited for other exchanges' reservations."""
        return self._reservation.waited if self._reserves else 0.0

    async def reserve_tokens(self, tier: str, body: Mapping[str, Any]) -> Failure | None:
        """Reserve the tokens that an attempt may use; return the refusal if they don't fit.

        Under ``hard_stop`` this settles the earlier attempt first, so that an exchange never holds
        tokens for more than one attempt. Under the other policies it reserves nothing, and
        :meth:`close` settles all attempts at once.
        """
        if not self._limits:
            return None
        self._note_attempt()
        if self._policy == "hard_stop":
            await self._settle()
        tier_limits = budgets.tier_limits(self._exchange, tier, self._rules)
        self._attempt_limits = limits = self._limits + tier_limits
        share = budgets.share_used(limits, self._used_by_scope)
        self.warning = f"{int(share * 100)}%" if share >= self._rules.warn_at else ""
        if self._policy != "hard_stop":
            return None
        settings = self._services.settings
        tier_settings = settings.tiers.get(tier, PASS_THROUGH)
        window = window_of(settings.tiers.get(tier), settings)
        window = max(window, self._exchange.request.prompt_tokens)
        return await self._reservation.admit(
            limits,
            budgets.most_read(body, window) + budgets.most_written(body),
            tier,
            least=budgets.least_left(body),
            own=tier_limits,
            seconds=tier_settings.queue_timeout + tier_settings.total_timeout,
            patience=tier_settings.queue_timeout,
        )

    async def reserve_from_cloud_cap(self, tier: str) -> Failure | None:
        """Reserve a call's possible tokens from the cloud's cap; return the refusal, if any.

        A refused tier joins :attr:`capped_tiers`. A tier on this machine, or one that the client
        names itself, needs no reservation. If the store fails, the call is allowed without one.
        """
        exchange, services = self._exchange, self._services
        cloud, settings = services.cloud, services.settings
        if cloud is None or not exchange.request.route.is_cloud(tier, settings):
            return None
        request = exchange.request
        if named_by_client(request.model, request.controls.tier, settings) == tier:
            return None
        tier_settings = settings.tiers[tier]
        max_output = budgets.most_asked(exchange, tier, self._rules)
        written = budgets.most_written({**request.body, "max_tokens": max_output})
        tokens = request.prompt_tokens + written
        seconds = tier_settings.queue_timeout + tier_settings.total_timeout
        try:
            refused = await self._cloud_reservation.make(cloud.limits, tokens, seconds)
        except StoreError as error:
            accounts.store_failed(services, error)
            return None
        if refused is None:
            return None
        self.capped_tiers |= {tier}
        return self._cloud_reservation.refusal_of(refused, tier)

    async def settle_cloud(self) -> None:
        """Settle the attempt's use of the cloud's cap; 0 tokens if no call was made."""
        cloud = self._services.cloud
        if cloud is None:
            return
        used, self._cloud_tokens = self._cloud_tokens, 0
        await self._cloud_reservation.settle(dict.fromkeys(cloud.limits, used), self._exchange.tier)

    def count(self, attempt: Attempt, verdict: Verdict | None) -> TokensUsed | None:
        """Return the tokens that an attempt's call used, and keep them to be booked."""
        spent = attempt.spent(verdict, count_cached=self._rules.count_cached_prompt)
        if spent is None:
            return None
        self._attempt_spent, exchange = spent, self._exchange
        if exchange.request.route.is_cloud(exchange.tier, self._services.settings):
            # The cap also counts calls to a cloud tier that the client named, and cached prompt
            # tokens, which a cloud bills, too.
            billed = attempt.spent(verdict, count_cached=True)
            self._cloud_tokens = billed.total if billed is not None else 0
        return spent

    def _note_attempt(self) -> None:
        """Book the finished attempt's tokens for the next settlement, and count them as used.

        An attempt without tokens is booked, too, if a reservation has to be settled.
        """
        spent, self._attempt_spent = self._attempt_spent, None
        held = self._reserves and self._reservation.held
        if not self._limits or (spent is None and not held):
            return
        limits = self._attempt_limits
        if spent is not None and spent.estimated:
            limits += (budgets.estimated_in(self._exchange.request.session.budget_hash),)
        tokens = spent.total if spent is not None else 0
        amounts, used = self._unsettled, self._used_by_scope
        for limit in limits:
            amounts[limit] = amounts.get(limit, 0) + tokens
            used[limit.scope] = used.get(limit.scope, 0) + tokens

    async def _settle(self) -> None:
        amounts, self._unsettled = self._unsettled, {}
        tokens_before = await self._reservation.settle(amounts, self._exchange.tier)
        used = {limit.scope: tokens for limit, tokens in amounts.items()}
        self._used_by_scope |= {
            scope: tokens + used[scope] for scope, tokens in tokens_before.items()
        }

    # At its end

    async def close(self, *, delivered: bool) -> None:
        """Settle all used tokens and write the session. Raises nothing.

        The journal's pending entries are written in the same transaction. ``delivered``: the client
        gets a reply, so that an escalation may become sticky.
        """
        try:
            await self.settle_cloud()
            await self._write(delivered)
            await self._services.journal.written()
        except StoreError as error:
            accounts.store_failed(self._services, error)
        except Exception as error:  # a fault here must not hold back a good reply
            accounts.stage_failed(self._services, "books", error)

    async def _write(self, delivered: bool) -> None:
        self._note_attempt()
        if not self._exchange.attempts:  # refused before any call: the session stays untouched
            await self._settle()
            return
        settlement = self._reservation.settlement(self._unsettled)
        tokens_before = await self._commit(settlement, delivered)
        if settlement is not None:
            self._reservation.note_thresholds(settlement, tokens_before, self._exchange.tier)

    def _commit(
        self, settlement: Settlement | None, delivered: bool
    ) -> Awaitable[Mapping[str, int]]:
        exchange = self._exchange
        now = self._services.wall_clock()
        sticky = {}
        if exchange.is_sticky and delivered:
            seconds = self._services.settings.reliability.escalation.sticky_seconds
            if seconds:
                sticky[exchange.request.model] = Sticky(exchange.tier, now + seconds)
        similar = self._services.settings.reliability.loop_detection.similar_replies
        outcome = exchange.delivered if delivered and similar is not None else None
        change = self._services.journal.take(
            session=exchange.request.session.hash,
            turns=1,
            tier=exchange.tier,
            sticky=sticky,
            agent=exchange.request.agent,
            request_id=exchange.request.id,
            settlement=settlement,
            reply=outcome.remarks.reply_digest if outcome is not None else "",
            replies_kept=similar.window if similar is not None else 0,
        )
        return self._services.store.write(change, now)
