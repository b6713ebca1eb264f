"""Messages that come again: told by what they say, and looked at once."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from mlx_stack_proxy.wire.blocks import BLOCK, Blocks, Remembered

SYSTEM = {"role": "system", "content": "You are careful. It is 12:04."}


def said(count: int) -> list[Any]:
    return [{"role": "user", "content": f"message {number}"} for number in range(count)]


class Looked:
    """A function of messages that notes which it was asked about."""

    def __init__(self) -> None:
        self.at: list[str] = []

    def __call__(self, messages: Sequence[Any]) -> int:
        self.at += [message["content"] for message in messages]
        return len(messages)


@pytest.mark.parametrize("lead", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
def test_the_parts_are_all_messages_in_order(lead: int, count: int) -> None:
    messages = [SYSTEM] * lead + said(count)
    of_part = Remembered(lambda part: [one["content"] for one in part])
    for _ in range(2):
        parts = list(of_part.parts(Blocks(messages)))
        assert [one for _, part in parts for one in part] == [one["content"] for one in messages]
        assert all(messages[start]["content"] == part[0] for start, part in parts)


def test_a_block_is_known_again_by_what_it_says() -> None:
    messages = said(3 * BLOCK)
    before = Blocks(messages).names
    assert Blocks(copy.deepcopy([SYSTEM, *messages, *said(2)])).names == before
    messages[BLOCK + 7] = {"role": "user", "content": "message 39, edited"}
    after = Blocks(messages).names
    assert [one == two for one, two in zip(before, after, strict=True)] == [True, False, True]


def test_what_came_before_is_not_looked_at_again() -> None:
    look = Looked()
    remembered = Remembered(look)
    messages = said(2 * BLOCK + 3)
    assert sum(found for _, found in remembered.parts(Blocks(messages))) == 2 * BLOCK + 3
    look.at.clear()
    longer = [*copy.deepcopy(messages), {"role": "user", "content": "one more"}]
    assert sum(found for _, found in remembered.parts(Blocks(longer))) == 2 * BLOCK + 4
    assert look.at == [*(f"message {2 * BLOCK + number}" for number in range(3)), "one more"]


def test_what_is_used_is_remembered_longest_and_not_all() -> None:
    look = Looked()
    remembered = Remembered(look, known=2)
    often, seldom = said(BLOCK), said(2 * BLOCK)[BLOCK:]
    for messages in (often, seldom, often, [SYSTEM, SYSTEM, *said(BLOCK - 1)], often):
        list(remembered.parts(Blocks(messages)))
    other = [{"role": "user", "content": "other"}] * BLOCK
    list(remembered.parts(Blocks(other)))
    look.at.clear()
    list(remembered.parts(Blocks(often)))
    assert look.at == []
    list(remembered.parts(Blocks(seldom)))
    assert len(look.at) == BLOCK


def test_messages_that_are_none() -> None:
    deep: Any = "x"
    for _ in range(600):  # deeper than orjson writes
        deep = [deep]
    for odd in (deep, None, 7, "text", {}, {"role": ["system"]}):
        assert len(Blocks([odd] * BLOCK).names) == 1


def test_the_systems_messages_are_in_no_block() -> None:
    for others in (0, 1, BLOCK):
        blocks = Blocks([SYSTEM] * (BLOCK + 2) + said(others))
        assert (blocks.lead, len(blocks.names)) == (BLOCK + 2, others // BLOCK)
