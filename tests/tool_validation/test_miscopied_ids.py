"""Ids that are copied with a slip; and all that is near another one and meant."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from mlx_stack_proxy.tool_validation import miscopied_ids
from mlx_stack_proxy.tool_validation.doubts import leaves
from mlx_stack_proxy.tool_validation.miscopied_ids import LEAST, Ids, Miscopied, is_slip

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


def found(arguments: Any, *messages: dict[str, Any], tools: Any = None) -> Miscopied | None:
    return slip_of(Ids(messages or (USER, RESULT), tools), arguments)


def slip_of(ids: Ids, arguments: dict[str, Any]) -> Miscopied | None:
    return ids.miscopied((path, value) for path, _, value, _ in leaves(arguments, None))


def said(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


SLIPS = [
    ("I4YDQTS", "T4YDQTS"),  # a letter read wrongly
    ("T4YDOTS", "T4YDQTS"),
    ("C-61211", "C-612111"),  # one of several equal digits left out, or doubled
    ("C-6121111", "C-612111"),
    ("887449", "8874449"),
    ("EVU-32166", "EVU-321696"),  # a digit left out
    ("EVU-3216996", "EVU-321696"),
    ("a81bc1d4-2e0a-4a7c-9c55-1f0b6d2e7a90", "a81bc81d4-2e0a-4a7c-9c55-1f0b6d2e7a90"),
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
    ("server10prod", "server1prod"),
    ("20244", "2024"),  # beside a year
    ("C1002000", "C1001000"),
    ("A0001200", "A0001100"),
]


@pytest.mark.parametrize(("came", "stands"), SLIPS)
def test_a_slip(came: str, stands: str) -> None:
    message = said(f'What of "{stands}", please?')
    assert found({"order_id": came}, message) == Miscopied("order_id", came, stands)
    assert found({"order_id": stands}, message) is None


@pytest.mark.parametrize(("came", "stands"), MEANT)
def test_what_is_near_and_meant(came: str, stands: str) -> None:
    message = said(f"What of {stands}?")
    assert found({"order_id": came}, message) is None
    if min(len(came), len(stands)) >= LEAST:
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
    message = said("Issue 8874449.")
    assert found({"issue_number": 887449}, message) == Miscopied(
        "issue_number", "887449", "8874449"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"amount": 11250},
        {"path": "notes/I4YDQTS"},
        {"order_id": "the order I4YDQTS"},
        {"order_id": "idabcdef"},
        {"order_id": None, "id": True, "ids": [], "ref": {}},
        {"order_id": "t4ydqts"},  # the same in another case
        {"order_id": "612111"},  # a part that stands by itself
    ],
)
def test_what_is_no_such_id(arguments: Any) -> None:
    assert found(arguments) is None


def test_what_was_called_before_is_not_doubted_again() -> None:
    before = called({"order_id": "I4YDQTS"})
    assert found({"order_id": "I4YDQTS"}, USER, before, RESULT) is None
    # But it is no word of the user's, of which another could be a slip.
    assert found({"order_id": "I4YDQTTS"}, before) is None


def test_one_of_many_alike_is_one_more() -> None:
    message = said("T4YDQTS and J4YDQTS are done.")
    assert found({"order_id": "I4YDQTS"}, message) is None
    twice = said("T4YDQTS. I mean t4ydqts.")
    assert found({"order_id": "I4YDQTS"}, twice) is not None


def test_letters_that_grow_in_lower_case() -> None:
    message = said("İİİİ: order T4YDQTS.")
    slip = found({"order_id": "I4YDQTS"}, message)
    assert slip is None or slip.meant == "T4YDQTS"


@pytest.mark.parametrize(
    "content",
    [
        "查询订单8874449和订单88744499",
        "8874449를, not 88744499",
        "注文8874449を。88744499",
        '{"text": "first\\n8874449, 88744499"}',
        '{"text": "{\\"a\\": \\"x\\\\n8874449\\", \\"b\\": 88744499}"}',
        "\x1b[33m8874449\x1b[0m 88744499",
        '{"log": "\\u001b[33m8874449, 88744499"}',
        "8,874,449 of 88744499",
        "İ 8874449, 88744499",
    ],
)
def test_what_an_id_that_stands_may_stand_between(content: str) -> None:
    assert found({"order_id": 8874449}, said(content)) is None
    assert found({"order_id": "8874449"}, said(content)) is None


def test_a_slip_of_what_stands_behind_an_escaped_line_end() -> None:
    slip = found({"order_id": "887449"}, said('{"text": "first\\n8874449"}'))
    assert slip is not None
    assert slip.meant == "8874449"


def test_an_id_that_a_schema_names_is_meant() -> None:
    tools = [{"function": {"parameters": {"properties": {"id": {"enum": ["I4YDQTS"]}}}}}]
    assert found({"order_id": "I4YDQTS"}) is not None
    assert found({"order_id": "I4YDQTS"}, tools=tools) is None
    assert found({"order_id": "I4YDQTS"}, tools=[{"x": 2**70}]) is not None


def test_a_reply_with_many_ids_is_looked_through_once() -> None:
    ids = Ids([said("T4YDQTS")])
    new = [{"id": f"NEW{number:05}X"} for number in range(8)]
    assert not any(slip_of(ids, one) for one in new)
    assert slip_of(ids, {"id": "I4YDQTS"}) is None


def test_parts_of_content_are_read() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "T4YDQTS"}, {"type": "image"}]}
    odd = {"role": "assistant", "tool_calls": [{"function": None}, {}], "content": None}
    assert found({"order_id": "I4YDQTS"}, parts, odd) is not None


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
