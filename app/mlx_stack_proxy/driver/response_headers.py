"""The headers of a response to the client: our own (docs/http.md), and some of LiteLLM's."""

from __future__ import annotations

import re
from functools import lru_cache

from ..engine.exchange import Exchange
from ..engine.headers import HOP_BY_HOP, RawHeaders, passed_on
from ..engine.outcome import Remarks
from ..memory_pressure.pressure import Pressure

PREFIX = "X-MLX-Stack-"
# LiteLLM's cookies and ids are not for the client; our own server sends the date.
_NOT_PASSED = HOP_BY_HOP | frozenset({b"set-cookie", b"set-cookie2", b"x-request-id", b"date"})
# Headers that are wrong for a body that we write or frame ourselves.
_REPLACED = _NOT_PASSED | {
    b"content-length",
    b"content-type",
    b"content-encoding",
    b"cache-control",
    b"server",
    b"x-accel-buffering",
    b"x-should-retry",
    b"retry-after",
}
_ADDRESS = b"-api-base"  # the suffix of headers with LiteLLM's internal addresses
# Characters forbidden in a header. A model's name comes from the client and may have them.
_NOT_IN_A_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# Our server refuses a response with such a byte; aiohttp accepts some of them.
_BAD_BYTE = re.compile(_NOT_IN_A_HEADER.pattern.encode())
MAX_VALUE = 512
_CORS = b"access-control-"  # no web page may read a reply, whatever LiteLLM allows


def relayed(headers: RawHeaders | tuple[tuple[bytes, bytes], ...]) -> RawHeaders:
    """Return LiteLLM's headers for a client that gets LiteLLM's own body."""
    return _without(_NOT_PASSED, headers)


def public(headers: tuple[tuple[bytes, bytes], ...]) -> RawHeaders:
    """Return LiteLLM's headers for a client that gets a body of ours."""
    return _without(_REPLACED, headers)


def _without(
    dropped: frozenset[bytes], headers: RawHeaders | tuple[tuple[bytes, bytes], ...]
) -> RawHeaders:
    return [
        (name, value)
        for name, value in passed_on(headers, dropped)
        if not name.endswith(_ADDRESS)
        and not name.startswith(_CORS)
        and not _BAD_BYTE.search(value)
    ]


def of_pressure(pressure: Pressure) -> RawHeaders:
    """Return the header that every response has while memory is short."""
    if not pressure.level:
        return []
    return [(b"x-mlx-stack-memory-pressure", pressure.level.word.encode())]


def values(exchange: Exchange, running: Remarks | None, pressure: Pressure) -> dict[str, str]:
    """Return our headers' values, by name without the prefix.

    ``running``: the current attempt's remarks so far; None: the exchange is over.
    """
    headers = {
        "Request-Id": exchange.request.id,
        "Tier": exchange.tier,
        "Retries": str(exchange.retries),
        "Attempts": str(len(exchange.attempts) + (running is not None)),
        "Session": exchange.request.session.header,
        **exchange.notes,
    }
    if running is None:
        headers |= exchange.reply_notes
    else:
        headers |= running.notes | running.reply_notes
    if pressure.level:
        headers["Memory-Pressure"] = pressure.level.word
    return {name: value for name, value in headers.items() if value}


def encode(values: dict[str, str]) -> RawHeaders:
    """Return our headers encoded, and ``x-request-id`` with the same id."""
    joined = "".join(values.values())
    plain = len(joined) <= MAX_VALUE and joined.isascii() and joined.isprintable()  # mostly
    encoded = str.encode if plain else _header_value
    headers = [(_header_name(name), encoded(value)) for name, value in values.items()]
    headers.append((b"x-request-id", values["Request-Id"].encode()))
    return headers


@lru_cache
def _header_name(name: str) -> bytes:
    return f"x-mlx-stack-{name.lower()}".encode()


def _header_value(value: str) -> bytes:
    return _NOT_IN_A_HEADER.sub("?", value[:MAX_VALUE]).encode("latin-1", "replace")


def as_fields(values: dict[str, str]) -> dict[str, str | int]:
    """Return the values as JSON fields (``request_id``, …) for closing comment and ``mlx_stack``.

    Counts are numbers.
    """
    fields: dict[str, str | int] = {}
    for name, value in values.items():
        key = name.lower().replace("-", "_")
        fields[key] = int(value) if name in ("Retries", "Attempts") else value
    return fields
