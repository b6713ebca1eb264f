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


def _pattern(entry: str) -> re.Pattern[str]:
    return re.compile(_WORD.join(map(re.escape, _BRACES.split(entry))))


_SERVES = [_pattern(entry) for entry in _SERVING]


def serves_models(method: str, path: str) -> bool:
    """Whether a request there asks the model that its body names. ``path``: percent-decoded."""
    return any(pattern.fullmatch(f"{method} {path}") for pattern in _SERVES)


class AllowedPaths:
    """The requests allowed with our key. ``opened``: the operator's, like ``GET /v1/files``."""

    def __init__(self, opened: Iterable[str]) -> None:
        self._opened = [_pattern(entry) for entry in opened]

    def has(self, method: str, path: str) -> bool:
        """Whether a request is allowed. ``path``: percent-decoded."""
        request = f"{method} {path}"
        return any(pattern.fullmatch(request) for pattern in (*_SERVES, *self._opened))
