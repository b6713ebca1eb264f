"""Messages that come again: told by what they say."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from mlx_stack_proxy.wire.blocks import BLOCK, Blocks, PrefixCache

SYSTEM = {"role": "system", "content": "You are careful. It is 12:04."}


def said(count: int) -> list[Any]:
    return [{"role": "user", "content": f"message {number}"} for number in range(count)]


def test_a_block_is_known_again_by_what_it_says() -> None:
    messages = said(3 * BLOCK)
    before = Blocks([{**SYSTEM, "content": "It is 12:05."}, *messages]).names
    assert Blocks(copy.deepcopy([SYSTEM, *messages, *said(2)])).names == before
    messages[BLOCK + 7] = {"role": "user", "content": "edited"}
    after = Blocks([SYSTEM, *messages]).names
    assert [one == two for one, two in zip(before, after, strict=True)] == [True, False, False]


def read_parts(known: PrefixCache[list[Any]], messages: list[Any]) -> list[Any]:
    """What is read of the messages, which come in one piece; checks that all of them came."""
    new: list[Any] = []

    def read(before: list[Any], more: Sequence[Any]) -> list[Any]:
        new.extend(more)
        return [*before, *more]

    assert known.read(Blocks(messages), [], read) == messages
    return new


def test_only_what_follows_a_known_beginning_is_read() -> None:
    known: PrefixCache[list[Any]] = PrefixCache(most=2)
    whole = said(3 * BLOCK)
    for count, new in ((5, 5), (2 * BLOCK, 2 * BLOCK), (2 * BLOCK + 3, 3), (3 * BLOCK, BLOCK)):
        assert len(read_parts(known, whole[:count])) == new
    branch = [*whole[: 2 * BLOCK], *said(BLOCK)]
    assert len(read_parts(known, branch)) == BLOCK
    assert len(read_parts(known, whole)) == 0
    assert len(read_parts(known, whole[: 2 * BLOCK])) == 2 * BLOCK, "the longest unused is gone"


def test_what_raises_is_not_known() -> None:
    known: PrefixCache[int] = PrefixCache()

    def refuse(before: int, more: Sequence[Any]) -> int:
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            known.read(Blocks(said(BLOCK)), 0, refuse)


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
