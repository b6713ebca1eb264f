"""Reads the frames of a stream, or a whole completion, as deltas.

A chunk that is in OpenAI's form already is decoded in one step, and keeps its bytes. Any other one
is brought into form first: see ``chunk_form``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson
from msgspec import UNSET

from . import json_text, sse
from .chunk_form import (
    MAX_CHOICES,
    OF_SERVER,
    Believes,
    ChunkForm,
    always,
    choices_of,
    said_in,
    says_nothing,
)
from .delta import DECODE, ChoiceDelta, Chunk, Delta, index_of, render, typed

# A string in JSON that ends in the first half of a character, or begins with the second.
_FIRST_HALF = re.compile('([\ud800-\udbff])"')
_SECOND_HALF = re.compile('"([\udc00-\udfff])')
_NOT_IN_FORM = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class MalformedChunk(ValueError):
    """An event's data is neither a JSON object nor ``[DONE]``."""


class Halves:
    """Joins characters that one stream's events cut in two. At most one half waits at a time."""

    def __init__(self) -> None:
        self._first_half = ""

    def join(self, text: str) -> str:
        """Put the waiting half before its second half, and keep the text's own first half back."""
        if self._first_half and (second := _SECOND_HALF.search(text)):
            text = f"{text[: second.start(1)]}{self._first_half}{text[second.start(1) :]}"
            self._first_half = ""
        if first := _FIRST_HALF.search(text):
            self._first_half = first[1]
            text = text[: first.start()] + text[first.end(1) :]
        return text


class ChunkReader:
    """Reads one stream; its arguments are those of :class:`ChunkForm`."""

    __slots__ = ("_form", "_halves", "_newest", "_of_server")

    def __init__(
        self, id: str, model: str, believes: Believes = always, expected: int = MAX_CHOICES
    ) -> None:
        self._form = ChunkForm(id, model, believes, expected)
        self._halves = Halves()  # joins characters that the server cut in two
        self._newest: Chunk | None = None  # the last chunk, if it came in form
        self._of_server: dict[str, Any] = {}  # the fields in ``OF_SERVER``

    @property
    def begun(self) -> set[int]:
        """The choices of which anything has come, even just a role."""
        return self._form.begun

    def top(self) -> dict[str, Any]:
        """Return the fields that all chunks of the reply share, as the newest chunk has them."""
        self._take_top()
        return {**self._form.top, **self._of_server}

    def _take_top(self) -> None:
        """Let the form have the shared fields of the last chunk that it didn't see."""
        if (chunk := self._newest) is not None:
            self._newest = None
            self._form.top |= {"id": chunk.id, "created": chunk.created, "model": chunk.model}

    def _note_server(self, *values: Any) -> None:
        fields = zip(OF_SERVER, values, strict=True)
        self._of_server |= {key: value for key, value in fields if value is not None}

    def read(self, frame: sse.Frame) -> Delta | None:
        """Return what a frame says; None for a comment, or a chunk that says nothing.

        Raises :class:`MalformedChunk`.
        """
        data = frame.data
        if data is None:  # a comment: it is for us at most, and may look like one of ours
            return None
        try:
            chunk = DECODE(data)
        except _NOT_IN_FORM:
            return self._read_other(frame, data)
        usage = chunk.usage
        if usage is not None and not self._form.believes(usage):
            return self._read_other(frame, data)
        if len(chunk.choices) != 1:
            if chunk.choices or usage is None:
                return self._read_other(frame, data)
            self._newest = chunk
            return Delta(frame.raw, [], usage)
        piece = chunk.choices[0]
        said = piece.delta
        opens = said.role is not None or said.tool_calls or piece.finish_reason == "stop"
        if opens or piece.index not in self._form.begun:
            if not self._begins(piece):
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

    def _begins(self, piece: ChoiceDelta) -> bool:
        """Note what the chunk begins; return whether it is in form, at its place in the stream."""
        form, said, index = self._form, piece.delta, piece.index
        if index in form.begun:
            if said.role is not None:
                return False
        elif said.role is None or not form.takes(index):
            return False
        calls = said.tool_calls
        if piece.finish_reason == "stop" and (calls or index in form.called):
            return False
        for call in calls or ():
            if call.function.name and call.type is UNSET:
                return False
        form.begun.add(index)
        if calls:
            form.called.add(index)
        return True

    def _read_other(self, frame: sse.Frame, data: bytes) -> Delta | None:
        """Read a frame whose data is no chunk in form."""
        if data == sse.DONE:
            return Delta(frame.raw, done=True)
        try:
            payload, strict = json_text.decode(data, huge=True, join=self._halves.join)
        except ValueError as error:
            if data.isspace() or not data:
                return None  # the SDKs take blank data for broken JSON
            if data.strip() == sse.DONE:
                return Delta(sse.DONE_FRAME, done=True)
            raise MalformedChunk(f"an event that is not JSON: {error}") from None
        raw = frame.raw if strict else b""
        if not isinstance(payload, dict):
            raise MalformedChunk("an event that is no JSON object")
        self._take_top()
        self._note_server(*map(payload.get, OF_SERVER))
        formed = self._form.formed(payload)
        if formed is None:
            return None
        delta = typed(raw, formed)
        if delta.error is None and says_nothing(formed):
            return None
        try:
            encoded = orjson.dumps(formed)
            if not raw or encoded != orjson.dumps(payload):
                delta.raw = sse.data_frame(encoded)
        except orjson.JSONEncodeError:  # orjson reads deeper nesting than it writes
            delta.raw = frame.raw
        return delta

    def read_completion(self, completion: Mapping[str, Any]) -> Iterable[Delta]:
        """Yield a whole ``chat.completion`` as deltas, for upstreams that don't stream when asked.

        Nothing is lost: unknown fields of the message and the choice travel with the first delta
        that can carry them, those of the top level with each.
        """
        self._note_server(*map(completion.get, OF_SERVER))
        for payload in _payloads(completion):
            formed = self._form.formed(payload)
            if formed is not None:
                yield typed(render(formed), formed)
        yield Delta(sse.DONE_FRAME, done=True)


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
