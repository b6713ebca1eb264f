"""What was said before a reply is searched fast, a few times, and each time once."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.tool_validation import conversation as module
from mlx_stack_proxy.tool_validation.conversation import MAX_PLACES, MAX_QUESTIONS, Conversation
from mlx_stack_proxy.tool_validation.miscopied_ids import _holds
from tests.tool_validation.calls import said

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

    monkeypatch.setattr(module, "stands", stands)
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
