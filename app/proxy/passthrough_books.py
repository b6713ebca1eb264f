"""The budgets of requests that pass through: refused where all is refused, counted at their end."""

from __future__ import annotations

from ..core import budgets
from ..core.budgets import Spent
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
_NO_TIER = ""
# What ends the path of a request that a model writes a reply to.
_WRITTEN = ("/completions", "/responses", "/messages")


class PassthroughBooks:
    """One request's. Only a session that is named by a header is known here.

    ``key``: the API key that the client sent. ``asks``: bytes of JSON that may ask a model for
    something; None for a request that doesn't. ``path``: where, without its query.
    """

    def __init__(
        self,
        services: Services,
        request_id: str,
        session: SessionId,
        key: str,
        *,
        path: str,
        asks: int | None,
    ) -> None:
        self._services = services
        settings = services.settings
        self._rules = settings.reliability.token_budget
        self._paying = None if session.derived else session.budget_hash
        self._limits = budgets.limits_of(self._paying, key, settings)
        self._most_output = budgets.most_output(key, _NO_TIER, settings)
        self._asks = asks
        self._writes = asks is not None and path.endswith(_WRITTEN)
        known = "" if session.derived else session.hash
        self._reservation = Reservation(services, request_id, known)
        self._sent = False  # upstream may have begun with it,
        self._whole = False  # and all that it has to say has come
        self._tail: UsageTail | None = None

    async def admit(self) -> None:
        """Raises :class:`ProxyError` (429) where a budget is used up and ``hard_stop`` is on."""
        if not self._limits or self._rules.policy != "hard_stop":
            return
        try:
            found = await self._reservation.make(
                self._limits, self._most(), SECONDS, partial=True, patience=_PATIENCE
            )
        except StoreError as error:
            accounts.store_failed(self._services, error)
            raise rejection(no_truth()) from None
        if found is not None:
            raise rejection(self._reservation.refused(found, _NO_TIER))

    def _most(self) -> int:
        """The tokens that it may use."""
        if self._asks is None:
            return 1
        rates, now = self._services.prompt_rates, self._services.wall_clock()
        return max(rates.most(_NO_TIER, self._asks, now), 1) + self._most_output

    def sent(self, size: int) -> None:
        """Upstream is asked, or has been; ``size``: bytes of the request's body so far."""
        self._sent = True
        self._asks = max(size, self._asks or 0)

    def read(self, status: int, encoding: str) -> None:
        """A response begins; ``encoding``: its ``Content-Encoding``."""
        if status >= 400:
            self._writes = False
        if self._limits:
            self._tail = UsageTail(encoding.strip().lower())

    def feed(self, data: bytes) -> None:
        if self._tail is not None:
            self._tail.feed(data)

    def whole(self) -> None:
        """The response has come to its end."""
        self._whole = True

    async def close(self) -> None:
        """Count what the reply says it used; only the first time."""
        limits, self._limits = self._limits, ()
        if not limits:
            return
        spent = self._spent()
        if spent.estimated and self._paying is not None:
            limits += (budgets.estimated_in(self._paying),)
        try:
            await self._reservation.settle(dict.fromkeys(limits, spent.total), _NO_TIER)
        except StoreError as error:
            accounts.store_failed(self._services, error)

    def _spent(self) -> Spent:
        """What upstream has counted; of what a model writes else an estimate, never zero."""
        tail, asks = self._tail, self._asks or 0
        counted = tail.usage(count_cached=self._rules.count_cached_prompt) if tail else None
        if tail is not None and counted is not None:
            if whole := tail.usage():
                now = self._services.wall_clock()
                self._services.prompt_rates.take(_NO_TIER, asks, whole[0], now)
            prompt, output = counted
            written = tail.estimated_output() if self._writes and not self._whole else 0
            return Spent(prompt, max(output, written), estimated=written > output)
        if not (self._sent and self._writes):
            return Spent(0, 0, estimated=False)
        output = tail.estimated_output() if tail is not None else 0
        return Spent(max(int(asks / BYTES_PER_TOKEN), 1), output, estimated=True)
