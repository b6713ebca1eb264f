"""The address under which a proxy is reached from its own machine."""

from __future__ import annotations

from .settings import ServerSettings, Settings

_ANYWHERE = ("0.0.0.0", "::", "")


def local_url(settings: Settings) -> str:
    """Return ``http://HOST:PORT``; HOST is 127.0.0.1 where the proxy listens on all addresses."""
    return url_of(settings.server)


def url_of(server: ServerSettings) -> str:
    """Return the same, of the one section that decides it."""
    host = "127.0.0.1" if server.host in _ANYWHERE else server.host
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
