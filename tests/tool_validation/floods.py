"""Texts of about a megabyte that would cost much, if a rule were worse than linear."""

from __future__ import annotations

import json

MEGABYTE = 900_000
FLOODS = {
    "braces": "{" * MEGABYTE,
    "nested": '{"a":' * (MEGABYTE // 5),
    "brackets": "[" * MEGABYTE,
    "deep": '{"a": ' + "[" * 20_000 + "]" * 20_000 + "}",
    "long": '{"path": "a", "text": "' + "x" * MEGABYTE + '"}',
    "too long": '{"path": "a", "text": "' + "x" * 10_000_000 + '"}',
    "newlines": '{"path": "a", "text": "' + "\n" * MEGABYTE + '"}',
    "quotes": '{"path": "' + '"' * MEGABYTE,
    "pairs": '{"path": "' + '", "' * (MEGABYTE // 4) + '"}',
    "escapes": '{"path": "' + "\\" * MEGABYTE,
    "spaces": '{"path": 1' + " " * MEGABYTE,
    "copies": '{"path": "a"}' * (MEGABYTE // 13),
    "comments": "{" + "/**/" * (MEGABYTE // 4),
    "slashes": '{"path": 1 ' + "/" * MEGABYTE,
    "keys": json.dumps({f"k{number}": number for number in range(40_000)}),
    "commas": '{"path": [1' + "," * MEGABYTE,
}

# Repeated up to a megabyte by their users.
MARKERS = [
    "{",
    "[",
    "<",
    "```",
    "`",
    '"',
    '{"',
    "[{",
    "<tool_call>",
    "</think>",
    "<think>",
    "```\n",
    '{"name": "find_book"} ',
    '{"name": "find_book", "arguments": {"a": ',
    '<tool_call>{"name": "find_book", "arguments": {',
    "<tool_call>find_book",
    "<function=find_book>",
    "[TOOL_CALLS]find_book{",
    "\n[find_book(",
    "Action: find_book\n",
    "<|channel|>commentary to=functions.find_book<|message|>",
    '[Calling tool: find_book({"',
    "<function_calls>find_book(",
    "]<]minimax[>[<tool_call>",
    '<|tool_call>call:find_book{title:<|"|>',
    "<tool_call>find_book<arg_key>a",
    "\n[a",
    "For example: <tool_call>{",
    '<|action_start|><|plugin|>{"name": "find_book" x',
    "```tool_code\nfind_book(",
    '<|tool_call_start|>{"name": "find_book" ',
]
