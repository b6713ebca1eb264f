"""The cloud, where LiteLLM doesn't list its model: called directly, within its hourly cap.

Giving ``cloud_fallback`` is the consent (DESIGN §4); what a request may enter is decided by
``core/tiers.py`` and ``core/ladder.py``. Nothing of the client's headers goes there.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ..core.budgets import Limit, spent_by
from ..core.exchange import Exchange
from ..core.prompt_size import estimate_prompt_tokens
from ..core.reply import Reply
from ..core.verdicts import UpstreamFailed
from ..settings import CloudFallbackSettings, UpstreamSettings
from ..state.store import Refused, Store
from .upstream import CHAT_HEADERS, RawHeaders, Upstream

CHAT_PATH = "/chat/completions"
SCOPE = "cloud"  # the budget's name in the store
_SPARE_SECONDS = 60.0  # a reservation outlives its call by this much


class Cloud:
    """``clock``: seconds since the epoch; ``transport``: another httpx transport, for tests."""

    def __init__(
        self,
        settings: CloudFallbackSettings,
        store: Store,
        clock: Callable[[], float],
        transport: object = None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._limits = (Limit(SCOPE, settings.max_tokens_per_hour, rolling=True),)
        self.upstream = Upstream(
            UpstreamSettings(base_url=settings.base_url),
            transport,  # type: ignore[arg-type]
        )

    def headers(self) -> RawHeaders:
        headers = [*CHAT_HEADERS]
        if key := os.environ.get(self._settings.api_key_env):
            headers.append((b"authorization", f"Bearer {key}".encode()))
        return headers

    async def reserve(self, exchange: Exchange, most: int, seconds: float) -> UpstreamFailed | None:
        """Set aside what a call may use; the failure if the hour's tokens don't suffice.

        ``most``: the tokens it may generate; ``seconds``: how long it may take. May raise
        ``StoreError``.
        """
        now = self._clock()
        tokens = estimate_prompt_tokens(exchange.request.body) + most
        found = await self._store.reserve(
            self._ticket(exchange), self._limits, tokens, now, now + seconds + _SPARE_SECONDS
        )
        if not isinstance(found, Refused):
            return None
        return UpstreamFailed(
            "budget_exceeded",
            f"the cloud's tokens of this hour are used up ({found.used} of {found.limit.most})",
            final=True,
            retry_after=found.resets_in,
        )

    async def settle(self, exchange: Exchange, reply: Reply) -> None:
        """Count what a call really used. May raise ``StoreError``."""
        used = spent_by(exchange.request, reply, count_cached=True).total
        await self._store.settle(self._ticket(exchange), self._limits, used, self._clock())

    @staticmethod
    def _ticket(exchange: Exchange) -> str:
        return f"cloud:{exchange.id}:{len(exchange.attempts)}"
