"""Turns a request's body into that of a chat completion.

Fields that chat completions have too are copied. Other fields are translated; left out if they only
tune what a local model lacks (effort, verbosity, truncation, betas); or refused if the client's
meaning would be lost without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...errors import INVALID_REQUEST, ProxyError, invalid
from ..dialect import SessionName, Translated
from ..fields import has_type
from .echo import Echo, echo_of
from .items import messages_of
from .tools import tools_of

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
    if format_ := _response_format(body.get("text")):
        chat["response_format"] = format_
    echo = Echo(tools.shapes, echo_of(body))
    return Translated(chat, echo, tools.left_out, session_of(headers))


def session_of(headers: Mapping[str, str]) -> SessionName | None:
    """Return Codex's thread; its session, the thread that all others come from, has the budget."""
    parent = headers.get("session-id", "")
    for source in ("thread-id", "session-id"):
        if name := headers.get(source):
            return SessionName(source, name, parent if parent != name else "")
    return None


def _response_format(text: Any) -> dict[str, Any] | None:
    format_ = text.get("format") if isinstance(text, dict) else None
    if has_type(format_, "json_schema"):
        schema = {key: value for key, value in format_.items() if key != "type"}
        return {"type": "json_schema", "json_schema": schema}
    return format_ if has_type(format_, "json_object") else None
