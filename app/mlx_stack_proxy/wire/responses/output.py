"""The items of a reply: what grows while it is streamed, and calls, which come whole.

A message's text, its refusal and reasoning grow alike: they differ in the names of their events
and in what stands beside their text. These are the rows of ``TEXT``, ``REFUSAL``, ``REASONING``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...frozen import frozen
from .tools import Shape, custom_text

Item = dict[str, Any]


@frozen
class Growing:
    """A kind of item that comes piece by piece.

    ``event``: how the names of its events begin. ``field``: its text's, in its part and in the
    event that ends it. ``part``: its part without the text; ``beside``: of its events.
    """

    prefix: str
    event: str
    field: str
    part: Mapping[str, Any]
    beside: Mapping[str, Any]

    def item(self, id: str, parts: list[Item], status: str) -> Item:
        if self is REASONING:
            empty: Item = {"summary": [], "content": parts, "encrypted_content": None}
            return {"id": id, "type": "reasoning", **empty}
        head = {"id": id, "type": "message", "status": status, "role": "assistant"}
        return {**head, "content": parts}

    def part_of(self, text: str) -> Item:
        return {**self.part, self.field: text}


_OUTPUT_TEXT: Final = {"type": "output_text", "annotations": [], "logprobs": []}
TEXT: Final = Growing("msg", "response.output_text", "text", _OUTPUT_TEXT, {"logprobs": []})
REFUSAL: Final = Growing("msg", "response.refusal", "refusal", {"type": "refusal"}, {})
REASONING: Final = Growing("rs", "response.reasoning_text", "text", {"type": "reasoning_text"}, {})


@frozen
class Called:
    """A call in the shape in which its tool was offered.

    ``event``, ``field``: as of :class:`Growing`. ``beside``: of the event that ends its text.
    """

    item: Item
    event: str
    field: str
    beside: Mapping[str, Any]

    @property
    def opened(self) -> Item:
        """The item before its text has come."""
        return {**self.item, self.field: "", "status": "in_progress"}


def called(id: str, call_id: str, arguments: str, shape: Shape, status: str) -> Called:
    """A call. ``id``: the item's, without its kind's prefix."""
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
    """A chat completion's usage, with both details, as the SDKs want them."""
    read = usage.get("prompt_tokens_details") or {}
    written = usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": usage.get("prompt_tokens") or 0,
        "input_tokens_details": {
            "cached_tokens": read.get("cached_tokens") or 0,
            "cache_write_tokens": read.get("cache_creation_tokens") or 0,
        },
        "output_tokens": usage.get("completion_tokens") or 0,
        "output_tokens_details": {"reasoning_tokens": written.get("reasoning_tokens") or 0},
        "total_tokens": usage.get("total_tokens") or 0,
    }
