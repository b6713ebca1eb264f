"""Where a proxy is reached from its own machine."""

from __future__ import annotations

from .settings import Settings

_ANYWHERE = ("0.0.0.0", "::", "")


def local_url(settings: Settings) -> str:
    """``http://HOST:PORT`` of a proxy with these settings; loopback where it listens anywhere."""
    host = settings.server.host
    host = "127.0.0.1" if host in _ANYWHERE else f"[{host}]" if ":" in host else host
    return f"http://{host}:{settings.server.port}"
