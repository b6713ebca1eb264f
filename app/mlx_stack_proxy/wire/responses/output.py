"""Writes the items of a reply: texts, which grow while they are streamed, and calls, which don't.

A message's text, its refusal and the reasoning grow in the same way. They differ in the names of
their events and in the fields next to their text, which ``TEXT``, ``REFUSAL``, ``REASONING`` hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...frozen import frozen
from .tools import Shape, custom_text

Item = dict[str, Any]


@frozen
class ItemKind:
    """A kind of item that comes piece by piece."""

    prefix: str  # begins the item's id
    event: str  # begins the names of its events
    field: str  # the text's field in the content part, and in the event that ends the text
    part: Mapping[str, Any]  # the item's content part, without the text
    extra_fields: Mapping[str, Any]  # further fields of the item's events

    def item(self, id: str, parts: list[Item], status: str) -> Item:
        if self is REASONING:
            empty: Item = {"summary": [], "content": parts, "encrypted_content": None}
            return {"id": id, "type": "reasoning", **empty}
        head = {"id": id, "type": "message", "status": status, "role": "assistant"}
        return {**head, "content": parts}

    def part_of(self, text: str) -> Item:
        return {**self.part, self.field: text}


_OUTPUT_TEXT: Final = {"type": "output_text", "annotations": [], "logprobs": []}
TEXT: Final = ItemKind("msg", "response.output_text", "text", _OUTPUT_TEXT, {"logprobs": []})
REFUSAL: Final = ItemKind("msg", "response.refusal", "refusal", {"type": "refusal"}, {})
REASONING: Final = ItemKind("rs", "response.reasoning_text", "text", {"type": "reasoning_text"}, {})


@frozen
class Called:
    """A call in the shape in which its tool was offered."""

    item: Item
    event: str  # as in :class:`ItemKind`
    field: str  # as in :class:`ItemKind`
    extra_fields: Mapping[str, Any]  # further fields of the event that ends its text

    @property
    def opened(self) -> Item:
        """The item as it is opened, with an empty text."""
        return {**self.item, self.field: "", "status": "in_progress"}


def called(id: str, call_id: str, arguments: str, shape: Shape, status: str) -> Called:
    """Make a call. ``id``: the item's id, without the prefix of its kind."""
    item: Item = {"id": "", "type": "", "status": status, "call_id": call_id, "name": shape.name}
    if shape.namespace:
        item["namespace"] = shape.namespace
    if shape.custom:
        item |= {"id": f"ctc_{id}", "type": "custom_tool_call", "input": custom_text(arguments)}
        return Called(item, "response.custom_tool_call_input", "input", {})
    item |= {"id": f"fc_{id}", "type": "function_call", "arguments": arguments}
    name = {"name": shape.name}
    return Called(item, "response.function_call_arguments", "arguments", name)


def usage_of(usage: Mapping[str, Any]) -> Item:
    """Translate a chat completion's usage, with both details, which the SDKs require."""
    prompt_details = usage.get("prompt_tokens_details") or {}
    output_details = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": usage.get("prompt_tokens") or 0,
        "input_tokens_details": {
            "cached_tokens": prompt_details.get("cached_tokens") or 0,
            "cache_write_tokens": prompt_details.get("cache_creation_tokens") or 0,
        },
        "output_tokens": usage.get("completion_tokens") or 0,
        "output_tokens_details": {"reasoning_tokens": output_details.get("reasoning_tokens") or 0},
        "total_tokens": usage.get("total_tokens") or 0,
    }
