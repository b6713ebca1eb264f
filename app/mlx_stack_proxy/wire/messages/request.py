"""Turns a Messages request into one for a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...errors import INVALID_REQUEST, ProxyError
from ..dialect import SessionName, Translated
from ..fields import STRING, each, members, require, string_or
from ..prompt_size import estimate_prompt_tokens
from ..transcript import Json
from .content import ContentReader, refused, text_in
from .tools import offer

# Begins a system text with the client's version and a digest, which change from turn to turn.
_BILLING = "x-anthropic-billing-header:"
_SAME = ("model", "max_tokens", "temperature", "top_p", "top_k", "stream")
_SESSION = "x-claude-code-session-id"
_AGENT = "x-claude-code-agent-id"
# The fields whose types the translation relies on.
_CHECKS = {
    "tools": each(members(type=STRING, name=STRING, description=STRING)),
    "tool_choice": string_or(members(type=STRING, name=STRING)),
}
_MOST_NAME = 256  # characters of a session's or an agent's name; the rest is ignored


def to_chat(body: Json, headers: Mapping[str, str]) -> Translated:
    """Translate a request. Raises :class:`ProxyError` (400)."""
    if body.get("thread") is not None:
        # A request to a thread holds only the new messages, so its history would be lost. The SDK
        # knows this code, and then sends whole transcripts.
        message = "threads are not kept here; send the whole transcript"
        code = "thread_unsupported_request"
        raise ProxyError(400, INVALID_REQUEST, message, param="thread", code=code)
    translated = _translated(body)
    return replace(translated, session=_session(headers))


def count_tokens(body: Json) -> Json:
    """Estimate a request's prompt tokens, also for one that :func:`to_chat` refuses."""
    try:
        chat_body = _translated(body).body
    except ProxyError:
        chat_body = body
    return {"input_tokens": estimate_prompt_tokens(chat_body)}


def _translated(body: Json) -> Translated:
    require(body, _CHECKS)
    reader = ContentReader()
    reader.transcript.system(_system_texts(body.get("system"), "system"))
    messages = body.get("messages")
    for position, message in enumerate(messages if isinstance(messages, list) else ()):
        path = f"messages[{position}].content"
        role = message.get("role") if isinstance(message, dict) else None
        if role == "system":
            reader.transcript.system(_system_texts(message.get("content"), path))
        elif role == "user":
            reader.user(message.get("content"), path)
        elif role == "assistant":
            reader.assistant(message.get("content"), path)
        else:
            raise refused("must be `user`, `assistant` or `system`", f"messages[{position}].role")
    fields, left_out = offer(body, reader.loaded)
    chat = {key: body[key] for key in _SAME if body.get(key) is not None}
    chat["messages"] = reader.transcript.messages() if isinstance(messages, list) else messages
    if (stop := body.get("stop_sequences")) is not None:
        chat["stop"] = stop
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    if schema := _schema(body):
        form = {"name": "output", "schema": schema, "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": form}
    chat |= fields
    return Translated(chat, left_out=left_out, failed=frozenset(reader.failed))


def _schema(body: Json) -> Any:
    """Return the JSON schema that the reply has to follow, from the newer or the older field."""
    config = body.get("output_config")
    response_format = (
        config.get("format") if isinstance(config, dict) else body.get("output_format")
    )
    return response_format.get("schema") if isinstance(response_format, dict) else None


def _system_texts(content: Any, path: str) -> list[str]:
    return [text for text in text_in(content, path) if not text.startswith(_BILLING)]


def _session(headers: Mapping[str, str]) -> SessionName | None:
    """Return Claude Code's session: each agent has its own history, all share one budget."""
    session = headers.get(_SESSION, "").strip()[:_MOST_NAME]
    if not session:
        return None
    agent = headers.get(_AGENT, "").strip()[:_MOST_NAME]
    return SessionName(_SESSION, f"{session}\0{agent}" if agent else session, session)
