"""Bytes from upstream to the client: framing, events, stages, gate; for any bytes and any split."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fuzz.mutations import JSON, TEXTS, cuts, damaged, few, written
from benchmarks.records import Json
from mlx_stack_proxy import stages
from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.engine.verdicts import Verdict, reason_of
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.tool_validation.formats.base import TURN_END
from mlx_stack_proxy.wire.sse import FrameReader
from tests.engine.exchanges import ODD, Faults, attempt, client_request, cut, exchange
from tests.support.replies import KINDS, TOP, chunk, usage_chunk
from tests.tool_validation.tool_replies import TOOLS

SETTINGS = from_mapping({})
SCRAPS = [
    b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n", b":", b": x\n\n", b"data", b"data:", b"data: ",
    b"data: [DONE]\n\n", b"data: {}\n\n", b'data: {"error": "x"}\n\n', b"event: error\n",
    b"id: 1\n", b"\xef\xbb\xbf", b"\x00", b"\xff", b"\xed\xa0\x80", b"{", b"}", b'"', b"\\",
    b"\\u", b"\\ud83d", b"null", b"1e999", b"<tool_call>", b"</think>", b'"index": 1',
    b'"finish_reason": "stop"',
]  # fmt: skip


def frames(pieces: list[bytes]) -> list[tuple[bytes, bytes | None]]:
    reader = FrameReader()
    found = [frame for piece in pieces for frame in reader.feed(piece)]
    last = reader.finish()
    return [(frame.raw, frame.data) for frame in (*found, *([last] if last else ()))]


# A stream of a server that is confused, or worse

CALL_PIECES = st.fixed_dictionaries(
    {"index": st.integers(0, 2)},
    optional={
        "id": st.sampled_from(["a", "b", "", None]),
        "type": st.just("function"),
        "function": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["search", "list_files", "none", "", None]),
                "arguments": st.sampled_from(
                    ["", "{", "}", "{}", '{"query": "x"}', '{"que', 'ry": "x"}', "null", None]
                ),
            },
        ),
    },
)
PROSE = st.sampled_from(
    ["Hello", " there", ".", "\n", "<tool_call>", '{"name": "search", "arguments": {"query": "x"}}',
     "</tool_call>", "```json\n", "```", "<think>", "</think>", "Action: search\n", "[1]", "{"]
) | TEXTS  # fmt: skip
DELTAS = (
    st.builds(lambda text: {"content": text}, PROSE)
    | st.builds(lambda text: {"reasoning_content": text}, PROSE)
    | st.builds(lambda calls: {"tool_calls": calls}, st.lists(CALL_PIECES, max_size=2))
    | st.just({"role": "assistant", "content": None})
    | st.dictionaries(
        st.sampled_from(["content", "tool_calls", "role", "refusal"]), ODD, max_size=2
    )
)
FINISH = st.sampled_from([None, None, None, None, "stop", "length", "tool_calls", "odd"])
CHUNKS = (
    st.builds(lambda delta, finish, at: chunk(delta, finish, at), DELTAS, FINISH, st.integers(0, 1))
    | st.sampled_from([usage_chunk(), {**TOP, "choices": []}, {"error": {"message": "no"}}])
    | st.builds(lambda odd: {**TOP, "choices": odd}, ODD)
    | st.builds(lambda usage: {**TOP, "choices": [], "usage": usage}, ODD)
)


def streamed(chunks: list[Json], end: bytes, style: int, done: bool) -> bytes:
    whole = b"".join(b"data: " + written(one, style).encode() + end for one in chunks)
    return whole + (b"data: [DONE]" + end if done else b"")


CONFUSED = st.builds(
    streamed,
    st.lists(CHUNKS, max_size=8),
    st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]),
    st.integers(0, 3),
    st.booleans(),
)
KNOWN = st.builds(
    streamed,
    st.sampled_from([kind.chunks for kind in KINDS.values()]),
    st.sampled_from([b"\n\n", b"\r\n\r\n"]),
    st.integers(0, 3),
    st.just(True),
)


@dataclass
class Came:
    out: bytes
    rest: bytes
    verdict: Verdict | None
    done: bool
    mended: set[int]


def relayed(one: Attempt, pieces: list[bytes]) -> Came:
    """The stream through an attempt; what is asked of it as the runner asks."""
    out = bytearray()
    if one.on_request() is None:
        for piece in pieces:
            if one.over:
                break
            out += one.feed(piece)
            assert one.finished in (True, False) and one.committed != ()  # may be asked at any time
        if not one.over:
            out += one.end()
    verdict = one.settle()
    mended = set(one.reply.mended)
    rest = b""
    if verdict is None:
        streams = one._client_request.stream
        rest = one.rest() if streams else json.dumps(one.completion()).encode()
    return Came(bytes(out), rest, verdict, one.done, mended)


ASKED = st.fixed_dictionaries(
    {
        "stream": st.booleans(),
        "include_usage": st.booleans(),
        "legacy_functions": st.booleans(),
    },
    optional={"tools": st.just(TOOLS), "n": st.just(2)},
)


def through(asked: Json, pieces: list[bytes], *, hold: bool) -> Came:
    faults = Faults()
    whole = exchange(client_request(**asked))
    one = attempt(whole, stages=stages.build(SETTINGS), faults=faults, hold_whole=hold)
    found = relayed(one, pieces)
    assert faults == []
    return found


@few
@given(damaged(CONFUSED | KNOWN, SCRAPS), ASKED, st.booleans(), st.data())
def test_streams(whole: bytes, asked: Json, hold: bool, data: st.DataObject) -> None:
    hold = hold or not asked["stream"]
    once = through(asked, [whole], hold=hold)
    pieces = cut(whole, data.draw(cuts(len(whole))))
    assert through(asked, pieces, hold=hold) == once
    if once.verdict is None:
        assert once.done
        if asked["stream"]:
            said = [event for _, event in frames([once.out + once.rest]) if event is not None]
            assert said[-1] == b"[DONE]"  # a comment may stand in its frame
    if not asked["stream"]:
        assert once.out == b""


# What nobody decides about

ENDS_IN_TOKEN = re.compile(rf"(?:{TURN_END.pattern})\s*\Z")
CLEAN = st.builds(
    lambda texts, more, end, style: streamed(
        [
            chunk({"role": "assistant", "content": ""}),
            *({**chunk({"content": text}), **more} for text in texts),
            {**chunk({}, "stop"), **more},
            usage_chunk(),
        ],
        end,
        style,
        done=True,
    ),
    # An empty chunk is left out, and so is a template's token at the end.
    st.lists(TEXTS.filter(bool), min_size=1, max_size=12).filter(
        lambda texts: ENDS_IN_TOKEN.search("".join(texts)) is None
    ),
    st.fixed_dictionaries({}, optional={"x": JSON, "system_fingerprint": JSON}),
    st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r"]),
    st.integers(0, 3),
)


@few
@given(CLEAN | KNOWN, st.booleans(), st.data())
def test_bytes_in_are_bytes_out(whole: bytes, hold: bool, data: st.DataObject) -> None:
    pieces = cut(whole, data.draw(cuts(len(whole))))
    two = re.search(rb'"index": ?1, ?"delta"', whole)
    found = through({"n": 2} if two else {}, pieces, hold=hold)
    if found.verdict is None and not found.mended:
        assert found.out + found.rest == whole


@few
@given(CLEAN)
def test_a_clean_text_is_nobodys_business(whole: bytes) -> None:
    found = through({}, [whole], hold=False)
    text = b"".join(found.out.split()) + b"".join(found.rest.split())
    if found.verdict is None:
        assert text == b"".join(whole.split())
    else:  # only where nothing was said is there something to say
        assert reason_of(found.verdict) == "empty_response"
