"""Reads the ``X-MLX-Stack-*`` request headers (docs/http.md)."""

from __future__ import annotations

from collections.abc import Mapping

from ..engine.request import Controls
from ..errors import invalid
from ..settings import Settings

_BYPASSABLE = ("loop", "validation", "budget")
_HEADERS = frozenset(
    f"x-mlx-stack-{name}" for name in ("tier", "escalation", "cloud", "stream", "bypass")
)
_NOTHING: frozenset[str] = frozenset()  # shared: a new one takes as much memory as a small request


def read_controls(headers: Mapping[str, str], settings: Settings) -> Controls:
    """Read the controls. ``headers``: names in lower case. Raises ``ProxyError`` (400)."""
    if _HEADERS.isdisjoint(headers):  # the usual case
        return Controls(stream=settings.stream.mode)
    return Controls(
        headers.get("x-mlx-stack-tier"),
        _choice(headers, "X-MLX-Stack-Escalation", ("on", "off"), "on") == "on",
        read_cloud(headers),
        _choice(headers, "X-MLX-Stack-Stream", ("buffered", "live"), settings.stream.mode),
        _bypass(headers, settings),
    )


def read_cloud(headers: Mapping[str, str]) -> bool:
    """Whether the client lets its request leave this machine. Raises ``ProxyError`` (400)."""
    return _choice(headers, "X-MLX-Stack-Cloud", ("on", "off"), "on") == "on"


def client_timeout(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that an OpenAI SDK waits for a whole reply, by its header, or None."""
    timeouts = []
    for name in ("x-stainless-timeout", "x-stainless-read-timeout"):
        if not (value := headers.get(name)):
            continue
        try:
            seconds = float(value)
        except ValueError:
            continue
        if 0 < seconds < 86_400:  # the SDKs also write "not given"
            timeouts.append(seconds)
    return min(timeouts) if timeouts else None


def _choice(headers: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = headers.get(name.lower())
    if value is None:
        return default
    value = value.strip().lower()
    if value not in allowed:
        raise invalid(f"header {name} must be {' or '.join(allowed)}, not {value[:64]!r}", name)
    return value


def _bypass(headers: Mapping[str, str], settings: Settings) -> frozenset[str]:
    name = "X-MLX-Stack-Bypass"
    value = headers.get(name.lower())
    if value is None:
        return _NOTHING
    if not settings.server.allow_bypass:
        raise invalid(f"header {name} is not allowed here (server.allow_bypass)", name)
    words = frozenset(word.strip().lower() for word in value.split(",") if word.strip())
    unknown = sorted(words.difference(_BYPASSABLE))
    if unknown:
        raise invalid(
            f"header {name} takes {', '.join(_BYPASSABLE)}, not {unknown[0][:64]!r}", name
        )
    return words
