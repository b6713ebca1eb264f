"""Wire ⇄ events: what a chunk of ``/v1/chat/completions`` means, and chunks made by us.

Servers spell some things their own way; all spellings become the same events: reasoning as
``reasoning_content`` (LiteLLM, vLLM, DeepSeek), ``reasoning`` (mlx-lm, OpenRouter) or ``thinking``;
calls as ``tool_calls`` or the older ``function_call``. What clients would not understand is brought
into form before (``chunk_form``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson

from . import sse, surrogates
from .chunk_form import CHUNK, ChunkForm, choices_of, index_of, said_in
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

_NO_EVENTS: tuple[Event, ...] = ()


class MalformedChunk(ValueError):
    """An event's data is neither a JSON object nor ``[DONE]``."""


@dataclass(slots=True)
class Chunk:
    """One frame and what it means.

    ``raw``: the bytes to relay. ``payload``: the parsed object; None for comments and ``[DONE]``.
    ``done``: it is ``[DONE]``.
    """

    raw: bytes
    payload: dict[str, Any] | None
    events: Sequence[Event]
    done: bool = False


def read_frame(
    frame: sse.Frame, halves: surrogates.Halves | None = None, form: ChunkForm | None = None
) -> Chunk:
    """The chunk in a frame. Raises :class:`MalformedChunk`.

    ``halves``: the reply's half characters so far, where it may have some. ``form``: brings the
    chunk into the form that clients expect; where it has that, its bytes stay.
    """
    data = frame.data
    if data is None:
        return Chunk(frame.raw, None, _NO_EVENTS)
    if data == sse.DONE:
        return Chunk(frame.raw, None, _NO_EVENTS, done=True)
    raw = frame.raw
    try:
        payload = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if data.isspace() or not data:
            return _NOTHING  # the SDKs take it for broken JSON
        if data.strip() == sse.DONE:
            return Chunk(sse.DONE_FRAME, None, _NO_EVENTS, done=True)
        payload, raw = _read_halves(data.strip(), halves, error), b""
    if not isinstance(payload, dict):
        raise MalformedChunk("an event that is no JSON object")
    formed = payload if form is None else form.formed(payload)
    if formed is None:
        return _NOTHING
    if formed is payload and raw:
        return Chunk(raw, payload, read_events(payload))
    try:
        return made(formed)
    except orjson.JSONEncodeError:  # nested too deeply to be written, and read it was
        return Chunk(frame.raw, formed, read_events(formed))


def _read_halves(data: bytes, halves: surrogates.Halves | None, error: ValueError) -> Any:
    """What is in an event with half a character; or it is malformed."""
    join = None if halves is None else partial(_join_halves, halves=halves)
    try:
        return surrogates.loads(data, join)
    except ValueError:
        raise MalformedChunk(f"an event that is not JSON: {error}") from None


def _join_halves(payload: Any, halves: surrogates.Halves) -> None:
    """Join what the deltas of earlier chunks left half with the other half in this one's."""
    for position, choice in _objects(payload, "choices"):
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            continue
        index = index_of(choice, position)
        surrogates.join_texts(delta, (index,), halves)
        for place, call in _objects(delta, "tool_calls"):
            function = call.get("function")
            if isinstance(function, dict):
                surrogates.join_texts(function, (index, index_of(call, place)), halves)


def _objects(holder: Any, field: str) -> Iterable[tuple[int, dict[str, Any]]]:
    """The objects in a list, with their places in it; none where there is no such list."""
    found = holder.get(field) if isinstance(holder, dict) else None
    listed = enumerate(found) if isinstance(found, list) else ()
    return ((position, one) for position, one in listed if isinstance(one, dict))


def read_events(payload: Mapping[str, Any]) -> list[Event]:
    """The events of one parsed chunk, in the order in which a client would apply them."""
    choices = payload.get("choices")
    if type(choices) is list and len(choices) == 1 and type(choice := choices[0]) is dict:
        delta = choice.get("delta")
        # What nearly every chunk is: a piece of one choice's text, and nothing else.
        if type(delta) is dict and len(delta) == 1 and type(text := delta.get("content")) is str:
            index = choice.get("index")
            more = choice.get("finish_reason") or payload.get("usage") or payload.get("error")
            if text and type(index) is int and not more:
                return [TextDelta(index, text)]
    events: list[Event] = []
    if isinstance(choices, list):
        for position, choice in enumerate(choices):
            if isinstance(choice, dict):
                _read_choice(choice, position, events)
    error = payload.get("error")
    if error:
        events.append(_read_error(error))
    usage = payload.get("usage")
    if isinstance(usage, dict):
        events.append(_read_usage(usage))
    return events


def _read_choice(choice: dict[str, Any], position: int, events: list[Event]) -> None:
    index = index_of(choice, position)
    delta = choice.get("delta")
    if isinstance(delta, dict):
        _read_delta(delta, index, events)
    reason = choice.get("finish_reason")
    if reason:
        events.append(Finish(index, str(reason)))


def reasoning_of(said: Mapping[str, Any]) -> str:
    """The reasoning in a delta or a message, in whichever of its fields."""
    for field in REASONING_FIELDS:
        reasoning = said.get(field)
        if reasoning and isinstance(reasoning, str):
            return reasoning
    return ""


def _read_delta(delta: dict[str, Any], index: int, events: list[Event]) -> None:
    if reasoning := reasoning_of(delta):
        events.append(ReasoningDelta(index, reasoning))
    content = delta.get("content")
    if content:
        text = content if isinstance(content, str) else text_of(content)
        if text:
            events.append(TextDelta(index, text))
    if len(delta) > 1 or not content:
        refusal = delta.get("refusal")
        if refusal and isinstance(refusal, str):
            events.append(RefusalDelta(index, refusal))
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            for place, call in enumerate(calls):
                if isinstance(call, dict):
                    events.append(_read_call(index, place, call))
        legacy = delta.get("function_call")
        if isinstance(legacy, dict):
            whole = {"index": 0, "type": "function", "function": legacy}
            events.append(_read_call(index, 0, whole))
        other = delta.get("audio") or delta.get("images")
        if other or (content and not text_of(content)):
            events.append(OtherDelta(index))


def _read_call(choice: int, place: int, call: dict[str, Any]) -> ToolCallDelta:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    arguments = function.get("arguments")
    was_object = isinstance(arguments, (dict, list))  # some servers forget to encode them
    if was_object:
        arguments = orjson.dumps(arguments).decode()
    name = _string(function.get("name"))
    at = index_of(call, place)
    return ToolCallDelta(
        choice,
        at,
        _string(call.get("id")),
        name,
        _string(arguments),
        was_object,
        at is not call.get("index") or not _is_whole(call, name),
    )


def _is_whole(call: dict[str, Any], name: str) -> bool:
    """Whether a piece of a call has what clients look for without asking whether it is there."""
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
    """The text of a message's ``content``: a string, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (p.get("text") if isinstance(p, dict) else p for p in content)
        return "".join(p for p in parts if isinstance(p, str))
    return ""


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def count_of(value: Any) -> int:
    """A number of something as it came; 0 for what is none."""
    return value if isinstance(value, int) and value > 0 else 0


def render(payload: Mapping[str, Any]) -> bytes:
    """The frame of a chunk made or changed by us."""
    return sse.data_frame(orjson.dumps(payload))


def chunks_of_completion(
    completion: Mapping[str, Any], form: ChunkForm | None = None
) -> Iterable[Chunk]:
    """A whole ``chat.completion`` as the chunks that a stream of it would have brought.

    For upstreams that answer a streamed request with JSON. Nothing is lost: unknown fields of the
    message, the choice and the top travel on the first chunk that can carry them.
    """
    for payload in _payloads(completion):
        formed = payload if form is None else form.formed(payload)
        if formed is not None:
            yield made(formed)
    yield Chunk(sse.DONE_FRAME, None, _NO_EVENTS, done=True)


def _payloads(completion: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    top = {k: v for k, v in completion.items() if k not in ("choices", "usage", "object")}
    top["object"] = CHUNK
    for position, choice in enumerate(choices_of(completion)):
        if not isinstance(choice, dict):
            continue
        index = index_of(choice, position)
        delta = dict(said_in(choice))
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            delta["tool_calls"] = [
                {"index": place, **call} if isinstance(call, dict) else call
                for place, call in enumerate(calls)
            ]
        rest = {k: v for k, v in choice.items() if k not in ("message", "text", "finish_reason")}
        yield {**top, "choices": [{**rest, "index": index, "delta": delta, "finish_reason": None}]}
        # What came whole has its end.
        finish = choice.get("finish_reason") or ("tool_calls" if calls else "stop")
        yield {**top, "choices": [{"index": index, "delta": {}, "finish_reason": finish}]}
    if completion.get("usage"):
        yield {**top, "choices": [], "usage": completion["usage"]}
    if completion.get("error"):
        yield {"error": completion["error"]}


def split_text(chunk: Chunk, at: int) -> tuple[Chunk, Chunk]:
    """A chunk of one choice's text in two, after ``at`` characters of the text.

    The first half keeps whatever else the chunk carries.
    """
    payload = chunk.payload or {}
    choice = payload["choices"][0]
    text = text_of(choice["delta"]["content"])
    head = {**choice, "delta": {**choice["delta"], "content": text[:at]}}
    tail = {"index": choice.get("index", 0), "delta": {"content": text[at:]}, "finish_reason": None}
    return made({**payload, "choices": [head]}), made({**payload, "choices": [tail]})


def made(payload: dict[str, Any]) -> Chunk:
    """A chunk of our own."""
    return Chunk(render(payload), payload, read_events(payload))


_NOTHING = Chunk(b"", None, _NO_EVENTS)
