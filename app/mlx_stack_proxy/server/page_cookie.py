"""The cookie of a browser that has shown ``server.admin_key`` once, in a form.

The cookie's value is the time at which it ends, and an HMAC of that time with the key. The proxy
needs no list of sign-ins: the cookie is valid in every worker and after a restart, until that time
or until the key changes. It allows ``GET`` under ``/mlx-stack/``, and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

NAME: Final = "mlx_stack_page"
SECONDS: Final = 7 * 24 * 3600


def made(admin_key: str, now: float) -> str:
    """Return the cookie's value for a sign-in at ``now``, in seconds since the epoch."""
    until = str(int(now) + SECONDS)
    return f"{until}.{_digest(admin_key, until)}"


def holds(admin_key: str, cookies: Mapping[str, str], now: float) -> bool:
    """Whether a request's cookies hold one that was made with this key and has not ended."""
    until, _, digest = cookies.get(NAME, "").partition(".")
    if not (until.isascii() and until.isdigit() and len(until) <= 12):
        return False
    return int(until) > now and hmac.compare_digest(
        digest.encode(), _digest(admin_key, until).encode()
    )


def _digest(admin_key: str, until: str) -> str:
    message = f"mlx-stack page until {until}".encode()
    return hmac.new(admin_key.encode(), message, hashlib.sha256).hexdigest()
