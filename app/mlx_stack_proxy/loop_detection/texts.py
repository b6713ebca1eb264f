"""Extracts the compared text: an assistant's command, or a result without its numbers."""

from __future__ import annotations

import ast
import re
import string
from collections.abc import Callable, Sequence
from typing import Any, Final

MAX_TEXT: Final = 65_536  # characters; a longer result is compared with its numbers
_THINKING: Final = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_ACTION: Final = re.compile(r"^[ \t*#]*+Action[ \t*]*+:", re.MULTILINE)
_SHORT: Final = 3  # characters; a shorter value may be part of any word
_NUMBER: Final = re.compile(r"[0-9]\w*+")
_WORD: Final = re.compile(r"(\w++)")
# Codex puts this before a command's output: a fresh id, and the command's duration.
_OF_ITS_RUN: Final = re.compile(r"Chunk ID: \w+\nWall time: [0-9.]+ seconds\n")
_BEFORE_DIGITS: Final = string.ascii_letters + "_"


def collapse(text: str) -> str:
    """Collapse whitespace to single blanks, and strip it at the ends."""
    if text.isprintable() and "  " not in text:
        return text.strip(" ")  # a line of words: a blank is the only whitespace in print
    return " ".join(text.split())


def without_numbers(text: str) -> str:
    """Replace each word that has a digit by "#": 12, 0.3, a fresh id such as 7c1f3a."""
    if len(text) > MAX_TEXT:
        return text
    *words, last = _NUMBER.split(text)
    return "#".join([*[word.rstrip(_BEFORE_DIGITS) for word in words], last])


def brought_in(text: str) -> str:
    """Return a result without Codex's lines about this one run of the command."""
    run = _OF_ITS_RUN.match(text)
    return text[run.end() :] if run else text


def without_values(text: str, values: Sequence[str]) -> str:
    """Remove the values from a result that quotes them, as "No results for 'w7'" does.

    A short value, such as a number, is removed only where it is a separate word.
    """
    if len(text) > MAX_TEXT:
        return text
    short: set[str] = set()
    for value in values:
        if len(value) > _SHORT:
            text = text.replace(value, "")
        elif value in text:
            short.update(_WORD.findall(value))
    return "".join([part for part in _WORD.split(text) if part not in short]) if short else text


def action_in(text: str) -> tuple[str, bool]:
    """Return the command that ends an assistant's text, else the whole text; and which it is.

    An agent without tools writes its command into its text, after a thought whose words change
    each time. Lines are compared without their indentation, which models change.
    """
    visible = _THINKING.sub(" ", text) if "<think" in text else text
    for find in _COMMANDS.values():
        if command := find(visible).strip():
            return "\n".join(map(collapse, command.splitlines())), True
    return collapse(visible), False


def transcript_calls(text: str) -> list[dict[str, Any]]:
    """Return the calls that smolagents' ToolCallingAgent writes into its transcript as Python.

    Its model makes real calls, but the next request has no ``tool_calls``.
    """
    _, marker, calls = text.rpartition("Calling tools:\n")
    if not marker or len(calls) > MAX_TEXT:
        return []
    try:
        value = ast.literal_eval(calls.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [call for call in value if isinstance(call, dict)] if isinstance(value, list) else []


def _last_fence(text: str) -> str:
    parts = text.split("```")
    if len(parts) < 2:
        return ""
    closed_fences = (len(parts) - 1) // 2
    block = parts[2 * closed_fences - 1] if closed_fences else parts[-1]
    info, newline, body = block.partition("\n")
    return body if newline and (not info or info.strip().isalnum()) else block


def _last_action(text: str) -> str:
    """Return the last ``Action:`` line and its input, without a result that the model invented."""
    if "Action" not in text:
        return ""
    starts = [match.start() for match in _ACTION.finditer(text)]
    return text[starts[-1] :].partition("\nObservation")[0] if starts else ""


def _last_code(text: str) -> str:
    start = text.rfind("<code>")
    return text[start:].partition("</code>")[0] if start >= 0 else ""


# Each key names the agents that write commands in this form, by recordings or public prompts.
_COMMANDS: Final[dict[str, Callable[[str], str]]] = {
    "SWE-agent, mini-swe-agent: the last fence": _last_fence,
    "ReAct, as in LangChain: Action, Action Input": _last_action,
    "smolagents' CodeAgent: code": _last_code,
}
