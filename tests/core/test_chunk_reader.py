"""A chunk that is read only as far as it is new means what a chunk read whole means."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core import chunks
from app.core.chunk_reader import ChunkReader
from app.core.chunks import MalformedChunk, read_frame
from app.core.events import TextDelta
from app.core.sse import Frame

Json = dict[str, Any]


def payload(text: Any, **more: Any) -> Json:
    delta = {"content": text, **more.pop("delta", {})}
    choice = {"index": 0, "delta": delta, "finish_reason": None, **more.pop("choice", {})}
    return {"id": "chatcmpl-1", "model": "m", "choices": [choice], **more}


def frame(value: Json | bytes, compact: bool = True, ascii: bool = False) -> Frame:
    if isinstance(value, bytes):
        data = value
    else:
        separators = (",", ":") if compact else None
        data = json.dumps(value, separators=separators, ensure_ascii=ascii).encode()
    return Frame(b"data: " + data + b"\n\n", data)


def meaning(chunk: chunks.Chunk) -> tuple[Any, ...]:
    return chunk.raw, list(chunk.events), chunk.done, chunk.payload


TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=8),
    st.sampled_from(["content", '"', "\\", '","x":"', '"}}]}', "\n", "\u2028", "😀", "chatcmpl-1"]),
)
PAYLOADS = st.one_of(
    TEXTS.map(payload),
    TEXTS.map(payload),
    TEXTS.map(lambda text: payload(text, id="chatcmpl-2")),
    TEXTS.map(lambda text: payload(text, choice={"index": 1})),
    TEXTS.map(lambda text: payload(text, choice={"finish_reason": "stop"})),
    TEXTS.map(lambda text: payload(text, choice={"logprobs": {"content": text}})),
    TEXTS.map(lambda text: payload(text, usage={"prompt_tokens": 1, "completion_tokens": 2})),
    TEXTS.map(lambda text: payload(text, delta={"role": "assistant"})),
    TEXTS.map(lambda text: payload(text, delta={"reasoning": text})),
    TEXTS.map(lambda text: payload("a", note=text)),
    st.just(payload(None)),
    st.just({"error": {"message": "no"}}),
)


@given(st.lists(PAYLOADS, max_size=12), st.booleans(), st.booleans())
def test_reads_what_a_whole_look_reads(said: list[Json], compact: bool, ascii: bool) -> None:
    reader = ChunkReader()
    for one in said:
        came = frame(one, compact, ascii)
        assert meaning(reader.read(came)) == meaning(read_frame(came))


@pytest.mark.parametrize("compact", [True, False])
def test_what_differs_in_its_text_alone_is_not_parsed_again(
    compact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ChunkReader()
    reader.read(frame(payload("first"), compact))
    monkeypatch.setattr("app.core.chunk_reader.read_frame", None)
    chunk = reader.read(frame(payload('a "quoted" wörd'), compact))
    assert chunk.events == [TextDelta(0, 'a "quoted" wörd')]
    assert chunk.unread
    assert chunk.payload == payload('a "quoted" wörd')


@given(st.binary(max_size=12))
def test_any_bytes_in_the_texts_place(noise: bytes) -> None:
    reader = ChunkReader()
    whole = frame(payload("HERE"))
    reader.read(whole)
    raw = whole.raw.replace(b"HERE", noise)
    came = Frame(raw, raw[6:-2])
    try:
        expected = meaning(read_frame(came))
    except MalformedChunk:
        with pytest.raises(MalformedChunk):
            reader.read(came)
        return
    assert meaning(reader.read(came)) == expected


def told(chunks_: Iterable[chunks.Chunk]) -> list[tuple[Any, ...]]:
    """What chunks mean, texts of one choice that follow each other joined."""
    found: list[tuple[Any, ...]] = []
    for chunk in chunks_:
        events = list(chunk.events)
        rest = chunk.payload
        if len(events) == 1 and isinstance(delta := events[0], TextDelta) and rest is not None:
            pieces = delta.pieces or (delta.text,)
            rest["choices"][0]["delta"]["content"] = ""
            if found and found[-1][:2] == ("text", rest):
                pieces = (*found.pop()[2], *pieces)
            found.append(("text", rest, pieces))
            assert "".join(pieces).endswith(delta.text)
        else:
            found.append((events, rest, chunk.done))
    return found


@given(st.lists(PAYLOADS, max_size=12), st.booleans(), st.booleans(), st.integers(0, 12))
def test_what_came_at_once_means_the_same(
    said: list[Json], compact: bool, ascii: bool, cut: int
) -> None:
    frames = [frame(one, compact, ascii) for one in said]
    reader = ChunkReader()
    read = [chunk for part in (frames[:cut], frames[cut:]) for chunk in reader.read_at_once(part)]
    assert told(read) == told(map(read_frame, frames))


# What could pass for another number of strings, were a text able to reach into the next.
CUNNING = [b'a","b', b"a\\", b'a",["b', b'c"],"d', b'a",\n"b', b'","', b'x":"y', b'a",{"b":"x']
CUNNING += [b'w":1},"e', b"\\ud83d", b"\\ude00", b"\n", b"plain", b""]


@given(st.lists(st.sampled_from(CUNNING) | st.binary(max_size=5), min_size=2, max_size=5))
def test_any_bytes_in_the_places_of_many_texts(noise: list[bytes]) -> None:
    before, after = frame(payload("HERE")).raw.split(b"HERE")
    frames = [Frame(raw, raw[6:-2]) for raw in [before + one + after for one in noise]]
    one_by_one, at_once = ChunkReader(), ChunkReader()
    for reader in (one_by_one, at_once):
        reader.read(frame(payload("HERE")))
    expected: list[chunks.Chunk] = []
    read: list[chunks.Chunk] = []
    with contextlib.suppress(MalformedChunk):
        for came in frames:
            expected.append(one_by_one.read(came))
    with contextlib.suppress(MalformedChunk):
        for chunk in at_once.read_at_once(frames):
            read.append(chunk)
    assert told(read) == told(expected)


def test_texts_that_came_at_once_are_read_at_once() -> None:
    reader = ChunkReader()
    reader.read(frame(payload("first")))
    texts = ["one", ' "two"', "\nthrée"]
    (chunk,) = reader.read_at_once([frame(payload(text)) for text in texts])
    assert chunk.unread
    assert chunk.events == [TextDelta(0, "".join(texts), tuple(texts))]
    assert chunk.payload == payload("".join(texts))


def test_chunks_that_are_never_alike_are_not_looked_through_for_ever() -> None:
    reader = ChunkReader()
    for number in range(100):
        reader.read(frame(payload(f"word {number}", id=f"chatcmpl-{number}")))
    assert reader._tries == 8
