"""Reads chunks of ``/v1/chat/completions`` as events, and writes chunks of the proxy's own.

Servers spell some fields their own way, and all spellings become the same events: reasoning as
``reasoning_content`` (LiteLLM, vLLM, DeepSeek), ``reasoning`` (mlx-lm, OpenRouter) or ``thinking``;
calls as ``tool_calls`` or the older ``function_call``. ``chunk_form`` first respells the fields
that clients would not understand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from . import sse, surrogates
from .chunk_form import ChunkForm, choices_of, index_of, said_in, says_nothing
from .events import (
    Event,
    Finish,
    OtherDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    UpstreamErrorEvent,
    Usage,
)
from .field_forms import REASONING_FIELDS

_DEEP = 200  # opening brackets; a chunk with no more of them is flat enough for orjson to write
_NO_EVENTS: tuple[Event, ...] = ()


class MalformedChunk(ValueError):
    """An event's data is neither a JSON object nor ``[DONE]``."""


@dataclass(slots=True)
class Chunk:
    """One frame of a stream, with its events."""

    raw: bytes  # the frame to relay
    payload: dict[str, Any] | None  # the parsed object; None for ``[DONE]``
    events: Sequence[Event]
    done: bool = False  # the frame is ``[DONE]``

    def add(self, **fields: Any) -> None:
        """Add top-level fields to the object."""
        self.payload = {**(self.payload or {}), **fields}
        self.raw = render(self.payload)


def read_frame(frame: sse.Frame, form: ChunkForm) -> Chunk:
    """Return a frame's chunk in the form that clients expect.

    A chunk that is in this form already keeps its bytes; one that says nothing, or a comment, is
    :data:`NOTHING`. Raises :class:`MalformedChunk`.
    """
    data = frame.data
    if data is None:  # a comment: it is for us at most, and may look like one of ours
        return NOTHING
    if data == sse.DONE:
        return Chunk(frame.raw, None, _NO_EVENTS, done=True)
    raw = frame.raw
    try:
        payload = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if data.isspace() or not data:
            return NOTHING  # the SDKs take blank data for broken JSON
        if data.strip() == sse.DONE:
            return Chunk(sse.DONE_FRAME, None, _NO_EVENTS, done=True)
        try:
            payload, raw = surrogates.loads(data, join=form.halves.join), b""
        except ValueError:
            raise MalformedChunk(f"an event that is not JSON: {error}") from None
    if not isinstance(payload, dict):
        raise MalformedChunk("an event that is no JSON object")
    if raw and (event := form.texts.read(payload)) is not None:
        return Chunk(raw, payload, (event,))
    formed = form.formed(payload)
    if formed is None:
        return NOTHING
    events = read_events(formed)
    if not events and says_nothing(formed):
        return NOTHING
    try:
        encoded = orjson.dumps(formed)
        if not raw or encoded != orjson.dumps(payload):
            raw = sse.data_frame(encoded)
        else:
            form.texts.note(payload, events)
    except orjson.JSONEncodeError:  # orjson reads deeper nesting than it writes
        raw = frame.raw
    return Chunk(raw, formed, events)


def read_events(payload: Mapping[str, Any]) -> list[Event]:
    """Return the events of a chunk in form, in the order in which a client would apply them."""
    events: list[Event] = []
    for choice in payload.get("choices") or ():
        index = choice["index"]
        _read_delta(choice["delta"], index, events)
        if reason := choice.get("finish_reason"):
            events.append(Finish(index, reason))
    if error := payload.get("error"):
        events.append(_read_error(error))
    if usage := payload.get("usage"):
        events.append(_read_usage(usage))
    return events


def check_depth(chunk: Chunk) -> None:
    """Raise :class:`MalformedChunk` if orjson could read the payload but can't write it."""
    raw = chunk.raw
    if len(raw) <= 2 * _DEEP or raw.count(b"{") + raw.count(b"[") <= _DEEP:
        return
    try:
        orjson.dumps(chunk.payload)
    except orjson.JSONEncodeError:
        raise MalformedChunk("an event that is nested too deeply") from None


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return the reasoning in a delta or a message, from the first field that has any."""
    for field in REASONING_FIELDS:
        reasoning = message.get(field)
        if reasoning and isinstance(reasoning, str):
            return reasoning
    return ""


def _read_delta(delta: dict[str, Any], index: int, events: list[Event]) -> None:
    if reasoning := reasoning_of(delta):
        events.append(ReasoningDelta(index, reasoning))
    content = delta.get("content")
    if text := text_of(content):
        events.append(TextDelta(index, text))
    if refusal := delta.get("refusal"):
        events.append(RefusalDelta(index, refusal))
    for position, call in enumerate(delta.get("tool_calls") or ()):
        events.append(_read_call(index, position, call))
    if legacy := delta.get("function_call"):
        legacy_call = {"index": 0, "type": "function", "function": legacy}
        events.append(_read_call(index, 0, legacy_call))
    if delta.get("audio") or delta.get("images") or (content and not text):
        events.append(OtherDelta(index))


def _read_call(choice: int, position: int, call: dict[str, Any]) -> ToolCallDelta:
    function = call.get("function") or {}
    arguments = function.get("arguments")
    was_object = isinstance(arguments, (dict, list))  # some servers forget to encode them
    if was_object:
        arguments = orjson.dumps(arguments).decode()
    name = string_of(function.get("name"))
    index = index_of(call, position)
    odd = index is not call.get("index") or not _is_whole(call, name)
    return ToolCallDelta(
        choice, index, string_of(call.get("id")), name, string_of(arguments), was_object, odd
    )


def _is_whole(call: dict[str, Any], name: str) -> bool:
    """Whether a piece of a call has the fields that clients read without a check."""
    kind = call.get("type")
    typed = kind == "function" or (kind is None and not name)
    return typed and type(call.get("function")) is dict


def _read_usage(usage: dict[str, Any]) -> Usage:
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        count_of(usage.get("prompt_tokens")),
        count_of(usage.get("completion_tokens")),
        count_of(cached),
        counted_by_litellm=cached is None and "completion_tokens_details" in usage,
    )


def _read_error(error: Any) -> UpstreamErrorEvent:
    if not isinstance(error, dict):
        return UpstreamErrorEvent(str(error), "error", None)
    code = error.get("code")
    return UpstreamErrorEvent(
        str(error.get("message", "")),
        str(error.get("type") or "error"),
        None if code is None else str(code),
    )


def text_of(content: Any) -> str:
    """Return the text of a message's ``content``, which is a string, a list of parts, or None."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return "".join(text for text in parts if isinstance(text, str))
    return ""


def string_of(value: Any) -> str:
    """Return a string as it came; "" for any other value."""
    return value if isinstance(value, str) else ""


def count_of(value: Any) -> int:
    """Return a count from a usage; 0 if the value is not a positive integer."""
    return value if isinstance(value, int) and value > 0 else 0


def render(payload: Mapping[str, Any]) -> bytes:
    """Write a chunk as a frame."""
    return sse.data_frame(orjson.dumps(payload))


def chunks_of_completion(completion: Mapping[str, Any], form: ChunkForm) -> Iterable[Chunk]:
    """Yield a whole ``chat.completion`` as chunks, for upstreams that don't stream when asked to.

    Nothing is lost: unknown fields of the message and the choice travel on the first chunk that can
    carry them, those of the top level on each.
    """
    for payload in _payloads(completion):
        formed = form.formed(payload)
        if formed is not None:
            yield made(formed)
    yield Chunk(sse.DONE_FRAME, None, _NO_EVENTS, done=True)


def _payloads(completion: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    top = {key: value for key, value in completion.items() if key not in ("choices", "usage")}
    choices = [choice for choice in choices_of(completion) if isinstance(choice, dict)]
    yield {
        **top,
        "choices": [{**choice, "finish_reason": None} for choice in map(_as_piece, choices)],
    }
    ends = [_end_of(choice, position) for position, choice in enumerate(choices)]
    yield {**top, "choices": ends}
    if completion.get("usage"):
        yield {**top, "choices": [], "usage": completion["usage"]}


def _as_piece(choice: dict[str, Any]) -> dict[str, Any]:
    """Turn a completion's choice into a chunk's."""
    delta = dict(said_in(choice))
    if isinstance(calls := delta.get("tool_calls"), list):
        delta["tool_calls"] = [
            {"index": position, **call} if isinstance(call, dict) else call
            for position, call in enumerate(calls)
        ]
    return {
        **{key: choice[key] for key in choice if key not in ("message", "text")},
        "delta": delta,
    }


def _end_of(choice: dict[str, Any], position: int) -> dict[str, Any]:
    """Make the choice of a last chunk, with a finish reason even if the completion has none."""
    calls = said_in(choice).get("tool_calls")
    finish = choice.get("finish_reason") or ("tool_calls" if calls else "stop")
    return {"index": index_of(choice, position), "delta": {}, "finish_reason": finish}


def split_text(chunk: Chunk, length: int) -> tuple[Chunk, Chunk]:
    """Split a chunk of one choice's text in two, after ``length`` characters of the text.

    The first half keeps whatever else the chunk carries.
    """
    payload = chunk.payload or {}
    choice = payload["choices"][0]
    text = text_of(choice["delta"]["content"])
    head = {**choice, "delta": {**choice["delta"], "content": text[:length]}}
    tail = {
        "index": choice.get("index", 0),
        "delta": {"content": text[length:]},
        "finish_reason": None,
    }
    return made({**payload, "choices": [head]}), made({**payload, "choices": [tail]})


def made(payload: dict[str, Any]) -> Chunk:
    """Make a chunk of the proxy's own."""
    return Chunk(render(payload), payload, read_events(payload))


NOTHING = Chunk(b"", None, _NO_EVENTS)
