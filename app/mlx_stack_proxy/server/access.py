"""Decide which requests are answered, and which API key goes to LiteLLM (docs/security.md).

``check_origin()`` refuses requests of web pages, ``check_key()`` requests without one of
``server.api_keys``. ``upstream_headers()`` then chooses the key. With ``server.api_keys``, our own
LiteLLM key replaces the client's. Without them, a client's own LiteLLM key goes on as it is, and a
client without a key gets ours only from a proxy on a loopback address.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any
from urllib.parse import urlsplit

from ..driver.services import upstream_key
from ..engine.headers import RAW_KEY_HEADERS, RawHeaders, client_key
from ..engine.litellm_controls import is_control_header
from ..errors import INVALID_REQUEST, ProxyError, invalid
from ..settings import Settings, is_loopback
from .incoming import Incoming

_BEARER = "bearer "
# Headers that a reverse proxy adds. With one of them, the peer's address is the proxy's and says
# nothing about the client.
_FORWARDED = re.compile(
    r"forwarded|via|x-forwarded(-\w+)*|x-real-ip|x-client-ip|true-client-ip|cf-connecting-ip"
)
_PROBED = frozenset({"/health", "/ready"})  # under any host name; they reveal nothing private
# Names that no public DNS serves, so that no outsider can point one at this machine.
_PRIVATE = (".local", ".internal", ".svc", ".lan", ".home.arpa")
PAGE_PATHS = frozenset({"/", "/mlx-stack", "/mlx-stack/"})


class Access:
    """Checks requests and chooses their LiteLLM key by the settings at the start."""

    def __init__(self, settings: Settings) -> None:
        keys = settings.server.api_keys
        self._open = "*" in keys  # clients need no key
        self._keys = tuple(key.encode() for key in keys if key != "*")
        self._hosts = frozenset(host.lower() for host in settings.server.allowed_hosts)
        self._admin_key = settings.server.admin_key
        self._loopback = is_loopback(settings.server.host)
        self._upstream_key = upstream_key(settings)

    def check_origin(self, request: Incoming) -> None:
        """Refuse requests of web pages: no page may make a browser use the user's models.

        A page's script sends an ``Origin`` that is not ours. A name that an attacker points at this
        machine (DNS rebinding) stands in ``Host``. A browser that follows a link to our own page
        is let in: our page can't be framed, and the site with the link can't read it.

        Raises ``ProxyError`` (403).
        """
        host = request.headers.get("host", "")
        if not (_is_private(host) or self._is_allowed(host) or self._has_no_page(request)):
            sentence = f"header host names {host[:128]!r}, which is not in server.allowed_hosts"
            raise invalid(sentence, "host", status=403)
        origin = request.headers.get("origin")
        foreign = origin is not None and _authority(origin) != host
        cross_site = request.headers.get("sec-fetch-site") == "cross-site"
        if foreign or (cross_site and not _is_visit(request)):
            raise invalid("requests from web pages are refused", "origin", status=403)

    def _is_allowed(self, host: str) -> bool:
        """Whether ``server.allowed_hosts`` has a host; ``*.example.com`` stands for all below."""
        name = _name_in(host)
        labels = name.split(".")[:64]
        above = ("*." + ".".join(labels[start:]) for start in range(1, len(labels)))
        return "*" in self._hosts or name in self._hosts or not self._hosts.isdisjoint(above)

    def _has_no_page(self, request: Incoming) -> bool:
        """Whether the request is useless to a page under any host name: a page has no key."""
        if request.path in _PROBED or self._keys:
            return True
        if self._admin_key is None:
            return False
        is_operator = shows(request.headers, self._admin_key)
        return is_operator or request.path.startswith("/mlx-stack/")

    def check_key(self, request: Incoming) -> None:
        """Fill in ``request.key`` and ``request.owner``.

        With ``server.api_keys`` LiteLLM never sees the client's headers with keys, so
        ``Authorization`` comes first there. Raises ``ProxyError`` (401) if the request has none of
        the configured keys.
        """
        headers = request.headers
        if not self._keys:
            request.key = client_key(headers)
            return
        others = {name: value for name, value in headers.items() if name != "authorization"}
        request.key = key = bearer(headers.get("authorization", "")) or client_key(others)
        if self._open:
            return
        # Compare with every key, in constant time: the time taken must not tell which key nearly
        # matched.
        matches = [hmac.compare_digest(key.encode(), allowed) for allowed in self._keys]
        if not any(matches):
            raise ProxyError(
                401,
                INVALID_REQUEST,
                "unknown API key; send one of server.api_keys as `Authorization: Bearer …`",
                code="invalid_api_key",
            )
        request.owner = key

    def upstream_headers(self, headers: RawHeaders) -> tuple[RawHeaders, bool]:
        """Return the headers with the key for LiteLLM, and whether that key is ours.

        The second value is also true if the client's key was taken out and we have none to send.
        """
        if self._open or self._keys:
            headers = [h for h in headers if h[0] not in RAW_KEY_HEADERS]
        elif not self._loopback or not RAW_KEY_HEADERS.isdisjoint(dict(headers)):
            return headers, False
        if self._upstream_key is None:
            return headers, self._open or bool(self._keys)
        return [*headers, (b"authorization", f"Bearer {self._upstream_key}".encode())], True


def without_controls(headers: RawHeaders) -> RawHeaders:
    """Drop the headers that control LiteLLM itself. Keys stay: they only identify the client."""
    return [h for h in headers if not is_control_header(h[0]) or h[0] in RAW_KEY_HEADERS]


def is_from_this_machine(scope: Any, headers: Mapping[str, str]) -> bool:
    """Whether the client is a program on this machine, rather than a reverse proxy for others.

    ``Host`` must name this machine, too: a web page can point a name of its own at 127.0.0.1.
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
    return address.is_loopback and is_loopback(_name_in(headers.get("host", "")))


def key_label(key: str, settings: Settings) -> str:
    """Return ``key-1`` for the first of ``server.api_keys``, and so on; "" for an unknown key.

    The label stands for the key where the key itself must not be shown.
    """
    keys = settings.server.api_keys
    return f"key-{keys.index(key) + 1}" if key in keys else ""


def shows(headers: Mapping[str, str], key: str) -> bool:
    """Whether a request's bearer token is this key."""
    token = bearer(headers.get("authorization", ""))
    return hmac.compare_digest(token.encode(), key.encode())


def bearer(authorization: str) -> str:
    """Return the key in an ``Authorization`` header; "" if it has no bearer token."""
    if authorization[: len(_BEARER)].lower() != _BEARER:
        return ""
    return authorization[len(_BEARER) :].strip()


def _is_visit(request: Incoming) -> bool:
    """Whether a browser navigates to our page as a whole document, not in a frame."""
    return (
        request.method == "GET"
        and request.path in PAGE_PATHS
        and request.headers.get("sec-fetch-mode") == "navigate"
        and request.headers.get("sec-fetch-dest") == "document"
    )


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # for example, brackets around text that is no address
        return None


@lru_cache(16)  # a small cache: Host is the client's text, and may be long
def _is_private(host: str) -> bool:
    """Whether a ``Host`` can't be a page's: an address, one label, or a private name."""
    name = _name_in(host)
    try:
        ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(_PRIVATE)
    return True


def _name_in(host: str) -> str:
    """Return the name or address in a ``Host``, without its port and a dot at its end."""
    if host.startswith("["):
        inside, _, port = host[1:].partition("]")
        return inside.lower() if not port or port.startswith(":") else host
    return host.partition(":")[0].removesuffix(".").lower()
