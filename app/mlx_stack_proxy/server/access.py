"""Who may come in, and with which key requests go on (docs/security.md)."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from ..engine.headers import RawHeaders
from ..engine.litellm_controls import is_control_header
from ..engine.services import upstream_key
from ..errors import INVALID_REQUEST, ProxyError, invalid
from ..settings import Settings, is_loopback
from .incoming import Incoming

_BEARER = "bearer "
# What a proxy on this machine adds: then the peer's address says nothing about who asks.
_FORWARDED = re.compile(
    r"forwarded|via|x-forwarded(-\w+)*|x-real-ip|x-client-ip|true-client-ip|cf-connecting-ip"
)
# Where LiteLLM looks for a key (1.106: SpecialHeaders in litellm/proxy/_types.py).
KEY_HEADERS = frozenset(
    {
        b"authorization",
        b"x-api-key",
        b"api-key",
        b"x-goog-api-key",
        b"ocp-apim-subscription-key",
        b"x-litellm-api-key",
    }
)
PAGE_PATHS = frozenset({"/", "/mlx-stack", "/mlx-stack/"})


class Access:
    def __init__(self, settings: Settings) -> None:
        keys = settings.server.api_keys
        self._open = "*" in keys
        self._keys = tuple(key.encode() for key in keys if key != "*")
        self._loopback = is_loopback(settings.server.host)
        self._upstream_key = upstream_key(settings)

    def check_origin(self, request: Incoming) -> None:
        """Keep web pages out: a browser must not be led to use a model on the user's machine.

        A page's script sends an ``Origin`` that is not ours; a name that an attacker points at
        127.0.0.1 (DNS rebinding) stands in ``Host``. Who follows a link to our own page is let in:
        that page can't be framed, and where the link stood nothing of it can be read.
        """
        host = request.headers.get("host", "")
        if self._loopback and host and not _is_this_machine(host):
            raise invalid(f"header host names {host[:128]!r}, not this machine", "host", status=403)
        origin = request.headers.get("origin")
        foreign = origin is not None and _authority(origin) != host
        elsewhere = request.headers.get("sec-fetch-site") == "cross-site"
        if foreign or (elsewhere and not _is_visit(request)):
            raise invalid("requests from web pages are not answered", "origin", status=403)

    def check_key(self, request: Incoming) -> str:
        """Let in only the configured keys, if there are any; the key that owns the sessions.

        Raises :class:`ProxyError` (401).
        """
        if self._open or not self._keys:
            return ""
        given = given_key(request)
        # Every key is compared, and in constant time: neither which nor how nearly is told.
        matches = [hmac.compare_digest(given.encode(), key) for key in self._keys]
        if not any(matches):
            raise ProxyError(
                401,
                INVALID_REQUEST,
                "this API key is not known; send one of server.api_keys as "
                "`Authorization: Bearer …`",
                code="invalid_api_key",
            )
        return given

    def upstream_headers(self, headers: RawHeaders) -> tuple[RawHeaders, bool]:
        """The headers with the key to use for LiteLLM; whether we put that in."""
        if self._open or self._keys:
            headers = [h for h in headers if h[0] not in KEY_HEADERS]
        elif not self._loopback or not KEY_HEADERS.isdisjoint(dict(headers)):
            return headers, False
        if self._upstream_key is None:
            return headers, self._open or bool(self._keys)
        return [*headers, (b"authorization", f"Bearer {self._upstream_key}".encode())], True


def without_controls(headers: RawHeaders) -> RawHeaders:
    """The headers without those that steer LiteLLM itself; a key says only who asks."""
    return [h for h in headers if not is_control_header(h[0]) or h[0] in KEY_HEADERS]


def is_from_this_machine(scope: Any, headers: Mapping[str, str]) -> bool:
    """Whether a program of this machine asks, of itself and not for another.

    Any web page may point a name of its own at 127.0.0.1, so ``Host`` has to name this machine too.
    """
    peer = scope.get("client")
    if peer is None or any(_FORWARDED.fullmatch(name) for name in headers):
        return False
    try:
        address = ip_address(peer[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback and _is_this_machine(headers.get("host", ""))


def given_key(request: Incoming) -> str:
    """The API key that a client sent, in whichever header; "" if none."""
    given = bearer(request.headers.get("authorization", ""))
    return given or request.headers.get("x-api-key") or request.headers.get("api-key") or ""


def key_label(key: str, settings: Settings) -> str:
    """What a key is called where it must not be shown: its place in ``server.api_keys``; or ""."""
    keys = settings.server.api_keys
    return f"key-{keys.index(key) + 1}" if key in keys else ""


def bearer(authorization: str) -> str:
    """The key in an ``Authorization`` header; "" if it holds none."""
    if authorization[: len(_BEARER)].lower() != _BEARER:
        return ""
    return authorization[len(_BEARER) :].strip()


def _is_visit(request: Incoming) -> bool:
    """Whether a browser opens the page in a tab of its own."""
    return (
        request.method == "GET"
        and request.path in PAGE_PATHS
        and request.headers.get("sec-fetch-mode") == "navigate"
        and request.headers.get("sec-fetch-dest") == "document"
    )


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # brackets that hold no address
        return None


@lru_cache(16)  # a client's own text, which may be long
def _is_this_machine(host: str) -> bool:
    return is_loopback(_hostname(host).lower())


def _hostname(host: str) -> str:
    if host.startswith("["):
        inside, _, port = host[1:].partition("]")
        return inside if not port or port.startswith(":") else host
    return host.rpartition(":")[0] if ":" in host else host
