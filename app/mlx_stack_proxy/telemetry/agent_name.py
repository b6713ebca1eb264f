"""Who asks: the name under which an agent's requests are counted (docs/observability.md).

The first that says something: ``X-MLX-Stack-Agent``; ``X-MLX-Stack-Session``, unless it is a UUID,
which names a run and no agent; the product in ``User-Agent``; the label of the API key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

MOST_CHARACTERS: Final = 40
UNNAMED: Final = "unnamed"
_ODD = re.compile(r"[^\w.@+-]+")
_UUID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
# `OpenAI/Python 1.109`: what follows a product is its version, which begins with a digit.
# Programs whose product has another name than people know: as recorded of Claude Code 2.1.332 and
# Codex 0.169.0 (`codex_cli_rs` is its terminal's), and the async clients of two SDKs.
_KNOWN_AS: Final = {
    "claude-cli": "claude-code",
    "codex_exec": "codex",
    "codex_cli_rs": "codex",
    "asyncopenai-python": "openai-python",
    "asyncanthropic-python": "anthropic-python",
}
_PRODUCT = re.compile(r"\s*([^\s/()]+)(?:/([^\W\d][^\s/()]*))?")


def agent_name(headers: Mapping[str, str], key_label: str, *, shown: bool) -> str:
    """``headers``: names in lower case. ``shown``: else a digest is the name."""
    name = (
        _short(headers.get("x-mlx-stack-agent", ""))
        or _of_session(headers.get("x-mlx-stack-session", ""))
        or _product(headers.get("user-agent", "")[:256])
        or key_label
        or UNNAMED
    )
    return name if shown else f"agent-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def _of_session(given: str) -> str:
    return "" if not given or _UUID.fullmatch(given.strip()) else _short(given)


@lru_cache(256)  # an agent sends the same with every request
def _product(user_agent: str) -> str:
    found = _PRODUCT.match(user_agent)
    if found is None:
        return ""
    product = "-".join(part for part in found.groups() if part).lower()
    return _KNOWN_AS.get(product) or _short(product)


def _short(given: str) -> str:
    """Fit for a line, a column and a command."""
    return _ODD.sub("-", given[: 4 * MOST_CHARACTERS]).strip("-")[:MOST_CHARACTERS]
