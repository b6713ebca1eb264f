"""Ids that are copied with a slip; and all that is near another one and meant."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from app.tool_calls import miscopied_ids
from app.tool_calls.miscopied_ids import LEAST, Miscopied, is_slip, miscopied

from .floods import MEGABYTE

USER = {"role": "user", "content": "Look up order T4YDQTS, then mark IZ-53201 as paid."}
RESULT = {
    "role": "tool",
    "tool_call_id": "c1",
    "content": '{"order_id": "T4YDQTS", "customer_id": "C-612111", "total": 112500}',
}


def called(arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "get_order", "arguments": orjson.dumps(arguments).decode()}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "function": function}],
    }


def found(arguments: Any, *messages: dict[str, Any]) -> Miscopied | None:
    return miscopied(orjson.dumps(arguments).decode(), messages or (USER, RESULT))


SLIPS = [
    ("I4YDQTS", "T4YDQTS"),  # a letter read wrongly
    ("T4YDOTS", "T4YDQTS"),
    ("C-61211", "C-612111"),  # one of several equal digits left out, or doubled
    ("C-6121111", "C-612111"),
    ("887449", "8874449"),
    ("EVU-32166", "EVU-321696"),  # a digit left out
    ("EVU-3216996", "EVU-321696"),
    ("a81bc1d4-2e0a-4a7c-9c55-1f0b6d2e7a90", "a81bc81d4-2e0a-4a7c-9c55-1f0b6d2e7a90"),
    ("9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d", "9b1deb3d-3b7d-4bad-9bdd-2b0d7b3dcb6d"),
    ("user_01hxyz9abcd", "user_01hxyz9abccd"),
]
MEANT = [
    ("A-1002", "A-1001"),  # counted up
    ("20260102", "20260101"),
    ("PROJ-12346", "PROJ-12345"),
    ("A-1000", "A-100"),
    ("A-10000", "A-1000"),
    ("078178", "78178"),  # filled up
    ("room-B1", "room-A1"),
    ("B12345", "A12345"),
    ("ORD-12345a", "ORD-12345"),  # a part of it
    ("ORD-12345-2", "ORD-12345"),
    ("C612111", "C-612111"),  # other separators
    ("c_612111", "C-612111"),
    ("v1-arm64-8", "v1-arm64-7"),
    ("x86_64v3b1", "x86_64v3b2"),
    ("2026q3rep", "2026q4rep"),
    ("T4YDQTR", "T4YDQTS"),  # the next of a series
    ("1234", "12234"),  # short ones
    ("T4YDQTSX", "ZZYDQTSX"),
]


@pytest.mark.parametrize(("came", "stands"), SLIPS)
def test_a_slip(came: str, stands: str) -> None:
    said = {"role": "user", "content": f'What of "{stands}", please?'}
    assert found({"order_id": came}, said) == Miscopied("order_id", came, stands)
    assert found({"order_id": stands}, said) is None


@pytest.mark.parametrize(("came", "stands"), MEANT)
def test_what_is_near_and_meant(came: str, stands: str) -> None:
    said = {"role": "user", "content": f"What of {stands}?"}
    assert found({"order_id": came}, said) is None
    if len(came) >= LEAST:
        assert not is_slip(came.lower(), stands.lower())
        assert not is_slip(stands.lower(), came.lower())


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({"customerId": "C-61211"}, "customerId"),
        ({"order": {"id": "I4YDQTS"}}, "order.id"),
        ({"ids": ["IZ-53201", "C-61211"]}, "ids[1]"),
        ({"orders": [{"order_number": "I4YDQTS", "text": "x"}]}, "orders[0].order_number"),
    ],
)
def test_where_an_id_may_stand(arguments: dict[str, Any], path: str) -> None:
    slip = found(arguments)
    assert slip is not None
    assert slip.path == path


def test_a_number_may_be_an_id() -> None:
    said = {"role": "user", "content": "Issue 8874449."}
    assert found({"issue_number": 887449}, said) == Miscopied("issue_number", "887449", "8874449")


@pytest.mark.parametrize(
    "arguments",
    [
        {"amount": 11250},
        {"number": 61211, "key": "I4YDQTS", "code": "I4YDQTS"},
        {"query": "I4YDQTS"},
        {"text": "C-61211"},
        {"path": "notes/I4YDQTS"},
        {"order_id": "the order I4YDQTS"},
        {"order_id": "idabcdef"},
        {"order_id": None, "id": True, "ids": [], "ref": {}},
        {"order_id": "t4ydqts"},  # the same in another case
        {"order_id": "612111"},  # a part that stands by itself
        ["I4YDQTS"],
        "I4YDQTS",
    ],
)
def test_what_is_no_such_id(arguments: Any) -> None:
    assert found(arguments) is None


def test_arguments_that_nobody_can_read_are_not_read() -> None:
    assert miscopied('{"order_id": "I4YDQTS"', [USER]) is None


def test_what_was_called_before_is_not_doubted_again() -> None:
    before = called({"order_id": "I4YDQTS"})
    assert found({"order_id": "I4YDQTS"}, USER, before, RESULT) is None
    # But it is no word of the user's, of which another could be a slip.
    assert found({"order_id": "I4YDQTTS"}, before) is None


def test_one_of_many_alike_is_one_more() -> None:
    said = {"role": "user", "content": "T4YDQTS and J4YDQTS are done."}
    assert found({"order_id": "I4YDQTS"}, said) is None
    twice = {"role": "user", "content": "T4YDQTS. I mean t4ydqts."}
    assert found({"order_id": "I4YDQTS"}, twice) is not None


def test_letters_that_grow_in_lower_case() -> None:
    said = {"role": "user", "content": "İİİİ: order T4YDQTS."}
    slip = found({"order_id": "I4YDQTS"}, said)
    assert slip is None or slip.meant == "T4YDQTS"


def test_parts_of_content_are_read() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "T4YDQTS"}, {"type": "image"}]}
    odd = {"role": "assistant", "tool_calls": [{"function": None}, {}], "content": None}
    assert found({"order_id": "I4YDQTS"}, parts, odd) is not None


@pytest.mark.parametrize("piece", ["1", "11111 ", "4YDQTS", "T4YD-", "İ", "-"])
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
