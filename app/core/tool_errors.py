"""Whether a tool's result says by its structure that the call failed: by a key, never by prose."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

_ENDS: Final = 400  # characters at either end in which a code may stand
# {"error": "..."}: BFCL's tools, FastAPI, most HTTP services. is_error, isError: Anthropic, MCP.
_TRUE: Final = ("error", "errors", "exception", "is_error", "isError")
_FALSE: Final = ("success", "ok")
_CODES: Final = ("exit_code", "exitCode", "returncode", "return_code")
# Each names its code: mini-swe-agent's element, then Codex', Claude Code's and Gemini CLI's line.
_ELEMENT: Final = re.compile(r"<(?:returncode|exit_code)>\s*+(-?\d++)")
_LINE: Final = re.compile(r"^[ \t]*+Exit [Cc]ode: (-?\d++)", re.MULTILINE)


def is_error(text: str, message: Mapping[str, Any] | None = None) -> bool:
    """Whether a result says that its call failed. ``message``: the one that holds it."""
    if message is not None and (message.get("is_error") is True or message.get("isError") is True):
        return True
    if not text:
        return False
    ends = text if len(text) <= 2 * _ENDS else f"{text[:_ENDS]}\n{text[-_ENDS:]}"
    return any(says(ends if says is not _in_json else text) for says in STRUCTURES.values())


def _in_json(text: str) -> bool:
    if text[0] != "{":
        return False
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    if not isinstance(value, dict):
        return False
    if any(value.get(key) for key in _TRUE) or any(value.get(key) is False for key in _FALSE):
        return True
    codes = (value.get(key) for key in _CODES)
    return any(isinstance(code, int) and code != 0 for code in codes)


def _in_element(text: str) -> bool:
    return "<" in text and _says_failure(_ELEMENT.search(text))


def _in_line(text: str) -> bool:
    return "ode: " in text and _says_failure(_LINE.search(text))


def _says_failure(found: re.Match[str] | None) -> bool:
    return found is not None and int(found[1]) != 0


STRUCTURES: Final[dict[str, Callable[[str], bool]]] = {
    "keys of JSON": _in_json,
    "an element: <returncode>1</returncode>": _in_element,
    "a line: Exit code: 1": _in_line,
}
