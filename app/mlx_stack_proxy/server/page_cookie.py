"""The cookie of a browser that has shown ``server.admin_key`` once, in a form.

Its value is a time and a digest of that time with the key, so that it needs no list of sign-ins: it
holds in every worker and after a restart, it ends at its time, and with another key it is none. It
opens what is read (``GET``) under ``/mlx-stack/``, and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

NAME: Final = "mlx_stack_page"
SECONDS: Final = 7 * 24 * 3600
_PATH: Final = "/mlx-stack/"


def made(admin_key: str, now: float, *, secure: bool) -> str:
    """The ``Set-Cookie`` header. ``secure``: the browser is to send it over TLS alone."""
    until = str(int(now) + SECONDS)
    value = f"{until}.{_digest(admin_key, until)}"
    return _header(value, SECONDS, secure=secure)


def ended() -> str:
    """The ``Set-Cookie`` header that takes it away."""
    return _header("", 0, secure=False)


def holds(admin_key: str, cookies: Mapping[str, str], now: float) -> bool:
    """Whether a request's cookies have one that was made with this key and has not ended."""
    until, _, digest = cookies.get(NAME, "").partition(".")
    if not (until.isascii() and until.isdigit() and len(until) <= 12):
        return False
    return int(until) > now and hmac.compare_digest(
        digest.encode(), _digest(admin_key, until).encode()
    )


def _digest(admin_key: str, until: str) -> str:
    said = f"mlx-stack page until {until}".encode()
    return hmac.new(admin_key.encode(), said, hashlib.sha256).hexdigest()


def _header(value: str, seconds: int, *, secure: bool) -> str:
    parts = [f"{NAME}={value}", f"Path={_PATH}", f"Max-Age={seconds}", "HttpOnly"]
    return "; ".join([*parts, "SameSite=Strict", *(["Secure"] if secure else [])])
