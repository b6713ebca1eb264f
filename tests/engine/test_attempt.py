"""One attempt, from the bytes that upstream sends to the bytes for the client, without a socket."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.pipeline import StageState
from mlx_stack_proxy.engine.verdicts import Cut, Failure, LoopDetected, Verdict
from mlx_stack_proxy.wire import sse
from mlx_stack_proxy.wire.delta import Delta
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import attempt, client_request, exchange, relayed, splits
from tests.support.replies import DONE, KINDS, TOP, chunk, data, stream_bytes, usage_chunk

COMMENTS = [b": keepalive 1/2", b":", b"event: message", b"id: 7", b"retry: 10"]


def with_comments(name: str, crlf: bool, every: int) -> bytes:
    """A stream of this kind as other servers frame it."""
    end = b"\r\n\r\n" if crlf else b"\n\n"
    whole = bytearray()
    for at, payload in enumerate([*KINDS[name].chunks, usage_chunk()]):
        if every and at % every == 0:
            whole += COMMENTS[at % len(COMMENTS)] + end
        whole += data(payload, end)
    return bytes(whole + b"data: [DONE]" + end)


def choices_of(stream: bytes) -> Exchange:
    """Return an exchange whose client asked for as many choices as the stream has."""
    return exchange(client_request(n=2 if b'"index": 1, "delta"' in stream else 1))


def events(stream: bytes) -> bytes:
    """The stream without what has no data."""
    end = b"\r\n\r\n" if b"\r\n\r\n" in stream else b"\n\n"
    return b"".join(part + end for part in stream.split(end) if part.startswith(b"data:"))


VALID = st.builds(
    with_comments, st.sampled_from(sorted(KINDS)), st.booleans(), st.sampled_from([0, 1, 3])
)


@given(splits(VALID), st.booleans())
def test_whatever_is_valid_goes_out_as_it_came(
    stream: tuple[bytes, list[bytes]], hold_whole: bool
) -> None:
    whole, pieces = stream
    assert relayed(attempt(choices_of(whole), hold_whole=hold_whole), pieces) == events(whole)


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_FRAME_BYTES", 1000)
    one = attempt()
    one.feed(b"data: " + b"x" * 1000)
    assert isinstance(one.verdict, Failure)
    assert one.verdict.reason == "server_error"


@pytest.mark.parametrize(
    ("stream", "where"),
    [
        (b"", "before the reply began"),
        (b": keepalive\n\n", "before the reply began"),
        (DONE, "before the reply began"),
        (data(chunk({"role": "assistant"})), "before the reply began"),
        (data(chunk({"content": "a"})), "before the reply was finished"),
        (data(chunk({"content": "a"})) + DONE, "before the reply was finished"),
        (data(chunk({"content": "a"})) + b'data: {"choices": [{"del', "inside an event"),
        (
            data(chunk({"content": "a"}, "stop")) + data(chunk({"content": "b"}, index=1)) + DONE,
            "before the reply was finished",
        ),
    ],
)
def test_an_end_that_is_none(stream: bytes, where: str) -> None:
    one = attempt(choices_of(stream))
    one.feed(stream)
    if not one.over:
        one.end()
    assert not one.done
    assert one.verdict == Failure("server_error", f"the stream broke off {where}", status=200)


WHOLE = stream_bytes(KINDS["text"].chunks)
SHORT = data(chunk({"role": "assistant", "content": "a"})) + data(chunk({}, "stop"))


@pytest.mark.parametrize(
    ("pieces", "out"),
    [
        # A last event without its blank line: without [DONE] a client would wait on.
        *(([SHORT.rstrip(b"\n") + end], SHORT + DONE) for end in (b"", b"\n", b"\r\n")),
        # One whose blank line is of CRs goes out as it came.
        *(
            ([WHOLE.removesuffix(b"\n\n") + end], WHOLE.removesuffix(b"\n\n") + end)
            for end in (b"\r\r", b"\r\n\r", b"\n\r")
        ),
        ([WHOLE.removesuffix(DONE)], WHOLE),
        ([WHOLE + data(chunk({"content": "more"}))], WHOLE),
        ([WHOLE, b"noise"], WHOLE),
    ],
)
def test_how_a_whole_reply_ends(pieces: list[bytes], out: bytes) -> None:
    assert relayed(attempt(), pieces) == out


def test_an_event_that_is_no_json_ends_the_reply() -> None:
    one = attempt()
    text = data(chunk({"role": "assistant", "content": "a"}))
    assert one.feed(text + data(b"<html>")) == text
    assert isinstance(one.verdict, Failure)
    assert one.verdict.message.startswith("upstream sent an event that is no")
    assert one.verdict.fault == "server"


@pytest.mark.parametrize(
    ("delta", "stays"),
    [
        ({"content": "Yes"}, True),
        ({"refusal": "I can't"}, True),
        ({"audio": {"data": "AA=="}}, True),
        ({"reasoning_content": "Hm"}, False),
    ],
    ids=str,
)
def test_what_a_later_attempt_can_not_take_back(delta: Any, stays: bool) -> None:
    one = attempt()
    assert one.committed is None
    assert one.feed(data(chunk({"role": "assistant"})) + data(chunk(delta)))
    assert one.committed is not None
    assert one.committed.stays is stays


@pytest.mark.parametrize(
    ("delta", "reason"),
    [
        ({"content": "Hi."}, "stop"),
        (
            {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]},
            "tool_calls",
        ),
    ],
)
def test_a_usage_and_done_end_a_reply_without_its_finish(
    delta: dict[str, Any], reason: str
) -> None:
    one = attempt()
    out = b"".join(map(one.feed, (data(chunk(delta)), data(usage_chunk()), DONE)))
    assert one.done and one.settle() is None
    frames = [json.loads(frame[6:]) for frame in (out + one.rest()).split(b"\n\n")[:-2]]
    finishes = [choice["finish_reason"] for frame in frames for choice in frame["choices"]]
    assert [finish for finish in finishes if finish] == [reason]


# Stages


class Stopper:
    """Gives its verdict at the event it was told."""

    name = "stopper"
    bypass = ""

    def __init__(self, verdict: Verdict, at: Any) -> None:
        self.verdict = verdict
        self.at = at
        self.seen: list[str] = []

    def open(self, exchange: Exchange) -> StageState:
        stage = self

        class State(StageState):
            def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
                stage.seen.append(delta.text)
                return stage.verdict if delta.text == stage.at else None

        return State()


def test_a_verdict_ends_the_attempt_and_keeps_its_chunk_back() -> None:
    loop = LoopDetected("repetition", 3, "a loop")
    stopper = Stopper(loop, "b")
    one = attempt(stages=[stopper])
    parts = [data(chunk({"content": text})) for text in "bc"]
    first = data(chunk({"role": "assistant", "content": "a"}))
    assert one.feed(b"".join([first, *parts])) == first
    assert one.verdict is loop
    assert stopper.seen == ["a", "b"]  # nothing after it is read
    assert one.end() == b""
    assert one.verdict is loop


def test_a_reply_that_is_cut_is_ended() -> None:
    cut_off = Cut("max_output_tokens", "length")
    one = attempt(stages=[Stopper(cut_off, "a")])
    one.feed(data(chunk({"content": "a"})))
    assert one.verdict is cut_off
    one.settle()
    *_, end, usage, _, _ = one.rest().split(b"\n\n")
    for made in (end, usage):  # of no chunk that came, and in the form of all
        whole = json.loads(made.removeprefix(b"data: "))
        assert {key: whole[key] for key in TOP} == TOP
        assert whole["object"] == "chat.completion.chunk"
