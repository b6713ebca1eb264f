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
    """The headers (names in lower case) that go on, without the hop-by-hop ones and ``dropped``."""
    out = HOP_BY_HOP | dropped
    for name, value in headers:
        if name == b"connection" and value not in _SAYS_NO_NAME:
            out |= {part.strip().lower() for part in value.split(b",")}
    return [h for h in headers if h[0] not in out and not h[0].startswith(b"x-mlx-stack-")]
