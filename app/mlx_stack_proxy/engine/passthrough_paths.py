"""Decides which of LiteLLM's paths a client may use with our key.

Under ``/v1/`` LiteLLM also has its administration: servers that it starts, its configuration, other
users' stored data. A request with our key may only go to paths that serve a model, and to those
that the operator allows (``server.passthrough_paths``). Paths are compared as LiteLLM's router sees
them: percent-decoded once, case-sensitive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import invalid

# Method and path; a part in braces matches any one segment.
_SERVING = (
    "POST /v1/embeddings",
    "POST /v1/completions",
    "POST /v1/responses",
    "POST /v1/messages",
    "POST /v1/messages/count_tokens",
    "POST /v1/audio/{one}",
    "POST /v1/images/{one}",
    "POST /v1/rerank",
    "POST /v1/moderations",
)
_ENCODED_SLASH = re.compile(r"%2f|%5c", re.IGNORECASE)
_BRACES = re.compile(r"\{[^{}/]*\}")
# A path segment without characters that another server could decode again.
_WORD = r"[^/%?#\s\\]+"


def check(target: str) -> None:
    """Refuse a path that two servers could read differently. Raises :class:`ProxyError` (400).

    ``target``: path and query as received. (``.`` and ``..`` are refused everywhere.)
    """
    path = target.partition("?")[0]
    if _ENCODED_SLASH.search(path):
        raise invalid("the path must not hold encoded slashes", "path")
    if "//" in path:
        raise invalid("the path must not hold empty segments (`//`)", "path")


def pattern(entries: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for ``METHOD /path`` of any entry, such as ``GET /v1/files/{id}``.

    It matches percent-decoded paths.
    """
    return re.compile("|".join(_WORD.join(map(re.escape, _BRACES.split(one))) for one in entries))


_SERVES = pattern(_SERVING)


def serves_models(method: str, path: str) -> bool:
    """Whether requests there go to the model that the body names. ``path``: percent-decoded."""
    return _SERVES.fullmatch(f"{method} {path}") is not None
