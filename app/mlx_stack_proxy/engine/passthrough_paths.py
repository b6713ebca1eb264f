"""Knows which of LiteLLM's paths a client may use with our key.

Under ``/v1/`` LiteLLM also has its administration: servers that it starts, its configuration, what
other users have stored. A request with our key may only go to paths that serve a model, and to
those that the operator allows (``server.passthrough_paths``). Paths are compared as LiteLLM's
router sees them: percent-decoded once, and with their case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import invalid

# Method and path; a part in braces stands for any one word.
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
# One segment of a path, without characters that another server could decode once more.
_WORD = r"[^/%?#\s\\]+"


def check(target: str) -> None:
    """Refuse a path that two servers could read differently. Raises :class:`ProxyError` (400).

    ``target``: path and query as they came. (``.`` and ``..`` are refused everywhere.)
    """
    path = target.partition("?")[0]
    if _ENCODED_SLASH.search(path):
        raise invalid("the path must not hold encoded slashes", "path")
    if "//" in path:
        raise invalid("the path must not hold empty segments (`//`)", "path")


def pattern(entries: Iterable[str]) -> re.Pattern[str]:
    """Return what matches ``METHOD /path`` of any of the entries, like ``GET /v1/files/{id}``.

    The path is percent-decoded.
    """
    return re.compile("|".join(_WORD.join(map(re.escape, _BRACES.split(one))) for one in entries))


_SERVES = pattern(_SERVING)


def serves_models(method: str, path: str) -> bool:
    """Whether a request there asks the model that its body names. ``path``: percent-decoded."""
    return _SERVES.fullmatch(f"{method} {path}") is not None
