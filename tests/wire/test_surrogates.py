"""Half characters in JSON: joined where the other half comes, replaced where it doesn't."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.wire.json_text import decode
from tests.engine.exchanges import attempt, completion_of, relayed
from tests.server.asking import payloads, text_of
from tests.support.messages import call_piece
from tests.support.replies import DONE, chunk, data

FIRST, SECOND = "\\ud83d", "\\ude00"  # as they stand in JSON: the halves of 😀
END = data(chunk({}, "stop")) + DONE


def piece(text: str, **more: Any) -> bytes:
    """A chunk whose text stands in the JSON as it is given here."""
    return data(chunk({"content": "TEXT", **more})).replace(b"TEXT", text.encode())


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a" + FIRST, SECOND + "b"], "a😀b"),
        (["a", FIRST, SECOND, "b"], "a😀b"),
        ([FIRST, SECOND + FIRST, SECOND], "😀😀"),
        (["a" + FIRST + "b"], "a\ufffdb"),
        (["a" + SECOND, "b"], "a\ufffdb"),
        (["a" + FIRST, "b"], "ab"),  # the other half never comes
        (["a" + FIRST], "a"),
    ],
)
def test_text_that_is_cut_inside_a_character(texts: list[str], expected: str) -> None:
    pieces = [*map(piece, texts), END]
    assert text_of(relayed(attempt(), pieces)) == expected
    assert completion_of(b"".join(pieces))["choices"][0]["message"]["content"] == expected


def test_arguments_of_a_call_that_are_cut_inside_a_character() -> None:
    def calling(arguments: str) -> bytes:
        return data(chunk(call_piece("say", "TEXT"))).replace(b"TEXT", arguments.encode())

    pieces = [calling('{\\"x\\": \\"' + FIRST), calling(SECOND + '\\"}')]
    out = relayed(attempt(), [*pieces, data(chunk({}, "tool_calls")) + DONE])
    said = [
        call["function"]["arguments"]
        for payload in payloads(out)
        if payload != "[DONE]"
        for call in payload["choices"][0]["delta"].get("tool_calls", ())
    ]
    assert "".join(said) == '{"x": "😀"}'


@pytest.mark.parametrize("index", [{}, {"index": None}, {"index": "0"}])
def test_a_choice_without_an_index_is_told_by_its_place(index: dict[str, Any]) -> None:
    def both(*texts: str) -> bytes:
        choices = [{**index, "delta": {"content": f"TEXT{n}"}} for n in range(len(texts))]
        raw = data({**chunk({}), "choices": choices})
        for n, text in enumerate(texts):
            raw = raw.replace(f"TEXT{n}".encode(), text.encode())
        return raw

    ends = data(chunk({}, "stop", index=1)) + END
    whole = completion_of(both("a" + FIRST, "b" + FIRST) + both(SECOND, "c" + SECOND) + ends, n=2)
    said = [choice["message"]["content"] for choice in whole["choices"]]
    assert said == ["a😀", "b\ufffdc\ufffd"]


def test_a_whole_body() -> None:
    assert decode(b'{"a": "\\ud83d\\ude00"}') == ({"a": "😀"}, True)
    halved = b'{"a": "x\\ud83d", "b": ["\\ude00"]}'
    assert decode(halved) == ({"a": "x\ufffd", "b": ["\ufffd"]}, False)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": NaN}',
        b"\\ud83d",
        b'["\\ud83d", NaN]',
        b'["\\ud83d", ' + b"[" * 100_000,
    ],
    ids=range(6),
)
def test_what_is_no_json_stays_none(body: bytes) -> None:
    with pytest.raises(ValueError):
        decode(body)
