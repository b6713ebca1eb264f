"""Turns a request's body into that of a chat completion.

Fields that chat completions have too are copied. Other fields are translated; left out if they only
tune what a local model lacks (effort, verbosity, truncation, betas); or refused if the client's
meaning would be lost without them. The fields that a response repeats from its request are encoded
here, once for all events that carry the response: a list of tools may have 40 kB.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from ...errors import INVALID_REQUEST, ProxyError, invalid
from ...frozen import frozen
from ..dialect import SessionName, Translated
from ..fields import has_type
from .items import messages_of
from .tools import Shapes, tools_of

_COPIED: Final = (
    "model",
    "stream",
    "temperature",
    "top_p",
    "metadata",
    "user",
    "prompt_cache_key",  # names a session where nothing else does
)
_NO_STORE: Final = "responses are not stored here: send the whole conversation in `input`"
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "previous_response_id": ("previous_response_not_found", _NO_STORE),
    "conversation": ("conversation_not_found", _NO_STORE),
    "prompt": ("prompt_not_found", "prompts are not stored here: send its text in `input`"),
    "background": ("not_supported", "nothing runs in the background here: stream the response"),
}
# Clients' SDKs and Open Responses want all fields that OpenAI's own responses have, also those that
# mean nothing here.
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


def to_chat(body: dict[str, Any], headers: Mapping[str, str]) -> Translated:
    """Translate a request. Raises :class:`ProxyError` (400)."""
    for name, (code, sentence) in _REFUSED.items():
        if body.get(name):
            raise ProxyError(400, INVALID_REQUEST, sentence, param=name, code=code)
    if body.get("input") in (None, []) and not body.get("instructions"):
        raise invalid("`input` is missing or empty; send a string or an array of items", "input")
    tools = tools_of(body)
    chat = {key: body[key] for key in _COPIED if body.get(key) is not None}
    chat["messages"] = messages_of(body)
    chat |= tools.fields
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    if (limit := body.get("max_output_tokens")) is not None:
        if type(limit) is not int or limit < 1:  # refuses True, which is an int
            raise invalid("`max_output_tokens` must be a whole number above 0", "max_output_tokens")
        chat["max_tokens"] = limit
    format_ = _object(body.get("text")).get("format")
    if has_type(format_, "json_schema"):
        schema = {key: value for key, value in format_.items() if key != "type"}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif has_type(format_, "json_object"):
        chat["response_format"] = format_
    echo = Echo(tools.shapes, _repeated(body))
    return Translated(chat, echo, tools.left_out, _session(headers))


def _session(headers: Mapping[str, str]) -> SessionName | None:
    """Return Codex's thread; its session, the thread that all others come from, has the budget."""
    parent = headers.get("session-id", "")
    for source in ("thread-id", "session-id"):
        if name := headers.get(source):
            return SessionName(source, name, parent if parent != name else "")
    return None


def _repeated(body: Mapping[str, Any]) -> bytes:
    """Return the fields that a response repeats from its request, as :attr:`Echo.fields`."""
    fields = {
        key: default if body.get(key) is None else body[key] for key, default in _AS_GIVEN.items()
    }
    fields |= _HERE
    fields["reasoning"] = {"effort": None, "summary": None, **_object(body.get("reasoning"))}
    fields["text"] = {"format": {"type": "text"}, **_object(body.get("text"))}
    fields["tools"] = [
        {**_FUNCTION, **tool} if tool.get("type") == "function" else tool
        for tool in body.get("tools") or ()
    ]
    return orjson.dumps(fields)[1:-1]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
