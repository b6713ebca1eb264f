"""Selects the headers of a request or response that are passed on."""

from __future__ import annotations

from collections.abc import Iterable

# (name, value); names in lower case.
RawHeaders = list[tuple[bytes, bytes]]

# Headers about a single connection (RFC 9110, 7.6.1).
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_SAYS_NO_NAME = frozenset({b"keep-alive", b"close"})


def passed_on(headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> RawHeaders:
    """Return the headers to pass on; names are in lower case.

    Dropped are the names in ``dropped`` (which includes :data:`HOP_BY_HOP`), those that a
    ``connection`` header names, and our own ``x-mlx-stack-*``.
    """
    kept: RawHeaders = []
    options: set[bytes] = set()  # the headers that a `connection` header names
    for header in headers:
        name, value = header
        if name in dropped:
            if name == b"connection" and value not in _SAYS_NO_NAME:
                options.update(part.strip().lower() for part in value.split(b","))
        elif not name.startswith(b"x-mlx-stack-"):
            kept.append(header)
    return [header for header in kept if header[0] not in options] if options else kept
