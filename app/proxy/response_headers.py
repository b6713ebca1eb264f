"""The headers of a response: ours (DESIGN §7), and those of LiteLLM's that pass."""

from __future__ import annotations

from ..core.exchange import Exchange
from .upstream import RawHeaders, passed_on

PREFIX = "X-MLX-Stack-"
# The body is written anew or framed by our own server; a cookie or an internal address of LiteLLM
# is nobody's business.
_NOT_PASSED = frozenset(
    {
        b"content-length",
        b"content-type",
        b"content-encoding",
        b"cache-control",
        b"date",
        b"server",
        b"set-cookie",
        b"set-cookie2",
        b"x-accel-buffering",
        b"x-request-id",
        b"x-should-retry",
        b"retry-after",
    }
)
_ADDRESS = b"-api-base"


def public(headers: tuple[tuple[bytes, bytes], ...]) -> RawHeaders:
    """LiteLLM's headers that a client may see."""
    return [h for h in passed_on(headers, _NOT_PASSED) if not h[0].endswith(_ADDRESS)]


def values(exchange: Exchange, attempts: int) -> dict[str, str]:
    """What our headers say, by name without the prefix. ``attempts``: upstream calls so far."""
    return {
        "Request-Id": exchange.id,
        "Tier": exchange.tier,
        "Retries": str(exchange.retries),
        "Attempts": str(attempts),
        "Session": exchange.session.header,
        **exchange.notes,
    }


def encode(said: dict[str, str]) -> RawHeaders:
    """Our headers as they go out; ``x-request-id`` equals ours."""
    headers = [
        (f"x-mlx-stack-{name.lower()}".encode(), value.encode("latin-1", "replace"))
        for name, value in said.items()
    ]
    headers.append((b"x-request-id", said["Request-Id"].encode()))
    return headers


def as_fields(said: dict[str, str]) -> dict[str, str | int]:
    """The same as JSON fields, for the closing comment and ``mlx_stack``: ``request_id``, ….

    Counts are numbers.
    """
    fields: dict[str, str | int] = {}
    for name, value in said.items():
        key = name.lower().replace("-", "_")
        fields[key] = int(value) if name in ("Retries", "Attempts") else value
    return fields
