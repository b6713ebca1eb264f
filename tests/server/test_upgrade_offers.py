"""Offers of another protocol never reach the parser, however a head is cut into pieces."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_stack_proxy.server.http_protocol import BoundedProtocol

BODY = b"\r\nupgrade: in the body stays\r\n"
LINES = [
    b"Host: a",
    b"Upgrade: h2c",
    b"x-upgrade: 1",
    b"upgrade:h3",
    b"Upgrade: websocket",
    b"Up: 2",
]


def fed(pieces: list[bytes]) -> bytes:
    """What the parser gets of a head and what follows it."""
    protocol = BoundedProtocol.__new__(BoundedProtocol)
    protocol._line = b""
    found, in_head = b"", True
    for piece in pieces:
        found += protocol._without_offers(piece) if in_head else piece
        in_head = b"\r\n\r\n" not in found
    assert protocol._line == b"" or in_head, "nothing waits once the head is whole"
    return found + protocol._line


@settings(max_examples=2_000, deadline=None)
@given(
    st.lists(st.sampled_from(LINES), max_size=6),
    st.lists(st.integers(0, 150), max_size=12),
)
def test_pieces_make_no_difference(lines: list[bytes], cuts: list[int]) -> None:
    head = b"\r\n".join([b"POST /v1/x HTTP/1.1", *lines]) + b"\r\n\r\n"
    kept = [one for one in lines if one not in (b"Upgrade: h2c", b"upgrade:h3")]
    expected = b"\r\n".join([b"POST /v1/x HTTP/1.1", *kept]) + b"\r\n\r\n" + BODY
    text, places = head + BODY, sorted({0, *cuts})
    pieces = [text[a:b] for a, b in zip(places, [*places[1:], len(text)], strict=True)]
    assert fed([text]) == expected
    assert fed(pieces) == expected


@pytest.mark.parametrize("text", [b"\x16\x03\x01\x02", b"GET / HTTP/1.1", b"GET / HTTP/1.1\r\nHo"])
def test_nothing_else_waits(text: bytes) -> None:
    """TLS on a plain port, say, is refused at once."""
    protocol = BoundedProtocol.__new__(BoundedProtocol)
    protocol._line = b""
    assert protocol._without_offers(text) == text
