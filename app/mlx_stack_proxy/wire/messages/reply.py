"""Writes the parts of a reply in Anthropic's terms: stop reason, message, usage, calls."""

from __future__ import annotations

from typing import Any, Final

import orjson

from ..delta import count_of
from ..dialect import Context
from ..transcript import Json

_BYTES_PER_TOKEN: Final = 4  # estimates output tokens if upstream sent no usage
# Chat completions don't tell a stop sequence from the end of a turn: both become "end_turn".
_STOPS: Final = {"length": "max_tokens", "content_filter": "refusal"}


def stop_reason(finish: Any, *, calls: bool) -> str:
    """Return the stop reason; a reply with calls has "tool_use", whatever its server says."""
    return "tool_use" if calls else _STOPS.get(finish, "end_turn")


def message(context: Context, usage: Json) -> Json:
    """Return a message without content."""
    return {
        "id": f"msg_{context.request_id.removeprefix('req_')}",
        "type": "message",
        "role": "assistant",
        "model": context.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }


def usage_of(usage: Any, context: Context, written: int) -> Json:
    """Translate a chat completion's usage; without one, estimate it.

    ``written``: characters of the reply.
    """
    if not isinstance(usage, dict):
        return counted(context.prompt_tokens(), 0, written // _BYTES_PER_TOKEN)
    details = usage.get("prompt_tokens_details")
    cached = count_of(details.get("cached_tokens")) if isinstance(details, dict) else 0
    prompt = count_of(usage.get("prompt_tokens"))
    return counted(max(prompt - cached, 0), cached, count_of(usage.get("completion_tokens")))


def counted(fresh: int, cached: int, written: int) -> Json:
    """Return a usage of the prompt's ``fresh`` and ``cached`` tokens, and the output's."""
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": written,
    }


def made_id(context: Context, position: int) -> str:
    """Return an id for a call without one."""
    return f"toolu_{context.request_id.removeprefix('req_')}_{position}"


def parsed(arguments: Any) -> Json:
    """Parse a call's arguments. Unchecked arguments that are no object are passed on as text."""
    try:
        value = orjson.loads(arguments or "{}")
    except (orjson.JSONDecodeError, TypeError):
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}
