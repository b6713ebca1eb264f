"""The budgets of requests that pass through: refused where all is refused, counted at their end."""

from __future__ import annotations

from ..core import budgets
from ..core.failures import rejection
from ..core.prompt_size import BYTES_PER_TOKEN
from ..core.session_id import SessionId
from ..core.usage_tail import UsageTail
from ..settings import TierSettings
from ..state.store import StoreError
from . import accounts
from .reservation import Reservation, no_truth
from .services import Services

SECONDS = 3600.0  # that one may take; after them what it has set aside is forgotten
_PATIENCE = TierSettings(model="").queue_timeout  # it has no tier of its own


class PassthroughBooks:
    """One request's. Only a session that is named by a header is known here.

    ``key``: the API key that the client sent. ``asks``: bytes of JSON that may ask a model for
    something; None for a request that doesn't.
    """

    def __init__(
        self,
        services: Services,
        request_id: str,
        session: SessionId,
        key: str,
        asks: int | None,
    ) -> None:
        self._services = services
        settings = services.settings
        self._rules = settings.reliability.token_budget
        paying = None if session.derived else session.budget_hash
        self._limits = budgets.limits_of(paying, key, settings)
        self._most = 1
        if asks is not None:
            self._most = int(asks / BYTES_PER_TOKEN) + budgets.most_output(key, "", settings)
        known = "" if session.derived else session.hash
        self._reservation = Reservation(services, request_id, known)
        self._tail: UsageTail | None = None

    async def admit(self) -> None:
        """Raises :class:`ProxyError` (429) where a budget is used up and ``hard_stop`` is on."""
        if not self._limits or self._rules.policy != "hard_stop":
            return
        try:
            found = await self._reservation.make(
                self._limits, self._most, SECONDS, partial=True, patience=_PATIENCE
            )
        except StoreError as error:
            accounts.store_failed(self._services, error)
            raise rejection(no_truth()) from None
        if found is not None:
            raise rejection(self._reservation.refused(found, ""))

    def read(self, encoding: str) -> None:
        """A response begins; ``encoding``: its ``Content-Encoding``."""
        if self._limits:
            self._tail = UsageTail(encoding.strip().lower())

    def feed(self, data: bytes) -> None:
        if self._tail is not None:
            self._tail.feed(data)

    async def close(self) -> None:
        """Count what the reply says it used; only the first time."""
        tail, self._tail = self._tail, None
        if not self._limits:
            return
        tokens = tail.tokens(count_cached=self._rules.count_cached_prompt) if tail else 0
        try:
            await self._reservation.settle(dict.fromkeys(self._limits, tokens), "")
        except StoreError as error:
            accounts.store_failed(self._services, error)
