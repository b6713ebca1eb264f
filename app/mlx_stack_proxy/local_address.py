"""The address under which a proxy is reached from its own machine."""

from __future__ import annotations

from .settings import ServerSettings

_ANYWHERE = ("0.0.0.0", "::", "")


def url_of(server: ServerSettings) -> str:
    """Return ``http://HOST:PORT``; HOST is 127.0.0.1 where the proxy listens on all addresses."""
    host = "127.0.0.1" if server.host in _ANYWHERE else server.host
    return f"http://{f'[{host}]' if ':' in host else host}:{server.port}"
