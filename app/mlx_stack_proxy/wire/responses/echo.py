"""Encodes the fields that a response repeats from its request, once for all events that carry it.

Clients' SDKs and Open Responses want all fields that OpenAI's own responses have, also those that
mean nothing here. A list of tools may have 40 kB, too much to encode for each event anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from ...frozen import frozen
from .tools import Shapes

_AS_GIVEN: Final[Mapping[str, Any]] = {
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "safety_identifier": None,
    "temperature": 1.0,
    "tool_choice": "auto",
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
_HERE: Final[Mapping[str, Any]] = {
    "background": False,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "service_tier": "default",
    "store": False,
}
_FUNCTION: Final = {"description": None, "parameters": None, "strict": None}


@frozen
class Echo:
    """The facts about a request that the encoder needs."""

    shapes: Shapes  # how the request offers its tools
    fields: bytes  # the fields to repeat: the members of a JSON object, without its braces


def echo_of(body: Mapping[str, Any]) -> bytes:
    """Return the fields that a response repeats from its request, as :attr:`Echo.fields`."""
    fields = {key: _or_default(body.get(key), default) for key, default in _AS_GIVEN.items()}
    fields |= _HERE
    fields["reasoning"] = {"effort": None, "summary": None, **_object(body.get("reasoning"))}
    fields["text"] = {"format": {"type": "text"}, **_object(body.get("text"))}
    fields["tools"] = [
        {**_FUNCTION, **tool} if tool.get("type") == "function" else tool
        for tool in body.get("tools") or ()
    ]
    return orjson.dumps(fields)[1:-1]


def _or_default(value: Any, default: Any) -> Any:
    return default if value is None else value


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
