"""Texts that are a call in a way that no format reads, and texts that only look so."""

from __future__ import annotations

import pytest

from app.tool_calls.missed_calls import missed_call
from app.tool_calls.text_calls import rescue

TEXT = {"type": "string"}
TOOLS = {
    "get_order": {
        "type": "object",
        "properties": {"order_id": TEXT, "full": {"type": "boolean"}},
        "required": ["order_id"],
    },
    "write_file": {
        "type": "object",
        "properties": {"path": TEXT, "content": TEXT},
        "required": ["path", "content"],
    },
    "now": {"type": "object", "properties": {}},
    "summary": {"type": "object", "properties": {"text": TEXT}, "required": ["text"]},
}
ASKED = "Look up order A-1, then tell me its total."
GIVEN = '{"order_id": "A-1"}'


def kind_of(text: str, asked: str = ASKED) -> str:
    found = missed_call(text, TOOLS, asked)
    return found.kind if found is not None else ""


@pytest.mark.parametrize(
    "text",
    [
        # Markers that only calls have.
        f"<tool_call name=\"get_order\" arguments='{GIVEN}'/>",
        '[TOOL_CALL]\n{tool => "get_order", args => {\n--order_id "A-1"\n}}\n[/TOOL_CALL]',
        "call:get_order:\nBEGIN_ARG:\nA-1\nEND_ARG\n",
        "<call:default_api:get_order{order_id:A-1}/>",
        "analysisI have to look.assistantcommentary to=functions.get_order A-1",
        f"assistant to=functions.get_order json\n{GIVEN}",
        "I'll look it up.\n\n<tool_call>\nget_order: A-1\n</tool_call>",
        # The element of a tool.
        "<write_file> a.txt You are an expert",
        "<write_file>\n<path>a.txt</path>\n</write_file>",
        '<get_order order_id="A-1" />',
        # … of any name, where it ends the text and has all that the tool needs.
        "<summary>\n<text>All is well</text>\n</summary>",
        "I'll sum it up.\n\n<summary><text>All is well</text></summary>",
        # Code that is all.
        'get_order(order_id="A-1")',
        '```python\nget_order(order_id="A-1", full=True)\n```',
        "now()",
        f"get_order {GIVEN}",
        f"get_order: {GIVEN}",
        f"/get_order {GIVEN}",
        f"### get_order\n{GIVEN}",
        f"get_order\n```json\n{GIVEN}\n```",
        f"Tool: get_order\nArguments: {GIVEN}",
        f"**Tool:** `get_order`\n**Arguments:** {GIVEN}",
        f"TOOL_CALL: get_order({GIVEN})",
        '{"tool": "get_order", "order_id": "A-1"}',
        f'{{"thought": "Look it up.", "action": "get_order", "action_input": {GIVEN}}}',
        'get_order(order_id="A-1")\nget_order(order_id="A-2")',
        '[get_order(order_id="A-1")',
        # What a server left that takes special tokens out.
        f"functions.get_order:0{GIVEN}",
        f"get_order[ARGS]{GIVEN}",
        f"functionget_order\n```json\n{GIVEN}\n```",
        # A fence that only calls have, around what is none in Python.
        '```tool_code\nget_order("A-1")\n```',
        '```tool_code\nget_order(order_id="A-1"',
        # ReAct, otherwise than asked.
        "Thought: look it up.\nAction: get_order\nAction Input: A-1",
        f"**Action:** get_order\n**Action Input:** {GIVEN}",
        f"Action: `get_order`\nAction Input: `{GIVEN}`",
    ],
)
def test_a_call_that_no_format_reads_is_doubted(text: str) -> None:
    assert rescue(text, TOOLS).calls == ()
    assert kind_of(text) == "unread_call"
    assert kind_of(text, "Show me how you would call a tool.") == ""
    assert kind_of(text, "Give me the summary as XML.") == ""
    assert kind_of(text, "Look it up in orders.json") == "unread_call"


@pytest.mark.parametrize(
    "text",
    [
        "The total is 12 (of 3 items).",
        "I used get_order(order_id) to find it.",
        "get_order(order_id)",  # of what?
        'get_order(id="A-1")',
        f"get_order {GIVEN} is what I sent.",
        f"get_order {GIVEN}\n\nThe order was sent on Monday.",
        'print("get_order")',
        f"cancel_order {GIVEN}",
        '{"order": "get_order", "order_id": "A-1"}',
        '{"tool": "get_order", "id": "A-1", "total": 12}',
        '{"name": "now"}, they said.',
        "<summary>All is well.</summary>",
        "<p>The write_file tool</p>",
        "For example:\n<write_file> a.txt text",
        "Here is the XML you asked for:\n\n<write_file>\n<path>a.txt</path>\n</write_file>",
        "```\n<tool_call>get_order: A-1\n```",
        "`<tool_call>` stands before get_order.",
        "<tool_call>\nget_order: A-1\n</tool_call>\n\nThis is how a broken call looks.",
        "<tool_call> is a tag.",
        'Shall I run this?\n\nget_order(order_id="A-1")\n\nMay I?',
        '<write_file path="a.txt">\n</write_file>\nShall I go on?',
        "x" * 500 + "\n<tool_call>\nget_order: A-1\n</tool_call>",
        "On call: get_order is on duty.",
        "Whom to ask:\ncall: now or later",
        "call:now or never",
        "<get_order> looks an order up.",
        "<get_order>\nlooks an order up.",
        "The tags are\n<get_order> and\n<write_file>.",
        "Commands:\n\n<get_order> – an order\n<write_file> – a file",
        "I ran\n<write_file>\n<path>a</path>\n</write_file>\nand it failed.",
        "<summary>\n<text>All is well</text>\n</summary>\nThat is the element.",
        "<page>\n<h1>x</h1>\n<summary>\n<text>All is well</text>\n</summary>\n</page>",
        "Add this to the file:\n\n<summary>\n<text>All is well</text>\n</summary>",
        'summary = {"text": "All is well"}',
        "Action: the action to take, one of [get_order, now]\nAction Input: its input",
        "Action: get_order soon.\nOutcome: pending.",
        'get_order(order_id="A-1")\ncancel_order(order_id="A-1")',
        'get_order(order_id="A-1")\nprints the order.',
        "Gemma's fence is ```tool_code, and get_order stands in it.",
        f'{{"explanation": "x", "name": "get_order", "arguments": {GIVEN}, "total": 12}}',
        '{"role": "assistant", "content": "get_order"}',
    ],
)
def test_what_is_talked_about_is_not_doubted(text: str) -> None:
    assert kind_of(text) == ""
