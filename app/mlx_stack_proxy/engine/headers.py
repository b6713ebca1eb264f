"""Which of a request's or a response's headers go on."""

from __future__ import annotations

from collections.abc import Iterable

# Names in lower case.
RawHeaders = list[tuple[bytes, bytes]]

# They speak of one connection (RFC 9110, 7.6.1).
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
    """The headers (names in lower case) that go on.

    ``dropped``: those that don't, all of :data:`HOP_BY_HOP` among them.
    """
    kept: RawHeaders = []
    named: set[bytes] = set()
    for header in headers:
        name, value = header
        if name in dropped:
            if name == b"connection" and value not in _SAYS_NO_NAME:
                named.update(part.strip().lower() for part in value.split(b","))
        elif not name.startswith(b"x-mlx-stack-"):
            kept.append(header)
    return [header for header in kept if header[0] not in named] if named else kept
