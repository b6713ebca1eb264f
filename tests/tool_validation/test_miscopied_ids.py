"""Ids that are copied with a slip; and all that is near another one and meant."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.tool_validation import conversation as module
from mlx_stack_proxy.tool_validation import miscopied_ids
from mlx_stack_proxy.tool_validation.conversation import MAX_PLACES, MAX_QUESTIONS, Conversation
from mlx_stack_proxy.tool_validation.doubts import leaves
from mlx_stack_proxy.tool_validation.miscopied_ids import (
    LEAST,
    Miscopied,
    _holds,
    is_slip,
    miscopied,
)
from tests.tool_validation.calls import called, said
from tests.tool_validation.floods import MEGABYTE

USER = {"role": "user", "content": "Look up order T4YDQTS, then mark IZ-53201 as paid."}
RESULT = {
    "role": "tool",
    "tool_call_id": "c1",
    "content": '{"order_id": "T4YDQTS", "customer_id": "C-612111", "total": 112500}',
}


def found(arguments: Any, *messages: dict[str, Any], tools: Any = None) -> Miscopied | None:
    return slip_of(Conversation(messages or (USER, RESULT), tools), arguments)


def slip_of(conversation: Conversation, arguments: dict[str, Any]) -> Miscopied | None:
    values = ((path, value) for path, _, value, _ in leaves(arguments, None))
    return miscopied(values, conversation)


SLIPS = [
    ("I4YDQTS", "T4YDQTS"),  # a letter read wrongly
    ("C-61211", "C-612111"),  # one of several equal digits left out, or doubled
    ("C-6121111", "C-612111"),
    ("887449", "8874449"),
    ("EVU-32166", "EVU-321696"),  # a digit left out
    ("a81bc1d4-2e0a-4a7c-9c55-1f0b6d2e7a90", "a81bc81d4-2e0a-4a7c-9c55-1f0b6d2e7a90"),
    ("user_01hxyz9abcd", "user_01hxyz9abccd"),
]
MEANT = [
    ("A-1002", "A-1001"),  # counted up
    ("A-1000", "A-100"),
    ("A-10000", "A-1000"),
    ("078178", "78178"),  # filled up
    ("room-B1", "room-A1"),
    ("ORD-12345a", "ORD-12345"),  # a part of it
    ("ORD-12345-2", "ORD-12345"),
    ("C612111", "C-612111"),  # other separators
    ("c_612111", "C-612111"),
    ("v1-arm64-8", "v1-arm64-7"),
    ("T4YDQTR", "T4YDQTS"),  # the next of a series
    ("1234", "12234"),  # short ones
    ("T4YDQTSX", "ZZYDQTSX"),
    ("server10prod", "server1prod"),
]


@pytest.mark.parametrize(("came", "stands"), SLIPS)
def test_a_slip(came: str, stands: str) -> None:
    messages = said(f'What of "{stands}", please?')
    assert found({"order_id": came}, *messages) == ("order_id", came, stands)
    assert found({"order_id": stands}, *messages) is None


@pytest.mark.parametrize(("came", "stands"), MEANT)
def test_what_is_near_and_meant(came: str, stands: str) -> None:
    assert found({"order_id": came}, *said(f"What of {stands}?")) is None
    if min(len(came), len(stands)) >= LEAST:
        assert not is_slip(came.lower(), stands.lower())
        assert not is_slip(stands.lower(), came.lower())


KNOWN = (USER, RESULT)
PARTS = [{"type": "text", "text": "T4YDQTS"}, {"type": "image"}]
ODD = {"role": "assistant", "tool_calls": [{"function": None}, {}], "content": None}
SCHEMA = [{"function": {"parameters": {"properties": {"id": {"enum": ["I4YDQTS"]}}}}}]
ORDER = ("order_id", "I4YDQTS", "T4YDQTS")
DIGITS = ("order_id", "887449", "8874449")


@pytest.mark.parametrize(
    ("arguments", "messages", "slip"),
    [
        ({"customerId": "C-61211"}, KNOWN, ("customerId", "C-61211", "C-612111")),
        ({"ids": ["IZ-53201", "C-61211"]}, KNOWN, ("ids[1]", "C-61211", "C-612111")),
        ({"orders": [{"order_number": "I4YDQTS", "text": "x"}]}, KNOWN,
         ("orders[0].order_number", "I4YDQTS", "T4YDQTS")),
        ({"order_id": 887449}, said("Issue 8874449."), DIGITS),  # a number
        ({"order_id": "887449"}, said('{"text": "first\\n8874449"}'), DIGITS),
        ({"order_id": "I4YDQTS"}, said("t4ydqts. I mean T4YDQTS."), ORDER),
        ({"order_id": "I4YDQTS"}, [{"role": "user", "content": PARTS}, ODD], ORDER),
    ],
)  # fmt: skip
def test_where_an_id_and_its_slip_may_stand(
    arguments: dict[str, Any], messages: list[dict[str, Any]], slip: Miscopied
) -> None:
    assert found(arguments, *messages) == slip


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ({"amount": 11250}, KNOWN),
        ({"path": "notes/I4YDQTS"}, KNOWN),
        ({"order_id": "the order I4YDQTS"}, KNOWN),
        ({"order_id": "idabcdef"}, KNOWN),
        ({"order_id": None, "id": True, "ids": [], "ref": {}}, KNOWN),
        ({"order_id": "t4ydqts"}, KNOWN),  # the same in another case
        ({"order_id": "612111"}, KNOWN),  # a part that stands by itself
        ({"order_id": "I4YDQTS"}, said("T4YDQTS and J4YDQTS are done.")),  # one more of many
        # What was called before is not doubted again,
        ({"order_id": "I4YDQTS"}, [USER, called({"order_id": "I4YDQTS"}), RESULT]),
        # but it is no word of the user's, of which another could be a slip.
        ({"order_id": "I4YDQTTS"}, [called({"order_id": "I4YDQTS"})]),
    ],
)
def test_what_is_no_slip(arguments: Any, messages: list[dict[str, Any]]) -> None:
    assert found(arguments, *messages) is None


@pytest.mark.parametrize(
    "content",
    [
        "查询订单8874449和订单88744499",
        "8874449를, not 88744499",
        '{"text": "first\\n8874449, 88744499"}',
        '{"text": "{\\"a\\": \\"x\\\\n8874449\\", \\"b\\": 88744499}"}',
        '{"log": "\\u001b[33m8874449, 88744499"}',
        "İ 8874449, 88744499",
    ],
)
def test_what_an_id_that_stands_may_stand_between(content: str) -> None:
    assert found({"order_id": 8874449}, *said(content)) is None
    assert found({"order_id": "8874449"}, *said(content)) is None


def test_an_id_that_a_schema_names_is_meant() -> None:
    assert found({"order_id": "I4YDQTS"}, tools=SCHEMA) is None
    assert found({"order_id": "I4YDQTS"}, tools=[{"x": 2**70}]) is not None


def test_a_reply_with_many_ids_is_looked_through_once() -> None:
    conversation = Conversation(said("T4YDQTS"))
    new = [{"id": f"NEW{number:05}X"} for number in range(8)]
    assert not any(slip_of(conversation, one) for one in new)
    assert slip_of(conversation, {"id": "I4YDQTS"}) is None


@pytest.mark.parametrize(
    "piece", ["1", "11111 ", "4YDQTS", "T4YD-", "İ", "-", "\\", "\\u001b[", "\x1b[1"]
)
def test_floods_end(piece: str) -> None:
    messages = [{"role": "user", "content": piece * (MEGABYTE // len(piece))}] * 3
    many = {
        "ids": [f"I4YDQTS{n}" for n in range(100)],
        "a": {f"id{n}": "11111" for n in range(999)},
    }
    deep: dict[str, Any] = {"id": "111112"}
    for _ in range(100):
        deep = {"a": deep, "id": "T4YDQ-1S"}
    for arguments in (many, deep):
        assert found(arguments, *messages) is None


def test_only_what_was_said_last_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(miscopied_ids, "MAX_CHARS", 100)
    long = {"role": "user", "content": "x " * 100}
    assert found({"order_id": "I4YDQTS"}, long, USER) is not None
    assert found({"order_id": "I4YDQTS"}, USER, long) is None


# What was said before is searched fast, a few times, and each time once

TEXT = st.text(alphabet="ab.1_ é<-", max_size=12)


@given(TEXT, TEXT.filter(str.strip))
def test_a_value_stands_where_a_word_begins(text: str, value: str) -> None:
    bare = value.strip().lower()
    boundary = "" if bare[0] in "<[" else r"(?<![^\W_])"
    expected = re.search(boundary + re.escape(bare), text.lower()) is not None
    assert Conversation(said(text))(value) is expected


@given(TEXT, TEXT.filter(bool))
def test_an_id_stands_alone(text: str, id: str) -> None:
    pattern = rf"(?<![A-Za-z0-9]){re.escape(id)}(?![A-Za-z0-9])"
    assert _holds(text, id) is (re.search(pattern, text) is not None)


def test_a_value_at_too_many_places_counts_as_said() -> None:
    assert Conversation(said("x..." * (MAX_PLACES + 1)))("...")
    assert not Conversation(said("xab" * (MAX_PLACES - 1)))("ab")


def test_answers_are_remembered_and_questions_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def stands(value: str, *_: Any) -> bool:
        asked.append(value)
        return False

    monkeypatch.setattr(module, "occurs", stands)
    conversation = Conversation(said("a long talk"))
    for _ in range(3):
        for number in range(20):
            assert conversation(f"value {number}") is (number >= MAX_QUESTIONS)
    assert asked == [f"value {number}" for number in range(MAX_QUESTIONS)]


def test_earlier_calls_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    loads = orjson.loads

    def noted(text: str) -> Any:
        parsed.append(text)
        return loads(text)

    monkeypatch.setattr(orjson, "loads", noted)
    calls = [{"function": {"name": "f", "arguments": f'{{"a": "{i}", "b": ""}}'}} for i in range(9)]
    conversation = Conversation([{"role": "assistant", "tool_calls": [one]} for one in calls])
    assert not conversation.had_empty("f", ["a"])
    assert conversation.had_empty("f", ["b"])
    assert len(parsed) == len(calls)
