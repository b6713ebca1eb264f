"""How many bytes of request bodies are held, of all requests of this process together.

What counts is what has come, not what was announced: bodies sent by half count, too. It counts
until its request ends: what was read of a body is about as long, and further attempts need it.
"""

from __future__ import annotations

from ..errors import ProxyError
from ..settings import ServerSettings

RETRY_SECONDS = 5


class BodyRefused(ProxyError):
    """An error while the client may still be sending its body."""


class BodyMemory:
    """``held``: bytes, at most ``most``: one body finds room in any case."""

    def __init__(self, settings: ServerSettings) -> None:
        self.most = max(settings.max_buffered_bytes, settings.max_body_bytes)
        self.held = 0


class HeldBody:
    """One request's part of them, until :meth:`release`."""

    __slots__ = ("_all", "_size")

    def __init__(self, bodies: BodyMemory) -> None:
        self._all = bodies
        self._size = 0

    def grow(self, more: int) -> None:
        """So many bytes have come. Raises :class:`BodyRefused` (503) where there is no room."""
        if self._all.held + more > self._all.most:
            raise _full(self._all.most)
        self._all.held += more
        self._size += more

    def release(self) -> None:
        """The request has ended, or its body is not needed any more."""
        self._all.held -= self._size
        self._size = 0


def _full(most: int) -> BodyRefused:
    said = f"the bodies of all requests have more than {most} bytes (server.max_buffered_bytes)"
    return BodyRefused(503, "upstream_unavailable", said, retry_after=RETRY_SECONDS)
