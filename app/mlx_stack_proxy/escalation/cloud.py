"""Calls to the cloud: directly, if LiteLLM doesn't list its model, and within an hourly cap.

An operator who sets ``cloud_fallback`` consents to calls that leave the machine
(docs/escalation.md). ``tiers.py`` and ``ladder.py`` decide which requests may go there. No header
of the client's is sent there.
"""

from __future__ import annotations

import os

from ..engine.headers import RawHeaders
from ..engine.upstream import CHAT_HEADERS, Upstream, UpstreamError
from ..settings import CloudFallbackSettings, UpstreamSettings
from ..state.store import Limit

CHAT_PATH = "/chat/completions"
SCOPE = "cloud"  # the budget's name in the store


class Cloud:
    """The connection to the cloud's API, and the cap on all exchanges' tokens there."""

    def __init__(self, settings: CloudFallbackSettings) -> None:
        self._settings = settings
        # The hourly cap; it also applies to calls through LiteLLM.
        self.limits = (Limit(SCOPE, settings.max_tokens_per_hour, rolling=True),)
        self.upstream = Upstream(UpstreamSettings(base_url=settings.url))

    def headers(self) -> RawHeaders:
        """Return a call's headers, with the key. Raises ``UpstreamError`` without a key."""
        key = cloud_key(self._settings)
        if key is None:
            raise UpstreamError(f"${self._settings.api_key_env} is not set", unreachable=True)
        return [*CHAT_HEADERS, (b"authorization", f"Bearer {key}".encode())]


def cloud_key(settings: CloudFallbackSettings) -> str | None:
    """Return the cloud's key from the settings' environment variable; None: it isn't set."""
    return os.environ.get(settings.api_key_env, "").strip() or None
