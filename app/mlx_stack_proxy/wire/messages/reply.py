"""A reply's parts in Anthropic's words."""

from __future__ import annotations

from typing import Any, Final

import orjson

from ..chunks import count_of
from ..dialect import Context
from ..transcript import Json

_BYTES_PER_TOKEN: Final = 4  # of what a model writes, where nobody has counted it
# Which stop sequence ended a reply, chat completions don't say: that is the end of a turn, too.
_STOPS: Final = {"length": "max_tokens", "content_filter": "refusal"}


def stop_reason(finish: Any, *, calls: bool) -> str:
    """Why a reply ended; one with calls wants their results, whatever its server says."""
    return "tool_use" if calls else _STOPS.get(finish, "end_turn")


def message(context: Context, usage: Json) -> Json:
    """A message that says nothing yet."""
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
    """``usage``: of the chat completion, if there is any. ``written``: characters of the reply."""
    if not isinstance(usage, dict):
        return counted(context.prompt_tokens(), 0, written // _BYTES_PER_TOKEN)
    details = usage.get("prompt_tokens_details")
    cached = count_of(details.get("cached_tokens")) if isinstance(details, dict) else 0
    prompt = count_of(usage.get("prompt_tokens"))
    return counted(max(prompt - cached, 0), cached, count_of(usage.get("completion_tokens")))


def counted(fresh: int, cached: int, written: int) -> Json:
    """``fresh`` and ``cached`` tokens of the prompt, and those that were ``written``."""
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": written,
    }


def made_id(context: Context, position: int) -> str:
    """The id of a call whose server gave it none."""
    return f"toolu_{context.request_id.removeprefix('req_')}_{position}"


def parsed(arguments: Any) -> Json:
    """The arguments of a call. What nobody has checked may be no object: it goes on as text."""
    try:
        found = orjson.loads(arguments or "{}")
    except (orjson.JSONDecodeError, TypeError):
        found = None
    return found if isinstance(found, dict) else {"arguments": arguments}
