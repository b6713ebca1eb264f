"""The budgets of requests that pass through: refused where all is refused, counted at their end."""

from __future__ import annotations

from ..core import budgets
from ..core.budgets import Limit
from ..core.failures import rejection
from ..core.session_id import SessionId
from ..core.usage_tail import UsageTail
from ..state.store import Refused, StoreError
from . import accounts
from .services import Services

SECONDS = 3600.0  # after which a reservation of nothing is forgotten


class PassthroughBooks:
    """One request's. Only a session that is named by a header is known here."""

    def __init__(self, services: Services, request_id: str, session: SessionId) -> None:
        self._services = services
        self._ticket = f"passthrough:{request_id}"
        rules = services.settings.reliability.token_budget
        self._limits: tuple[Limit, ...] = ()
        if rules.enabled:
            self._limits = (Limit("hour", rules.per_hour, rolling=True),)
            if not session.derived:
                own = f"session:{session.budget_hash}"
                self._limits += (Limit(own, rules.per_session, rolling=False),)
        self._hard = rules.policy == "hard_stop"
        self._tail = UsageTail()

    async def admit(self) -> None:
        """Raises :class:`ProxyError` (429) where a budget is used up and ``hard_stop`` is on."""
        if not self._limits or not self._hard:
            return
        store, now = self._services.store, self._services.wall_clock()
        try:
            found = await store.reserve(self._ticket, self._limits, 1, now, now + SECONDS)
        except StoreError as error:
            accounts.store_failed(self._services, error)
            return
        if isinstance(found, Refused):
            raise rejection(budgets.refusal(found.limit, found.used, found.resets_in))

    def feed(self, data: bytes) -> None:
        if self._limits:
            self._tail.feed(data)

    async def close(self) -> None:
        """Count what the reply says it used."""
        if not self._limits:
            return
        tokens = self._tail.tokens()
        if not tokens and not self._hard:
            return
        try:
            await self._services.store.settle(
                self._ticket, self._limits, tokens, self._services.wall_clock()
            )
        except StoreError as error:
            accounts.store_failed(self._services, error)
