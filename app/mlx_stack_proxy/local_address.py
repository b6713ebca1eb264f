"""The address under which a proxy is reached from its own machine."""

from __future__ import annotations

from .settings import Settings

_ANYWHERE = ("0.0.0.0", "::", "")


def local_url(settings: Settings) -> str:
    """Return ``http://HOST:PORT``; HOST is 127.0.0.1 where the proxy listens on all addresses."""
    host = settings.server.host
    host = "127.0.0.1" if host in _ANYWHERE else f"[{host}]" if ":" in host else host
    return f"http://{host}:{settings.server.port}"
