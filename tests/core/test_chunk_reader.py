"""A chunk that is read only as far as it is new means what a chunk read whole means."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlx_stack_proxy.wire import chunks
from mlx_stack_proxy.wire.chunk_reader import ChunkReader
from mlx_stack_proxy.wire.chunks import MalformedChunk, read_frame
from mlx_stack_proxy.wire.events import TextDelta
from mlx_stack_proxy.wire.sse import Frame

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
    monkeypatch.setattr("mlx_stack_proxy.wire.chunk_reader.read_frame", None)
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


@pytest.mark.parametrize(
    "around",
    [
        r'{"choices":[{"index":0,"delta":{"c\u006fntent":"hi"},"content":"%s"}]}',
        r'{"choices":[{"index":0,"content":"%s","delta":{"content":"hi"}}]}',
        r'{"choices":[{"index":0,"delta":{"content":"hi"}}],"content":"%s"}',
        r'{"choices":[{"index":0,"delta":{"content":"hi"}}],"note":"\"content\":\"%s\""}',
        r'{"choices":[{"index":0,"delta":{"content":"%s","c\u006fntent":"hi"}}]}',
        r'{"choices":[null,{"index":1,"delta":{"content":"%s"}}]}',
        r'{"choices":[{"index":0},{"index":1,"delta":{"content":"%s"}}]}',
    ],
)
def test_a_text_is_found_where_it_stands_however_odd_the_chunk(around: str) -> None:
    reader = ChunkReader()
    for text in ("hi", "XX"):
        came = frame((around % text).encode())
        assert meaning(reader.read(came)) == meaning(read_frame(came))


def test_chunks_that_are_never_alike_are_not_looked_through_for_ever() -> None:
    reader = ChunkReader()
    for number in range(100):
        reader.read(frame(payload(f"word {number}", id=f"chatcmpl-{number}")))
    assert reader._tries == 8


# What stands between the quotes of a text: strings, broken ones, and more than one.
SCRAPS = [
    b"a",
    b'"',
    b'","',
    b"\\",
    b'\\"',
    b"\\\\",
    b"\\n",
    b"\\ud83d",
    b",",
    b"0",
    b"[",
    b"]",
    b"\n",
]
INSIDE = st.lists(st.sampled_from(SCRAPS), max_size=5).map(b"".join)
OTHERS = [payload("", choice={"finish_reason": "stop"}), payload("a", id="chatcmpl-2"), {}]
ALIKE = payload("HERE")


@settings(max_examples=400)
@given(st.lists(INSIDE, min_size=1, max_size=6), st.sampled_from(OTHERS), st.integers(0, 20))
def test_texts_that_are_read_together_are_those_of_each(
    inside: list[bytes], other: Json, room: int
) -> None:
    reader = ChunkReader()
    whole = frame(ALIKE)
    reader.read(whole)
    raws = [whole.raw.replace(b"HERE", text) for text in inside]
    frames = [Frame(raw, raw[6:-2]) for raw in [*raws, frame(other).raw, whole.raw]]
    if not reader.is_like(frames[0].raw):
        return
    found = reader.texts(frames, 0, room)
    assert sum(len(text.encode()) for text in found) <= room
    alone = []
    for one in frames[: len(found)]:
        chunk = read_frame(one)
        assert chunk.payload == payload(chunk.events[0].text)  # type: ignore[union-attr]
        alone.append(chunk.events[0].text)  # type: ignore[union-attr]
    assert found == alone


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, max_size=9))
def test_all_of_them_are_read_at_once(texts: list[str]) -> None:
    reader = ChunkReader()
    reader.read(frame(ALIKE))
    frames = [frame(payload(text)) for text in texts]
    found = reader.texts([*frames, frame(OTHERS[0])], 0, sys.maxsize)
    assert found == texts
