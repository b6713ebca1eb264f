"""Filters the headers that are passed on; reads a client's API key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

# (name, value); names in lower case.
RawHeaders = list[tuple[bytes, bytes]]

# Headers about a single connection (RFC 9110, 7.6.1).
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
# The headers in which LiteLLM looks for a key, in its order (1.106.2: `get_api_key` in
# litellm/proxy/auth/user_api_key_auth.py; a test compares the list with the installed LiteLLM).
KEY_HEADERS = (
    "x-litellm-api-key",
    "authorization",
    "api-key",
    "x-api-key",
    "x-goog-api-key",
    "ocp-apim-subscription-key",
)
RAW_KEY_HEADERS = frozenset(name.encode() for name in KEY_HEADERS)
# LiteLLM removes these words anywhere in a key, and accepts `Basic` for `Bearer`; of an AWS
# signature it uses the credential.
_SCHEME = re.compile(r"(?:bearer|basic)\s+", re.IGNORECASE)
_AWS = "AWS4-HMAC-SHA256"
_CREDENTIALS = (re.compile(r"Credential=Bearer\s+([^/\s,]+)"), re.compile(r"Credential=([^/\s,]+)"))
_SAYS_NO_NAME = frozenset({b"keep-alive", b"close"})


def passed_on(headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> RawHeaders:
    """Return the headers to pass on; names are in lower case.

    Omits the names in ``dropped`` (which includes :data:`HOP_BY_HOP`), those that a ``connection``
    header names, and our own ``x-mlx-stack-*``.
    """
    kept: RawHeaders = []
    options: set[bytes] = set()  # the headers that a `connection` header names
    for header in headers:
        name, value = header
        if name in dropped:
            if name == b"connection" and value not in _SAYS_NO_NAME:
                options.update(part.strip().lower() for part in value.split(b","))
        elif not name.startswith(b"x-mlx-stack-"):
            kept.append(header)
    return [header for header in kept if header[0] not in options] if options else kept


def client_key(headers: Mapping[str, str]) -> str:
    """Return the API key that LiteLLM finds in a client's headers; "" if there is none.

    ``headers``: names in lower case. In ``Authorization`` a key needs its scheme before it.
    """
    for name in KEY_HEADERS:
        value = headers.get(name, "").strip()
        if value.startswith(_AWS):
            found = filter(None, (pattern.search(value) for pattern in _CREDENTIALS))
            value = next((match[1] for match in found), "")
        elif name != "authorization" or _SCHEME.match(value):
            value = _SCHEME.sub("", value)
        else:
            continue
        if value:
            return value
    return ""
