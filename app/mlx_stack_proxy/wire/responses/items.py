"""The items of a request's input, in their order, as chat messages.

What the assistant said in a row (reasoning, messages, calls) is one message, and so is what the
user said: many chat templates take no two of one role. System texts that come first make the one
system message; later ones stay where they are, as the user's, for in front they would change the
beginning of the prompt with each turn. An item of a kind that chat completions lack becomes a call
and its result where it has a ``call_id``, else text.

The messages depend on the items before them alone: those of a turn begin with those of the turn
before, byte for byte, so that what was read of them stays of use (prompt caches, loop detection).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from ...errors import INVALID_REQUEST, ProxyError, invalid
from ..shared import REMINDER
from .fields import objects, string
from .parts import Content, content_of, joined, result_of, text_of
from .tools import custom_arguments, flat_name

Item = Mapping[str, Any]
# Not part of what an item says: how the protocol keeps it, or what stands elsewhere in the message.
_OUTSIDE: Final = frozenset({"type", "id", "call_id", "status", "caller"})
_ENDED: Final = (None, "in_progress", "completed")
_STORED: Final = {
    "item_reference": "items are not stored here: send the item itself",
    "compaction": "a compaction by another server can't be read here: send the items themselves",
    "compaction_trigger": "the input is not compacted here: ask for a summary in a message",
}


def messages_of(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request. Raises :class:`ProxyError` (400) with what is wrong and where."""
    messages = _Messages()
    messages.system(text_of(body.get("instructions")))
    given = body.get("input")
    if isinstance(given, str):
        messages.user(given)
    else:
        for position, item in enumerate(objects(given, "input")):
            _take(messages, item, f"input[{position}]")
    return messages.finished()


class _Messages:
    """Chat messages as they grow; the assistant's last one stays open while it goes on speaking."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._messages: list[dict[str, Any]] = []
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._images: list[dict[str, Any]] = []  # of results that came last

    def system(self, text: str) -> None:
        if not text:
            return
        if self._messages or self._texts or self._thoughts or self._calls:
            self.user(REMINDER.format(text))
        else:
            self._head.append(text)

    def user(self, content: Content) -> None:
        self._close()
        last = self._messages[-1] if self._messages else {}
        if last.get("role") == "user":
            last["content"] = joined(last["content"], content)
        else:
            self._messages.append({"role": "user", "content": content})

    def assistant(self, *, text: str = "", thought: str = "") -> None:
        self._show_images()
        self._texts += [text] if text else []
        self._thoughts += [thought] if thought else []

    def call(self, call_id: str, name: str, arguments: str) -> None:
        self._show_images()
        function = {"name": name, "arguments": arguments}
        self._calls.append({"id": call_id, "type": "function", "function": function})

    def result(self, call_id: str, text: str, images: list[dict[str, Any]]) -> None:
        self._end_of_speech()
        self._messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
        self._images += images

    def finished(self) -> list[dict[str, Any]]:
        self._close()
        head = "\n\n".join(self._head)
        return [*([{"role": "system", "content": head}] if head else []), *self._messages]

    def _close(self) -> None:
        self._end_of_speech()
        self._show_images()

    def _end_of_speech(self) -> None:
        texts, thoughts, calls = self._texts, self._thoughts, self._calls
        if texts or calls:  # reasoning alone is no message
            message: dict[str, Any] = {"role": "assistant"}
            message["content"] = "\n\n".join(texts) if texts else None
            if thoughts:
                message["reasoning_content"] = "\n\n".join(thoughts)
            if calls:
                message["tool_calls"] = calls
            self._messages.append(message)
        self._texts, self._thoughts, self._calls = [], [], []

    def _show_images(self) -> None:
        if self._images:
            images, self._images = self._images, []
            self._messages.append({"role": "user", "content": images})


def _take(messages: _Messages, item: Item, where: str) -> None:
    kind = item.get("type") or ("message" if "role" in item else "item_reference")
    if not isinstance(kind, str):
        raise invalid(f"`{where}.type` must be a string", f"{where}.type")
    if kind in _STORED:
        raise ProxyError(
            400, INVALID_REQUEST, f"`{where}`: {_STORED[kind]}", param=where, code="not_supported"
        )
    _KINDS.get(kind, _other)(messages, item, where)


def _message(messages: _Messages, item: Item, where: str) -> None:
    role = string(item, "role", where)
    content = item.get("content")
    if role in ("system", "developer"):
        messages.system(text_of(content))
    elif role == "assistant":
        messages.assistant(text=text_of(content, ""))
    elif role == "user":
        messages.user(content_of(content, f"{where}.content"))
    else:
        raise invalid(f"`{where}.role` must be user, assistant, system or developer", where)


def _reasoning(messages: _Messages, item: Item, where: str) -> None:
    """What it thought, or a summary of it; encrypted content only its own server can read."""
    messages.assistant(thought=text_of(item.get("content") or item.get("summary") or []))


def _function_call(messages: _Messages, item: Item, where: str) -> None:
    arguments = item.get("arguments")
    given = arguments if isinstance(arguments, str) else orjson.dumps(arguments or {}).decode()
    messages.call(string(item, "call_id", where), _name(item, where), given)


def _custom_call(messages: _Messages, item: Item, where: str) -> None:
    arguments = custom_arguments(string(item, "input", where))
    messages.call(string(item, "call_id", where), _name(item, where), arguments)


def _name(item: Item, where: str) -> str:
    return flat_name(string(item, "name", where), item.get("namespace"))


def _result(messages: _Messages, item: Item, where: str) -> None:
    if isinstance(item.get("output"), str) or _has_parts(item.get("output")):
        text, images = result_of(item["output"], f"{where}.output")
    else:
        text, images = _said(item), []
    status = item.get("status")
    marked = text if status in _ENDED else f"[{status}] {text}"
    # The id of local_shell_call_output is its call's.
    call_id = item.get("call_id") or item.get("id")
    if not isinstance(call_id, str):
        raise invalid(f"`{where}.call_id` must be a string", f"{where}.call_id")
    messages.result(call_id, marked, images)


def _has_parts(output: Any) -> bool:
    return isinstance(output, list) and all(isinstance(p, dict) and "type" in p for p in output)


def _other(messages: _Messages, item: Item, where: str) -> None:
    """An item of a tool that is not offered here, or of a kind that is not known."""
    kind = str(item["type"])
    paired = isinstance(item.get("call_id"), str)
    if kind.endswith("_output") and (paired or kind == "local_shell_call_output"):
        _result(messages, item, where)
    elif paired:
        messages.call(item["call_id"], kind.removesuffix("_call"), _said(item))
    elif "role" in item or kind.endswith("_response"):
        messages.user(REMINDER.format(f"[{kind}] {_said(item)}"))
    else:
        messages.assistant(text=f"[{kind}] {_said(item)}")


def _said(item: Item) -> str:
    said = {key: value for key, value in item.items() if key not in _OUTSIDE}
    if item["type"] == "image_generation_call":
        said["result"] = "[image]"  # its bytes would be read as words
    return orjson.dumps(said).decode()


_KINDS: Final[Mapping[Any, Callable[[_Messages, Item, str], None]]] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _result,
    "custom_tool_call": _custom_call,
    "custom_tool_call_output": _result,
}
