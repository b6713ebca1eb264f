"""Reads a stream's frames, or a whole completion, into deltas, and normalises servers' variants.

A chunk in OpenAI's form is decoded in one step and keeps its bytes. OpenAI's SDKs, and frameworks
built on them, rely on that form: a chunk without ``choices``, a ``message`` in place of a ``delta``
or a role in every chunk crashes an agent or corrupts its history. So every other chunk is
normalised: a field gets OpenAI's spelling if its own spelling can mean only one thing
(``field_forms``), and a chunk without any content is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import orjson
from msgspec import UNSET

from . import field_forms, json_text, sse
from .delta import CHUNK, DECODE, ChoiceDelta, Chunk, Delta, DeltaContent, index_of, render, typed

MAX_CHOICES: Final = 128  # the most choices a client may ask for
Believes = Callable[[Mapping[str, Any]], bool]
# Fields that are the same in all chunks of a reply.
_SERVER_FIELDS: Final = ("system_fingerprint", "service_tier")
_SHARED: Final = frozenset(
    {"id", "object", "created", "model", "choices", "obfuscation", *_SERVER_FIELDS}
)
# A JSON string that ends with the first half of a surrogate pair, or begins with the second.
_FIRST_HALF = re.compile('([\ud800-\udbff])"')
_SECOND_HALF = re.compile('"([\udc00-\udfff])')
_NOT_IN_FORM = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class MalformedChunk(ValueError):
    """An event's data is neither a JSON object nor ``[DONE]``."""


class ChunkReader:
    """Reads one stream.

    ``id`` and ``model`` fill in for chunks that lack them, until a chunk has its own. A usage that
    ``believes`` rejects is left out, because it can't be true. Only the first ``expected`` choices
    are kept; a server that sends more does so unasked. ``joins``: the client gets no frames, so
    frames that arrive together may be merged.
    """

    def __init__(
        self,
        id: str,
        model: str,
        believes: Believes = lambda usage: True,
        expected: int = MAX_CHOICES,
        *,
        joins: bool = False,
    ) -> None:
        self._believes = believes
        self._joins = joins
        self._expected = expected
        self.begun: set[int] = set()  # choices whose role has gone out
        self._choices_with_calls: set[int] = set()  # choices with a tool call
        self._first_half = ""  # of a surrogate pair that the server has split
        self._newest: Chunk | None = None  # the last chunk, if it was in form
        # The fields that all chunks of a reply share. `created` is 0 until a chunk brings a time.
        self._top: dict[str, Any] = {"id": id, "created": 0, "model": model, "object": CHUNK}
        self._server_fields: dict[str, Any] = {}  # the fields in ``_SERVER_FIELDS``

    def top(self) -> dict[str, Any]:
        """Return the fields that all chunks of the reply share, as of the newest chunk."""
        self._copy_shared_fields()
        return {**self._top, **self._server_fields}

    def _copy_shared_fields(self) -> None:
        """Copy the shared fields of the last chunk, if it was decoded in one step."""
        if (chunk := self._newest) is not None:
            self._newest = None
            self._top |= {"id": chunk.id, "created": chunk.created, "model": chunk.model}

    def _note_server(self, *values: Any) -> None:
        fields = zip(_SERVER_FIELDS, values, strict=True)
        self._server_fields |= {key: value for key, value in fields if value is not None}

    def read_all(self, frames: Iterable[sse.Frame]) -> Iterator[Delta]:
        """Yield the deltas of frames; comments and chunks without content yield nothing.

        With ``joins``, frames that only add text to one choice become one delta without a frame.
        Raises :class:`MalformedChunk`.
        """
        texts: Delta | None = None  # the text that the next frame may extend
        for frame in frames:
            data = frame.data
            if data is None:  # a comment; upstream's must not pass for one of ours
                continue
            chunk: Chunk | None
            try:
                chunk = DECODE(data)
            except _NOT_IN_FORM:
                chunk = None
            text = None
            if chunk is not None and self._joins and len(chunk.choices) == 1 and not chunk.usage:
                piece = chunk.choices[0]
                text = piece.delta.content
                if piece != ChoiceDelta(piece.index, DeltaContent(text)):  # it has more
                    text = None
            if texts is not None:
                if text and piece.index == texts.choices[0].index:
                    texts.texts.append(text)
                    continue
                yield _joined_texts(texts)
                texts = None
            delta = self._read(frame, data, chunk)
            if text and delta is not None:
                texts = delta
                texts.texts = [text]
            elif delta is not None:
                yield delta
        if texts is not None:
            yield _joined_texts(texts)

    def read(self, frame: sse.Frame) -> Delta | None:
        """Read one frame as :meth:`read_all` does; None if it has no content."""
        return next(self.read_all((frame,)), None)

    def _read(self, frame: sse.Frame, data: bytes, chunk: Chunk | None) -> Delta | None:
        """Return a frame's delta. ``chunk``: its decoded data, if in form."""
        if chunk is None:
            return self._read_other(frame, data)
        usage = chunk.usage
        if usage is not None and not (field_forms.is_usage(usage) and self._believes(usage)):
            return self._read_other(frame, data)
        if len(chunk.choices) != 1:
            if chunk.choices or usage is None:
                return self._read_other(frame, data)
            self._newest = chunk
            return Delta(frame.raw, [], usage)
        piece = chunk.choices[0]
        said = piece.delta
        opens = said.role is not None or said.tool_calls or piece.finish_reason == "stop"
        if opens or piece.index not in self.begun:
            if not self._note_beginning(piece):
                return self._read_other(frame, data)
        elif not (said.content or piece.finish_reason or said.says_more or usage):
            return None
        self._newest = chunk
        if chunk.system_fingerprint is not None or chunk.service_tier is not None:
            self._note_server(chunk.system_fingerprint, chunk.service_tier)
        delta = Delta(frame.raw, chunk.choices, usage)
        if said.provider_specific_fields:
            fields = {"provider_specific_fields": said.provider_specific_fields}
            delta.more = {"choices": [{"index": piece.index, "delta": fields}]}
        return delta

    def _note_beginning(self, piece: ChoiceDelta) -> bool:
        """Note what the chunk begins; return whether it is in form at this point of the stream."""
        said, index = piece.delta, piece.index
        if index in self.begun:
            if said.role is not None:
                return False
        elif said.role is None or not self._accepts(index):
            return False
        calls = said.tool_calls
        if piece.finish_reason == "stop" and (calls or index in self._choices_with_calls):
            return False
        for call in calls or ():
            if call.function.name and call.type is UNSET:
                return False
        self.begun.add(index)
        if calls:
            self._choices_with_calls.add(index)
        return True

    def _accepts(self, index: int) -> bool:
        return index in self.begun or len(self.begun) < self._expected

    def _read_other(self, frame: sse.Frame, data: bytes) -> Delta | None:
        """Read a frame whose data is not a chunk in form."""
        if data == sse.DONE:
            return Delta(frame.raw, done=True)
        try:
            payload, strict = json_text.decode(data, huge=True, join=self._join_surrogates)
        except ValueError as error:
            if data.isspace() or not data:
                return None  # the SDKs fail on blank data
            if data.strip() == sse.DONE:
                return Delta(sse.DONE_FRAME, done=True)
            raise MalformedChunk(f"an event that is not JSON: {error}") from None
        raw = frame.raw if strict else b""
        if not isinstance(payload, dict):
            raise MalformedChunk("an event that is not a JSON object")
        formed = self.formed(payload)
        if formed is None:
            return None
        delta = typed(raw, formed)
        if delta.error is None and _is_empty(formed):
            return None
        try:
            encoded = orjson.dumps(formed)
            if not raw or encoded != orjson.dumps(payload):
                delta.raw = sse.data_frame(encoded)
        except orjson.JSONEncodeError:  # orjson reads deeper nesting than it writes
            delta.raw = frame.raw
        return delta

    def _join_surrogates(self, text: str) -> str:
        """Join surrogate pairs that are split between events.

        Prepend the pending first half, and keep back a first half that ends the text.
        """
        if self._first_half and (second := _SECOND_HALF.search(text)):
            text = f"{text[: second.start(1)]}{self._first_half}{text[second.start(1) :]}"
            self._first_half = ""
        if first := _FIRST_HALF.search(text):
            self._first_half = first[1]
            text = text[: first.start()] + text[first.end(1) :]
        return text

    def formed(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Return a chunk in form; None if it has no content.

        A chunk that was in form already comes out equal, including its order of fields, so that the
        original bytes can be sent.
        """
        self._note_server(*map(payload.get, _SERVER_FIELDS))
        raw_choices = _choices_of(payload)
        if error := field_forms.error(payload, raw_choices):
            return {"error": error}
        choices = [
            self._choice(choice, index)
            for position, choice in enumerate(raw_choices)
            if isinstance(choice, dict) and self._accepts(index := index_of(choice, position))
        ]
        self._copy_shared_fields()
        for key in ("id", "model"):
            value = payload.get(key)
            if type(value) in (str, int) and value != "":
                self._top[key] = str(value)
        if (created := field_forms.whole_number(payload.get("created"))) is not None:
            self._top["created"] = created
        formed = {**payload, **self._top, "choices": choices}
        formed.pop("error", None)  # some clients treat `"error": null` as an error
        formed.pop("mlx_stack", None)  # our own field: no server may set it
        if "usage" in payload:
            usage = field_forms.usage(payload["usage"])
            formed["usage"] = usage if usage and self._believes(payload["usage"]) else None
        says_something = choices or formed.get("usage") or payload.get("choices") == []
        return formed if says_something else None

    def _choice(self, choice: dict[str, Any], index: int) -> dict[str, Any]:
        delta = field_forms.delta(_content_of(choice))
        if index not in self.begun:
            self.begun.add(index)
            delta["role"] = "assistant"
        elif delta.get("role") is not None:
            del delta["role"]
        if delta.get("tool_calls"):
            self._choices_with_calls.add(index)
        formed = {**choice, "index": index, "delta": delta}
        formed.pop("message", None)
        if not isinstance(choice.get("delta"), dict):
            formed.pop("text", None)
        if type(choice.get("logprobs")) not in field_forms.OBJECT_OR_NONE:
            del formed["logprobs"]
        if "finish_reason" in choice:
            reason = field_forms.finish_reason(choice["finish_reason"])
            # A reply with calls must finish with "tool_calls", or agents stop.
            calls_end = reason == "stop" and index in self._choices_with_calls
            formed["finish_reason"] = "tool_calls" if calls_end else reason
        return formed

    def read_completion(self, completion: Mapping[str, Any]) -> Iterable[Delta]:
        """Yield a ``chat.completion`` as deltas, for upstreams that don't stream when asked.

        Nothing is lost: unknown fields of the message and the choice are in the first delta that
        can carry them, those of the top level in each.
        """
        for payload in _payloads(completion):
            formed = self.formed(payload)
            if formed is not None:
                yield typed(render(formed), formed)
        yield Delta(sse.DONE_FRAME, done=True)


def _joined_texts(delta: Delta) -> Delta:
    if len(delta.texts) > 1:
        delta.raw = b""
        delta.choices[0].delta.content = "".join(delta.texts)
    return delta


def _choices_of(payload: Mapping[str, Any]) -> list[Any]:
    """Return a chunk's or completion's choices; some servers send one choice without a list."""
    choices = payload.get("choices")
    if isinstance(choices, dict):
        return [choices]
    return choices[:MAX_CHOICES] if isinstance(choices, list) else []


def _content_of(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return a choice's delta or message; an older completion's text as a message."""
    for message in (choice.get("delta"), choice.get("message")):
        if isinstance(message, dict):
            return message
    text = choice.get("text")
    return {"content": text} if isinstance(text, str) else {}


def _is_empty(formed: Mapping[str, Any]) -> bool:
    """Whether a chunk in form has nothing for a client; the role counts as content."""
    for choice in formed["choices"]:
        said = any(value for key, value in choice.items() if key not in ("index", "delta"))
        if said or any(choice["delta"].values()):
            return False
    return bool(formed["choices"]) and not any(formed[key] for key in formed.keys() - _SHARED)


def _payloads(completion: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yield a completion's chunks: its content, its finish reason and its usage."""
    top = {key: value for key, value in completion.items() if key not in ("choices", "usage")}
    said: list[dict[str, Any]] = []
    ends: list[dict[str, Any]] = []
    choices = [choice for choice in _choices_of(completion) if isinstance(choice, dict)]
    for position, choice in enumerate(choices):
        delta = dict(_content_of(choice))
        calls = delta.get("tool_calls")
        if isinstance(calls, list):
            delta["tool_calls"] = [
                {"index": place, **call} if isinstance(call, dict) else call
                for place, call in enumerate(calls)
            ]
        fields = {key: choice[key] for key in choice if key not in ("message", "text")}
        said.append({**fields, "delta": delta, "finish_reason": None})
        finish = choice.get("finish_reason") or ("tool_calls" if calls else "stop")
        index = index_of(choice, position)
        ends.append({"index": index, "delta": {}, "finish_reason": finish})
    yield {**top, "choices": said}
    yield {**top, "choices": ends}
    if completion.get("usage"):
        yield {**top, "choices": [], "usage": completion["usage"]}
