"""The cloud, where LiteLLM doesn't list its model: called directly, within its hourly cap.

Giving ``cloud_fallback`` is the consent (docs/escalation.md); what a request may enter is decided
by ``tiers.py`` and ``ladder.py``. Nothing of the client's headers goes there.
"""

from __future__ import annotations

import os

from ..engine.headers import RawHeaders
from ..engine.upstream import CHAT_HEADERS, Upstream
from ..settings import CloudFallbackSettings, UpstreamSettings
from ..state.store import Limit

CHAT_PATH = "/chat/completions"
SCOPE = "cloud"  # the budget's name in the store


class Cloud:
    """``limits``: its hourly cap."""

    def __init__(self, settings: CloudFallbackSettings) -> None:
        self._settings = settings
        self.limits = (Limit(SCOPE, settings.max_tokens_per_hour, rolling=True),)
        self.upstream = Upstream(UpstreamSettings(base_url=settings.base_url))

    def headers(self) -> RawHeaders:
        headers = [*CHAT_HEADERS]
        if key := os.environ.get(self._settings.api_key_env):
            headers.append((b"authorization", f"Bearer {key}".encode()))
        return headers
