"""Messages that come again: told by what they say."""

from __future__ import annotations

import copy
from typing import Any

from mlx_stack_proxy.wire.blocks import BLOCK, Blocks

SYSTEM = {"role": "system", "content": "You are careful. It is 12:04."}


def said(count: int) -> list[Any]:
    return [{"role": "user", "content": f"message {number}"} for number in range(count)]


def test_a_block_is_known_again_by_what_it_says() -> None:
    messages = said(3 * BLOCK)
    before = Blocks(messages).names
    assert Blocks(copy.deepcopy([SYSTEM, *messages, *said(2)])).names == before
    messages[BLOCK + 7] = {"role": "user", "content": "message 39, edited"}
    after = Blocks(messages).names
    assert [one == two for one, two in zip(before, after, strict=True)] == [True, False, True]


def test_messages_that_are_none() -> None:
    deep: Any = "x"
    for _ in range(600):  # deeper than orjson writes
        deep = [deep]
    for odd in (deep, None, 7, "text", {}, {"role": ["system"]}):
        assert len(Blocks([odd] * BLOCK).names) == 1


def test_the_systems_messages_are_in_no_block() -> None:
    for others in (0, 1, BLOCK):
        blocks = Blocks([SYSTEM] * (BLOCK + 2) + said(others))
        assert (len(blocks.messages), len(blocks.names)) == (others, others // BLOCK)
