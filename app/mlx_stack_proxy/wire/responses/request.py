"""Translates a request's body into a chat completion's.

Fields that chat completions also have are copied. The others are translated; left out if they only
tune what a local model lacks (effort, verbosity, truncation, betas); or refused if leaving them out
would change the request's meaning. The fields that a response repeats from its request are encoded
here, once for all events that carry the response: a list of tools may have 40 kB.

An item that chat completions lack becomes a call or a result if it has a ``call_id``, else text. A
content of texts only becomes one string, which every chat template accepts. A part that chat
completions lack becomes text, its own JSON, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
from msgspec import Struct

from ...errors import INVALID_REQUEST, ProxyError, invalid
from ..dialect import SessionName, Translated
from ..fields import has_type, objects, refused, string
from ..transcript import Json, Part, Transcript, reminder
from .tools import Shapes, custom_arguments, flat_name, tools_of

Item = Mapping[str, Any]
_COPIED: Final = (
    "model",
    "stream",
    "temperature",
    "top_p",
    "metadata",
    "user",
    "prompt_cache_key",  # identifies a session if nothing else does
)
_NO_STORE: Final = "responses are not stored here: send the whole conversation in `input`"
_REFUSED: Final[Mapping[str, tuple[str, str]]] = {
    "previous_response_id": ("previous_response_not_found", _NO_STORE),
    "conversation": ("conversation_not_found", _NO_STORE),
    "prompt": ("prompt_not_found", "prompts are not stored here: send its text in `input`"),
    "background": ("not_supported", "nothing runs in the background here: stream the response"),
}
# Clients' SDKs and Open Responses require all fields of OpenAI's own responses, even those that are
# meaningless here.
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
# Fields outside an item's content: the protocol's own, or copied to the message.
_OUTSIDE: Final = frozenset({"type", "id", "call_id", "status", "caller"})
_ENDED: Final = (None, "in_progress", "completed")
_STORED: Final = {
    "item_reference": "items are not stored here: send the item itself",
    "compaction": "a compaction by another server can't be read here: send the items themselves",
    "compaction_trigger": "the input is not compacted here: ask for a summary in a message",
}
_TEXTS: Final = {
    **dict.fromkeys(("input_text", "output_text", "text", "summary_text"), "text"),
    "reasoning_text": "text",
    "refusal": "refusal",
}
_IMAGE_NOTE: Final = "[image: see the next message]"


class Echo(Struct, frozen=True):
    """What the encoder needs to know about the request."""

    shapes: Shapes  # how the request offers its tools
    fields: bytes  # the repeated fields: the members of a JSON object, without its braces


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
    """Return Codex's thread; its session, the root of all its threads, has the budget."""
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


def messages_of(body: Mapping[str, Any]) -> list[Json]:
    """Return a request's messages. Raises :class:`ProxyError` (400)."""
    transcript = Transcript()
    transcript.system([_text_of(body.get("instructions"))])
    value = body.get("input")
    if isinstance(value, str):
        transcript.user([value])
    else:
        for position, item in enumerate(objects(value, "input")):
            _take(transcript, item, f"input[{position}]")
    return transcript.messages()


def _take(transcript: Transcript, item: Item, path: str) -> None:
    kind = item.get("type") or ("message" if "role" in item else "item_reference")
    if not isinstance(kind, str):
        raise refused("must be a string", f"{path}.type")
    if kind in _STORED:
        raise ProxyError(
            400, INVALID_REQUEST, f"`{path}`: {_STORED[kind]}", param=path, code="not_supported"
        )
    _KINDS.get(kind, _other)(transcript, item, path)


def _message(transcript: Transcript, item: Item, path: str) -> None:
    role = string(item, "role", path)
    content = item.get("content")
    if role in ("system", "developer"):
        transcript.system([_text_of(content)])
    elif role == "assistant":
        transcript.assistant(_text_of(content, "") or None)
    elif role == "user":
        transcript.user(_content_of(content, f"{path}.content"))
    else:
        raise invalid(f"`{path}.role` must be user, assistant, system or developer", path)


def _reasoning(transcript: Transcript, item: Item, path: str) -> None:
    """Add the reasoning or its summary; encrypted reasoning can be read by its own server only."""
    transcript.assistant(thought=_text_of(item.get("content") or item.get("summary") or []))


def _function_call(transcript: Transcript, item: Item, path: str) -> None:
    arguments = item.get("arguments")
    text = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    transcript.call(string(item, "call_id", path), _name(item, path), text)


def _custom_call(transcript: Transcript, item: Item, path: str) -> None:
    arguments = custom_arguments(string(item, "input", path))
    transcript.call(string(item, "call_id", path), _name(item, path), arguments)


def _name(item: Item, path: str) -> str:
    return flat_name(string(item, "name", path), item.get("namespace"))


def _result(transcript: Transcript, item: Item, path: str) -> None:
    output, images = item.get("output"), []
    if isinstance(output, str):
        text = output
    elif isinstance(output, list) and all(isinstance(p, dict) and "type" in p for p in output):
        parts = _content_of(output, f"{path}.output")
        text = "\n".join(part if isinstance(part, str) else _IMAGE_NOTE for part in parts)
        images = [part for part in parts if not isinstance(part, str)]
    else:
        text = _as_json(item)
    status = item.get("status")
    marked = text if status in _ENDED else f"[{status}] {text}"
    # A local_shell_call_output has its call's id in `id`.
    call_id = item.get("call_id") or item.get("id")
    if not isinstance(call_id, str):
        raise refused("must be a string", f"{path}.call_id")
    transcript.result(call_id, marked, images)


def _other(transcript: Transcript, item: Item, path: str) -> None:
    """Add an item of a tool that is not offered here, or of an unknown type."""
    kind = str(item["type"])
    paired = isinstance(item.get("call_id"), str)
    if kind.endswith("_output") and (paired or kind == "local_shell_call_output"):
        _result(transcript, item, path)
    elif paired:
        transcript.call(item["call_id"], kind.removesuffix("_call"), _as_json(item))
    elif "role" in item or kind.endswith("_response"):
        transcript.user([reminder(f"[{kind}] {_as_json(item)}")])
    else:
        transcript.assistant(f"[{kind}] {_as_json(item)}")


def _as_json(item: Item) -> str:
    fields = {key: value for key, value in item.items() if key not in _OUTSIDE}
    if item["type"] == "image_generation_call":
        fields["result"] = "[image]"  # a model would read its bytes as words
    return orjson.dumps(fields).decode()


def _content_of(content: Any, path: str) -> list[Part]:
    """Return a user's parts. Raises :class:`ProxyError` (400) for a part that can't be read."""
    if not isinstance(content, list):
        return [_single(content)]
    parts: list[Part] = []
    for position, part in enumerate(content):
        convert = _PARTS.get(_kind(part))
        parts.append(convert(part, f"{path}[{position}]") if convert else _text(part))
    texts = [part for part in parts if isinstance(part, str)]
    return ["\n".join(texts)] if len(texts) == len(parts) else parts


def _text_of(content: Any, between: str = "\n") -> str:
    """Join a content's texts, and its other parts as JSON."""
    if not isinstance(content, list):
        return _single(content)
    return between.join(_text(part) for part in content)


def _single(content: Any) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) else orjson.dumps(content).decode()


def _kind(part: Any) -> str:
    return str(part.get("type")) if isinstance(part, dict) else ""


def _text(part: Any) -> str:
    field = _TEXTS.get(_kind(part))
    text = part.get(field) if field else None
    return text if isinstance(text, str) else _single(part)


def _image(part: Mapping[str, Any], path: str) -> Json:
    url = part.get("image_url")
    if not isinstance(url, str):
        raise invalid(f"`{path}.image_url` is missing: files are not stored here", path)
    detail = {"detail": part["detail"]} if part.get("detail") else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _file(part: Mapping[str, Any], path: str) -> Json:
    data = part.get("file_data")
    if not isinstance(data, str):
        raise invalid(f"`{path}.file_data` is missing: files are neither stored nor fetched", path)
    name = {"filename": part["filename"]} if part.get("filename") else {}
    return {"type": "file", "file": {"file_data": data, **name}}


_PARTS: Final[Mapping[str, Callable[[Any, str], Part]]] = {
    "input_image": _image,
    "input_file": _file,
    "input_audio": lambda part, path: {
        "type": "input_audio",
        "input_audio": part.get("input_audio"),
    },
}
_KINDS: Final[Mapping[Any, Callable[[Transcript, Item, str], None]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _result,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _result,
}
