"""Bytes to frames: the standard's framing, the same for any split, and in linear time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.wire import sse
from mlx_stack_proxy.wire.sse import Frame, FrameReader, FrameTooLong
from tests.engine.exchanges import splits

# Every way in which lines can end and begin, close together.
TOKENS = ["\n", "\r", "\r\n", "data: a", "data:b", "data", ":c", "event: x", "datax: 1", " ", "ü"]
TORN = st.lists(st.sampled_from(TOKENS), max_size=24).map(lambda t: "".join(t).encode())


def frames_of(pieces: list[bytes]) -> list[tuple[bytes, bytes | None]]:
    reader = FrameReader()
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    last = reader.finish()
    return [(frame.raw, frame.data) for frame in [*frames, *([last] if last else [])]]


def data_by_the_standard(whole: bytes) -> list[bytes]:
    """The data of each event, read line by line as the standard words it."""
    text = whole.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    found: list[bytes] = []
    lines: list[bytes] = []
    for line in [*text.split(b"\n"), b""]:
        if not line:
            if lines:
                found.append(b"\n".join(lines))
            lines = []
            continue
        name, colon, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" ") if colon else b"")
    return found


# Line feeds alone have a way of their own.
LF = st.lists(st.sampled_from(["\n", "\n\n", "data: a", ":c", "data: b\n\n"]), max_size=12).map(
    lambda t: "".join(t).encode()
)


@given(splits(TORN) | splits(LF))
def test_any_split_gives_the_same_frames(torn: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = torn
    assert frames_of(pieces) == frames_of([whole])


@pytest.mark.parametrize("blank", range(2, 7))
def test_surplus_blank_lines_belong_to_no_event(blank: int) -> None:
    whole = b"data: a" + b"\n" * blank + b"data: b" + b"\n" * blank
    frames = [(b"data: a\n\n", b"a"), (b"data: b\n\n", b"b")]
    assert frames_of([whole]) == frames
    assert frames_of([whole[at : at + 1] for at in range(len(whole))]) == frames


@given(splits(TORN))
def test_the_data_is_what_the_standard_says(torn: tuple[bytes, list[bytes]]) -> None:
    whole, pieces = torn
    data = [data for _, data in frames_of(pieces) if data is not None]
    assert data == data_by_the_standard(whole)


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (b"data: x\n\n", b"x"),
        (b"data:x\n\n", b"x"),
        (b"data:  x\n\n", b" x"),  # one space goes, not all
        (b"data\n\n", b""),
        (b"data: a\ndata: b\n\n", b"a\nb"),
        (b"data: a\r\ndata: b\r\n\r\n", b"a\nb"),
        (b"event: message\ndata: x\nid: 7\n\n", b"x"),
        (b": keepalive 3/9\n\n", None),
        (b": note\ndata: x\n\n", b"x"),
        (b"database: x\n\n", None),
        (b"event: ping\n\n", None),
    ],
)
def test_one_frame(raw: bytes, data: bytes | None) -> None:
    assert FrameReader().feed(raw) == [Frame(raw, data)]


def test_a_lone_cr_ends_lines_once_the_next_byte_is_there() -> None:
    reader = FrameReader()
    assert reader.feed(b"data: a\r\r") == []  # the second may be half of CR LF
    assert reader.feed(b"data: b\r\r") == [Frame(b"data: a\r\r", b"a")]
    assert reader.finish() == Frame(b"data: b\r\r", b"b")


@pytest.mark.parametrize("cut", range(4))
def test_a_byte_order_mark_is_skipped_at_the_beginning_only(cut: int) -> None:
    mark = "\ufeff".encode()
    whole = mark + b"data: a\n\n" + mark + b"data: b\n\n"
    pieces = [whole[:cut], whole[cut:]]
    # Within the stream it is a part of the field's name, which then is not `data`.
    assert frames_of(pieces) == [(b"data: a\n\n", b"a"), (mark + b"data: b\n\n", None)]


def test_the_first_bytes_of_a_mark_alone_are_no_mark() -> None:
    assert frames_of([b"\xef", b"\xbb", b"data: a\n\n"]) == [(b"\xef\xbbdata: a\n\n", None)]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r", b"\r\n"])
def test_the_end_of_the_stream_ends_the_last_event(end: bytes) -> None:
    reader = FrameReader()
    assert reader.feed(b"data: 1\n\ndata: 2" + end) == [Frame(b"data: 1\n\n", b"1")]
    rest = reader.finish()
    assert rest is not None and rest.data == b"2"
    assert reader.finish() is None


def test_a_long_event_is_not_scanned_again_with_every_read(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = 0

    class Counting:
        """The pattern of a blank line, which counts the bytes it has to look at."""

        def search(self, buffer: bytearray, position: int) -> object:
            nonlocal scanned
            found = pattern.search(buffer, position)
            scanned += (found.end() if found else len(buffer)) - position
            return found

    pattern = sse._BLANK_LINE
    monkeypatch.setattr(sse, "_BLANK_LINE", Counting())
    reader = FrameReader()
    piece = b"x" * 65_536
    assert reader.feed(b"data: ") == []
    total = len(b"data: ")
    for _ in range(160):
        assert reader.feed(piece) == []
        total += len(piece)
    assert [len(frame.raw) for frame in reader.feed(b"\n\ndata: y\n\n")] == [total + 2, 9]
    assert scanned < total * 1.01  # 10 MB once; scanned anew each time it would be 840 MB


def test_a_flood_of_blank_lines_is_not_kept() -> None:
    reader = FrameReader()
    for _ in range(100):
        assert reader.feed(b"\n\r\n" * 1000) == []
        assert len(reader._buffer) <= 1
    assert reader.feed(b"data: x\n\n") == [Frame(b"data: x\n\n", b"x")]


def test_an_event_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_FRAME_BYTES", 100)
    reader = FrameReader()
    assert len(reader.feed(b"data: " + b"x" * 80 + b"\n\n")) == 1  # each event by itself
    assert reader.feed(b"data: " + b"x" * 94) == []
    with pytest.raises(FrameTooLong):
        reader.feed(b"x")
