"""A session's books for one exchange: read at its start, closed at its end.

In between, under ``hard_stop``, tokens are set aside for each attempt, and counted when another
follows: only then does anybody need to know before the end.

They are closed before the client has the last byte: what a client has seen finished is counted.
A store that fails stops nothing, but where ``policy: hard_stop`` needs the truth.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from functools import cached_property
from typing import Any

from ..engine.exchange import Exchange
from ..engine.services import Services
from ..engine.verdicts import Rejected
from ..escalation.tiers import named_by_client
from ..settings import PASS_THROUGH
from ..state.hourly import Deltas
from ..state.store import Change, Limit, SessionState, Settlement, Sticky, StoreError
from ..telemetry import accounts
from ..wire.reply import Reply
from . import budgets
from .budgets import Spent
from .prompt_costs import Measured, measured
from .reservation import Reservation, budgets_unreadable


class Books:
    """One exchange's.

    ``sticky``: the tier its session was escalated to, once :meth:`open` ran. ``spent_tiers``: those
    whose own budget is used up, so that another is to take the exchange. ``capped_tiers``: those of
    the cloud that the hour's cap has no more tokens for. ``warning``: for
    ``X-MLX-Stack-Budget-Warning``.
    """

    def __init__(self, services: Services, exchange: Exchange) -> None:
        self._services = services
        self._exchange = exchange
        self._rules = services.settings.reliability.token_budget
        self._limits = budgets.limits_for(exchange, self._rules)
        self._policy = budgets.policy_for(exchange, self._rules)
        self._reservation = self._new_reservation()
        self._in_cloud = 0  # tokens that its attempt has used there
        self._used: dict[str, int] = {}  # tokens by scope, as far as it is known here
        self._here = self._limits  # with those of the tier that runs now
        self._spent: Spent | None = None  # what its attempt has used, as long as it isn't settled
        self._amounts: dict[Limit, int] = {}  # what is to be settled
        self._prompt: Measured | None = None  # the attempt's, where its cost matters before
        self.sticky: str | None = None
        self.spent_tiers: frozenset[str] = frozenset()
        self.capped_tiers: frozenset[str] = frozenset()
        self.warning = ""

    @property
    def closed_tiers(self) -> frozenset[str]:
        """The tiers that the exchange may not enter now."""
        return self.spent_tiers | self.capped_tiers

    @cached_property
    def _of_cap(self) -> Reservation:
        """Of the cloud's cap: only where there is a cloud."""
        return self._new_reservation()

    def _new_reservation(self) -> Reservation:
        one = self._exchange
        return Reservation(self._services, one.id, one.session.hash, one.request.agent)

    # At its start

    async def open(self) -> SessionState | None:
        """Read the session, and what is used of its budgets; None where the store fails."""
        try:
            state = await self._load()
        except StoreError as error:
            accounts.store_failed(self._services, error)
            return None
        self._used = dict(state.counts)
        entry = state.sticky.get(self._exchange.request.model)
        self.sticky = entry.tier if entry is not None else None
        self._note_spent_tiers()
        return state

    def _load(self) -> Awaitable[SessionState]:
        exchange, services = self._exchange, self._services
        limits = self._limits
        if limits and self._rules.per_tier:
            for tier in (*exchange.route.tiers, *exchange.route.cheaper):
                limits += budgets.tier_limits(exchange, tier, self._rules)
        return services.store.load(exchange.session.hash, services.wall_clock(), limits)

    def _note_spent_tiers(self) -> None:
        if not self._rules.per_tier:
            return
        self.spent_tiers = budgets.spent_tiers(self._exchange, self._used, self._rules)

    def downgrades(self, tier: str) -> bool:
        """Whether the session is to go on with a cheaper tier than this (``policy: escalate``)."""
        if self._policy != "escalate":
            return False
        over = budgets.share_used(self._limits, self._used) >= 1.0
        return over or tier in self.spent_tiers

    # While it runs

    @property
    def waited(self) -> float:
        """Seconds that were spent on waiting for others' reservations."""
        return self._reservation.waited

    async def set_aside(self, tier: str, body: Mapping[str, Any]) -> Rejected | None:
        """Set aside what an attempt may use; the refusal, if there is no room for it.

        Under ``hard_stop`` what the one before has used is settled: no exchange ever holds more
        than one attempt. Else nothing is held, and all is settled in one, at the end.
        """
        if not self._limits:
            return None
        self._note_attempt()
        if self._policy == "hard_stop":
            await self._settle()
        own = budgets.tier_limits(self._exchange, tier, self._rules)
        self._here = limits = self._limits + own
        self._warn(limits)
        if self._policy != "hard_stop":
            return None
        known = self._services.settings.tiers.get(tier, PASS_THROUGH)
        self._prompt = prompt = measured(body)
        session = self._exchange.session.hash
        most = self._services.prompt_costs.most(tier, session, prompt)
        try:
            found = await self._reservation.make(
                limits,
                most + budgets.most_written(body),
                known.queue_timeout + known.total_timeout,
                partial=True,
                patience=known.queue_timeout,
            )
        except StoreError as error:
            accounts.store_failed(self._services, error)
            return Rejected(budgets_unreadable())
        if found is None:
            return None
        return self._reservation.refusal_of(found, tier, tier_only=found.limit in own)

    async def set_aside_for_cloud(self, tier: str) -> Rejected | None:
        """Set aside of the cloud's cap what a call on a tier may use; the refusal, if it can't.

        Then the tier is one of the ``capped_tiers``. Nothing is set aside for a tier of this
        machine, and for one that the client names itself.
        """
        exchange, services = self._exchange, self._services
        cloud, settings = services.cloud, services.settings
        if cloud is None or not exchange.route.is_cloud(tier, settings):
            return None
        if named_by_client(exchange.request.model, exchange.controls.tier, settings) == tier:
            return None
        known = settings.tiers[tier]
        most = budgets.most_asked(exchange, tier, self._rules)
        tokens = budgets.most_used({**exchange.request.body, "max_tokens": most})
        seconds = known.queue_timeout + known.total_timeout
        try:
            found = await self._of_cap.make(cloud.limits, tokens, seconds)
        except StoreError as error:
            accounts.store_failed(services, error)
            return None
        if found is None:
            return None
        self.capped_tiers |= {tier}
        return self._of_cap.refusal_of(found, tier)

    async def settle_cloud(self) -> None:
        """The attempt is over, if it was made at all: what it used in the cloud is settled."""
        cloud = self._services.cloud
        if cloud is None:
            return
        used, self._in_cloud = self._in_cloud, 0
        try:
            await self._of_cap.settle(dict.fromkeys(cloud.limits, used), self._exchange.tier)
        except StoreError as error:
            accounts.store_failed(self._services, error)

    def _warn(self, limits: tuple[Limit, ...]) -> None:
        share = budgets.share_used(limits, self._used)
        self.warning = f"{int(share * 100)}%" if share >= self._rules.warn_at else ""

    def count(self, status: int | None, reply: Reply) -> Spent | None:
        """Take what an attempt has used; None where upstream refused to begin."""
        if status is not None and status >= 400:
            return None
        exchange = self._exchange
        tier = exchange.tier
        if self._prompt is not None and reply.usage is not None:
            self._services.prompt_costs.take(
                tier, exchange.session.hash, self._prompt, reply.usage.prompt_tokens
            )
        self._spent = budgets.spent_by(
            exchange.request, reply, count_cached=self._rules.count_cached_prompt
        )
        if exchange.route.is_cloud(tier, self._services.settings):
            # Whoever asked for it; and a cloud bills what it has cached, too.
            whole = budgets.spent_by(exchange.request, reply, count_cached=True)
            self._in_cloud = whole.total
        return self._spent

    def _note_attempt(self) -> None:
        """What the attempt before has used is known here, and still to be settled.

        Nothing, where it used nothing and nothing was set aside for it.
        """
        spent, self._spent = self._spent, None
        if not self._limits or (spent is None and not self._reservation.held):
            return
        limits = self._here
        if spent is not None and spent.estimated:
            limits += (budgets.estimated_in(self._exchange.session.budget_hash),)
        tokens = spent.total if spent is not None else 0
        amounts, used = self._amounts, self._used
        for limit in limits:
            amounts[limit] = amounts.get(limit, 0) + tokens
            used[limit.scope] = used.get(limit.scope, 0) + tokens
        self._note_spent_tiers()

    async def _settle(self) -> None:
        amounts, self._amounts = self._amounts, {}
        try:
            before = await self._reservation.settle(amounts, self._exchange.tier)
        except StoreError as error:
            accounts.store_failed(self._services, error)
            return
        used = {limit.scope: tokens for limit, tokens in amounts.items()}
        self._used |= {scope: tokens + used[scope] for scope, tokens in before.items()}
        self._note_spent_tiers()

    # At its end

    async def close(self, counts: Deltas, *, delivered: bool) -> None:
        """Settle what was spent and write the session.

        ``counts``: what the exchange adds to the hours' counters.
        """
        try:
            await self.settle_cloud()
            await self._write(counts, delivered)
            await self._services.journal.written()
        except StoreError as error:
            accounts.store_failed(self._services, error)
        except Exception as error:  # no reason to keep a reply back that was fine
            accounts.stage_failed(self._services, "books", error)

    async def _write(self, counts: Deltas, delivered: bool) -> None:
        self._note_attempt()
        if not self._exchange.attempts:  # refused: that is no use of the session
            self._services.journal.count(counts)
            await self._settle()
            return
        settlement = self._reservation.settlement(self._amounts)
        before = await self._commit(settlement, counts, delivered)
        if settlement is not None:
            self._reservation.tell(settlement, before, self._exchange.tier)

    def _commit(
        self, settlement: Settlement | None, counts: Deltas, delivered: bool
    ) -> Awaitable[Mapping[str, int]]:
        exchange = self._exchange
        now = self._services.wall_clock()
        sticky = {}
        if exchange.is_sticky and delivered:
            seconds = self._services.settings.reliability.escalation.sticky_seconds
            if seconds:
                sticky[exchange.request.model] = Sticky(exchange.tier, now + seconds)
        session = exchange.session.hash
        change = Change(session, 1, exchange.tier, sticky, settlement, counts)
        return self._services.store.write(change, now)
