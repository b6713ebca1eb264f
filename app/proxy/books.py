"""A session's books for one exchange: read at its start, tokens set aside, and closed at its end.

They are closed before the client has the last byte: what a client has seen finished is counted.
A store that fails stops nothing, but where ``policy: hard_stop`` needs the truth.
"""

from __future__ import annotations

import asyncio
import secrets

from .. import log
from ..core import budgets
from ..core.budgets import Limit, Spent
from ..core.exchange import AttemptRecord, Exchange
from ..core.prompt_size import estimate_prompt_tokens
from ..core.reply import Reply
from ..core.verdicts import Rejected
from ..state.store import Refused, SessionDelta, SessionState, Sticky, StoreError
from . import accounts
from .services import Services

POLL_SECONDS = 0.25  # while other exchanges' reservations are waited for
SPARE_SECONDS = 60.0  # a reservation outlives its exchange by this much


class Books:
    """One exchange's. ``sticky``: the tier its session was escalated to, once :meth:`open` ran."""

    def __init__(self, services: Services, exchange: Exchange) -> None:
        self._services = services
        self._exchange = exchange
        self._rules = services.settings.reliability.token_budget
        self._limits: tuple[Limit, ...] = budgets.in_force(exchange, services.settings)
        # The request's own id is the client's choice, and two of one id must not share a ticket.
        self._ticket = f"{exchange.id}:{secrets.token_hex(8)}"
        self._used: dict[str, int] = {}
        self._reserved = False
        self._closed = False
        self._by_tier: dict[str, int] = {}
        self._spent = 0
        self.sticky: str | None = None

    # At its start

    async def open(self) -> Rejected | None:
        """Read the session and set tokens aside; the refusal, if there is no room for them."""
        state = await self._load()
        if state is not None:
            self._exchange.window = state.window
            self.sticky = self._sticky_of(state)
        return await self._admit() if self._limits else None

    @property
    def over_budget(self) -> bool:
        """Whether the session is to go on with the cheaper tier (``policy: escalate``)."""
        over = budgets.share_used(self._limits, self._used) >= 1.0
        return over and self._rules.policy == "escalate"

    async def _load(self) -> SessionState | None:
        try:
            return await self._services.store.load(
                self._exchange.session.hash, self._services.wall_clock()
            )
        except StoreError as error:
            accounts.store_failed(self._services, error)
            return None

    def _sticky_of(self, state: SessionState) -> str | None:
        entry = state.sticky.get(self._exchange.request.model)
        if entry is None or entry.until <= self._services.wall_clock():
            return None
        return entry.tier

    async def _admit(self) -> Rejected | None:
        exchange = self._exchange
        hard = self._rules.policy == "hard_stop"
        limits = self._limits if hard else budgets.uncounted(self._limits)
        tier = exchange.route.tiers[0] if exchange.route.tiers else ""
        known = self._services.settings.tiers.get(tier)
        patience = known.queue_timeout if known is not None else 60.0
        clock = asyncio.get_running_loop().time
        give_up = clock() + patience
        tokens = self._most_tokens(tier) if hard else 0
        while True:
            now = self._services.wall_clock()
            expires = now + self._longest() + SPARE_SECONDS
            try:
                found = await self._services.store.reserve(
                    self._ticket, limits, tokens, now, expires
                )
            except StoreError as error:
                accounts.store_failed(self._services, error)
                return _no_truth() if hard else None
            if not isinstance(found, Refused):
                self._reserved = True
                self._used = dict(found.used)
                self._warn()
                return None
            if not found.waits_for_others or clock() >= give_up:
                return await self._refuse(found)
            await asyncio.sleep(POLL_SECONDS)

    def _most_tokens(self, tier: str) -> int:
        """What one attempt may use at most, but never more than the smallest budget as a whole."""
        exchange = self._exchange
        output = budgets.most_asked(exchange, tier, self._services.settings)
        whole = estimate_prompt_tokens(exchange.request.body) + output
        return min([whole, *(limit.most for limit in self._limits if limit.most)])

    def _longest(self) -> float:
        escalation = self._services.settings.reliability.escalation
        tiers = [self._services.settings.tiers[t] for t in self._exchange.route.tiers]
        return escalation.exchange_timeout + max((t.total_timeout for t in tiers), default=900.0)

    def _warn(self) -> None:
        share = budgets.share_used(self._limits, self._used)
        if share >= self._rules.warn_at:
            self._exchange.notes["Budget-Warning"] = f"{int(share * 100)}%"

    async def _refuse(self, found: Refused) -> Rejected:
        scope = budgets.scope_name(found.limit)
        detail = {"scope": scope, "used": found.used, "limit": found.limit.most}
        await accounts.keep(self._services, self._exchange, [("budget_exceeded", detail)])
        return budgets.refusal(found.limit, found.used, found.resets_in)

    # While it runs

    def count(self, record: AttemptRecord, reply: Reply) -> Spent | None:
        """Add what an attempt has used; None where upstream refused to begin."""
        if record.status is not None and record.status >= 400:
            return None
        spent = budgets.spent_by(
            self._exchange.request, reply, count_cached=self._rules.count_cached_prompt
        )
        self._spent += spent.total
        self._by_tier[record.tier] = self._by_tier.get(record.tier, 0) + spent.total
        return spent

    # At its end

    async def close(self, *, delivered: bool) -> None:
        """Settle what was spent and write the session; only the first time."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._limits:
                await self._settle()
            await self._commit(delivered)
        except StoreError as error:
            accounts.store_failed(self._services, error)

    async def _settle(self) -> None:
        services = self._services
        now = services.wall_clock()
        if self._reserved or self._spent:
            await services.store.settle(self._ticket, self._limits, self._spent, now)
        for tier, tokens in self._by_tier.items():
            limits = budgets.tier_limits(self._exchange, tier, services.settings)
            if limits:
                ticket = f"{self._ticket}:{tier}"
                await services.store.settle(ticket, limits, tokens, now)
        await self._tell_crossed()

    async def _tell_crossed(self) -> None:
        for threshold, kind in ((self._rules.warn_at, "budget_warning"), (1.0, "budget_exceeded")):
            for limit in budgets.crossed(self._limits, self._used, self._spent, threshold):
                scope = budgets.scope_name(limit)
                log.get().warning(kind, scope=scope, limit=limit.most)
                detail = {"scope": scope, "limit": limit.most, "threshold": threshold}
                await accounts.keep(self._services, self._exchange, [(kind, detail)])

    async def _commit(self, delivered: bool) -> None:
        exchange = self._exchange
        now = self._services.wall_clock()
        seconds = self._services.settings.reliability.escalation.sticky_seconds
        sticky = {}
        if exchange.climbed and delivered and seconds:
            sticky[exchange.request.model] = Sticky(exchange.tier, now + seconds)
        window = (exchange.turn,) if exchange.turn and delivered else ()
        delta = SessionDelta(turns=1, tier=exchange.tier, window=window, sticky=sticky)
        await self._services.store.commit(exchange.session.hash, delta, now)


def _no_truth() -> Rejected:
    message = "the token budgets can't be read now, and policy hard_stop needs them"
    return Rejected(429, "budget_exceeded", message, {"scope": "store"}, retry_after=5)
