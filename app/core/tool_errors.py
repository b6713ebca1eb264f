"""Whether a tool's result is an error: OpenAI's format has no field for it, only the text."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

_HEAD: Final = 400  # characters at either end that are looked at
_BEGINS: Final = re.compile(
    r"\W{0,8}(?:error|errno|fatal|failure|failed|exception|traceback|panic|invalid|denied|unauthorized"
    r"|forbidden|not found|(?:unknown|no such) (?:tool|function|command|file)|tool execution failed"
    r"|cannot|could not|can't|unable to|timed out)\b|\W{0,8}(?:(?:ba|z)?sh|usage): ",
    re.IGNORECASE,
)
_HOLDS: Final = re.compile(
    r"Traceback \(most recent call last\)"
    r"|^[A-Z][\w.]{0,60}(?:Error|Exception): "
    r"|\b(?:exit(?:ed)?(?: with)?(?: status| code)?|return code|exit_code)[:= ]{1,3}[1-9]"
    r"|: (?:command not found|No such file or directory|Permission denied)",
    re.MULTILINE,
)
# One of these is in every text that _HOLDS finds something in; they are looked for much faster.
_MARKS: Final = (
    *("rror: ", "xception: ", "Traceback", "exit", "return code"),
    *("command not found", "No such file", "Permission denied"),
)
_SAYS_SO: Final = ("error", "errors", "is_error", "isError", "exception")
_STATUS: Final = frozenset({"error", "failed", "failure"})


def is_error(text: str) -> bool:
    """Whether a result says that its call failed. A guess from the words that tools use."""
    if not text:
        return False
    if text[0] == "{" and (said := _in_json(text)) is not None:
        return said
    if _BEGINS.match(text):
        return True
    if not any(mark in text for mark in _MARKS):
        return False
    ends = text if len(text) <= 2 * _HEAD else f"{text[:_HEAD]} {text[-_HEAD:]}"
    return _HOLDS.search(ends) is not None


def _in_json(text: str) -> bool | None:
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    if any(value.get(key) for key in _SAYS_SO):
        return True
    for key in ("success", "ok"):
        if value.get(key) is False:
            return True
    status = value.get("status")
    if isinstance(status, str) and status.lower() in _STATUS:
        return True
    codes = (value.get(key) for key in ("exit_code", "exitCode", "returncode", "return_code"))
    return any(isinstance(code, int) and code != 0 for code in codes)
