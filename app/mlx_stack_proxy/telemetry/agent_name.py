"""Find the name under which an agent's requests are counted (docs/observability.md).

The first of these that has a name gives it: ``X-MLX-Stack-Agent``; ``X-MLX-Stack-Session``, unless
it is a UUID, which names a run and not an agent; the product in ``User-Agent``; the API key's
label.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Final

MAX_CHARACTERS: Final = 40
UNNAMED: Final = "unnamed"
_ODD = re.compile(r"[^\w.@+-]+")
_UUID = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]{4}){3}-?[0-9a-f]{12}", re.IGNORECASE)
# Programs that people know by another name than their product's: as recorded of Claude Code 2.1.332
# and Codex 0.169.0 (`codex_cli_rs` is its terminal program), and the async clients of two SDKs.
_KNOWN_AS: Final = {
    "claude-cli": "claude-code",
    "codex_exec": "codex",
    "codex_cli_rs": "codex",
    "asyncopenai-python": "openai-python",
    "asyncanthropic-python": "anthropic-python",
}
# A product, and the word after its slash if that is no version, which begins with a digit:
# `OpenAI/Python 1.109` is openai-python.
_PRODUCT = re.compile(r"\s*([^\s/()]+)(?:/([^\W\d][^\s/()]*))?")


def agent_name(headers: Mapping[str, str], key_label: str, *, shown: bool) -> str:
    """Return the agent's name, 40 characters at most; ``unnamed`` if nothing names it.

    ``headers``: by name in lower case. ``shown``: False returns a digest in place of the name.
    """
    name = (
        _short(headers.get("x-mlx-stack-agent", ""))
        or _of_session(headers.get("x-mlx-stack-session", ""))
        or _product(headers.get("user-agent", "")[:256])
        or key_label
        or UNNAMED
    )
    return name if shown else f"agent-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def _of_session(header: str) -> str:
    return "" if not header or _UUID.fullmatch(header.strip()) else _short(header)


@lru_cache(256)  # an agent sends the same header with every request
def _product(user_agent: str) -> str:
    match = _PRODUCT.match(user_agent)
    if match is None:
        return ""
    product = "-".join(part for part in match.groups() if part).lower()
    return _KNOWN_AS.get(product) or _short(product)


def _short(name: str) -> str:
    """Make a name safe for a log line, a table's column and a shell command."""
    return _ODD.sub("-", name[: 4 * MAX_CHARACTERS]).strip("-")[:MAX_CHARACTERS]
