"""What plainly means a call and is none; and all that only looks like it."""

from __future__ import annotations

import pytest

from app.tool_calls.missed_calls import MAX_SAID_BEFORE, missed_call

TOOLS = {
    "get_order": {
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "full": {"type": "boolean"}},
        "required": ["order_id"],
    },
    "now": {"type": "object", "properties": {}},
}
ASKED = "Look up order A-1, then tell me its total."
CALL = '{"name": "order_info", "arguments": {"order_id": "A-1"}}'
GIVEN = '{"order_id": "A-1"}'


def kind_of(text: str, asked: str = ASKED) -> str:
    found = missed_call(text, TOOLS, asked)
    return found.kind if found is not None else ""


@pytest.mark.parametrize(
    "text",
    [
        CALL,
        f"```json\n{CALL}\n```",
        f"<think>Which one?</think>\n```\n{CALL}\n```\n",
        CALL.replace("arguments", "parameters"),
    ],
)
def test_a_reply_that_is_a_call_of_no_tool(text: str) -> None:
    assert kind_of(text) == "unknown_tool"


OFFERED = CALL.replace("order_info", "get_order")


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{OFFERED[:-4]}",  # never closed, as small models leave it
        f"```json\n{OFFERED[:-4]}}}}}\n```",
        '```json\n{"name": "get_order", "arguments": {"order_id": ["A-1"}}\n```',
        '{"name": "get_order", "arguments": {"order_id": "A-1", "full": "x": 1}}',
        OFFERED.replace('"A-1"', '"A-1') + "\n</tool_call>",
    ],
)
def test_a_reply_that_is_a_call_nobody_can_read(text: str) -> None:
    assert kind_of(text) == "invalid_json"
    assert kind_of(text, "Show me how you would call a tool.") == ""


@pytest.mark.parametrize(
    "text",
    [
        OFFERED,  # a call, which others see to
        f"```json\n{OFFERED}\n```",
        f"```json\n{OFFERED[:-4]}}}}}\n```\nThis is what a broken call looks like.",
        f"Here it is:\n```json\n{OFFERED[:-4]}",
        f"{OFFERED[:-4]}\n\nThat is what it sends.",
        f"```python\n{OFFERED[:-4]}\n```",
        '{"name": "Ada", "arguments": {"order_id": "A-1',
        '{"name": "get_order", "arguments": "A-1',
    ],
)
def test_what_can_be_read_or_is_talked_about(text: str) -> None:
    assert kind_of(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        f"Here it is:\n{CALL}",
        f"```json\n{CALL}\n```\nThis is what a call looks like.",
        f"```python\n{CALL}\n```",
        CALL.replace("order_info", "get_order"),  # a call, which others see to
        CALL.replace("order_id", "id"),
        '{"name": "order_info", "arguments": {}}',
        '{"name": "order_info", "arguments": "A-1"}',
        '{"name": "Ada", "order_id": "A-1"}',
        '{"name": "Ada", "arguments": {"order_id": "A-1"}, "age": 36}',
        '{"name": 1, "arguments": {"order_id": "A-1"}}',
        f"[{CALL}]",
        CALL[:-1],
    ],
)
def test_json_that_is_no_such_call(text: str) -> None:
    assert kind_of(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        f"I will call get_order with {GIVEN} now.",
        f"I'll use the `get_order` tool with the following arguments: {GIVEN}",
        f"Let me call get_order with:\n```\n{GIVEN}\n```",
        f"Okay, I am going to run the function get_order on {GIVEN}...",
        f"The order comes first. Now I’ll call **get_order** with {GIVEN}.",
        f"I will now call get_order with arguments {GIVEN[:-1]}, " + '"full": true}.',
        f"I will call get_order with {GIVEN}}}\n</tool_call>",
    ],
)
def test_a_call_that_is_announced_and_not_made(text: str) -> None:
    assert kind_of(text) == "announced_call"


@pytest.mark.parametrize(
    "text",
    [
        f"I will call get_order with {GIVEN}. Shall I go on?",
        f"Is that right? I will call get_order with {GIVEN}.",
        f"If you agree, I will call get_order with {GIVEN}.",
        f"I called get_order with {GIVEN}.",
        f"I would call get_order with {GIVEN}.",
        f"You can call get_order with {GIVEN}.",
        f"I will not call get_order with {GIVEN}.",
        f"I will call get_orders with {GIVEN}.",
        f"I will call get_order with {GIVEN}, and it will say 5.",
        f"I will call get_order with {GIVEN}. The total was 5 euros.",
        f"1. I will call get_order with {GIVEN}.",
        f"The plan:\n- I will call get_order with {GIVEN}.",
        f'First get_order with {{"order_id": "B"}}. Then I will call get_order with {GIVEN}.',
        'I will call get_order with {"id": "A-1"}.',
        "I will call get_order with {}.",
        "I will call now with {}.",
        "I will call get_order now.",
        f"{'It is known. ' * (MAX_SAID_BEFORE // 13 + 1)}I will call get_order with {GIVEN}.",
        "The total is 5 euros.",
        "",
    ],
)
def test_words_that_announce_no_call(text: str) -> None:
    assert kind_of(text) == ""


@pytest.mark.parametrize(
    "asked",
    [
        "Which tool would you use for A-1?",
        "Say what you would call, but wait for my word.",
        "Make a plan first.",
        "Ask for my permission before you look it up.",
    ],
)
def test_a_user_who_wants_to_hear_of_it(asked: str) -> None:
    assert kind_of(f"I will call get_order with {GIVEN} now.", asked) == ""


def test_it_stays_linear() -> None:
    assert kind_of("{" * 7_999 + "}") == ""
    assert kind_of("I will call " * 600 + "{}") == ""
    assert kind_of(f"I will call get_order with {GIVEN}." + " " * 9_000) == "announced_call"
