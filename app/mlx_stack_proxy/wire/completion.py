"""Builds one ``chat.completion`` from chunks, as a server that does not stream would send it.

Known fields are put together as OpenAI means them, unknown ones by their type: strings are joined,
lists are extended, objects are merged, and of any other type the last value counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .chunk_form import index_of
from .reply import Reply

# Strings that are not joined: servers send them whole, perhaps more than once, and perhaps empty.
_WHOLE_STRINGS: Final = frozenset(
    {"role", "id", "type", "object", "model", "format", "signature", "name", "finish_reason"}
)
_TOP_SKIPPED: Final = frozenset({"choices", "usage", "object"})
_PIECES: Final = 256  # so many pieces of a choice are merged to one


class CompletionBuilder:
    """Takes one reply's chunks, in form and in order; :meth:`build` returns the completion."""

    __slots__ = ("_choices", "_top", "_usage")

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, _Pieces] = {}
        self._usage: Any = None

    def add(self, payload: dict[str, Any]) -> None:
        """Take one chunk. The builder doesn't change the chunk, but may keep parts of it."""
        for key, value in payload.items():
            if value is not None or key not in self._top:
                self._top[key] = value
        for choice in payload.get("choices") or ():
            self._choices.setdefault(choice["index"], _Pieces()).add(choice)
        self._usage = payload.get("usage") or self._usage

    def build(self) -> dict[str, Any]:
        """Return the ``chat.completion`` object."""
        top = {key: self._top[key] for key in self._top if key not in _TOP_SKIPPED}
        completion: dict[str, Any] = {"object": "chat.completion", **top}
        completion["choices"] = [
            _finished(self._choices[index].joined()) for index in sorted(self._choices)
        ]
        if self._usage is not None:
            completion["usage"] = self._usage
        return completion


class _Pieces:
    """The pieces of one choice, merged in blocks so that no piece is copied over and over."""

    __slots__ = ("_blocks", "_newest")

    def __init__(self) -> None:
        self._blocks: list[tuple[int, dict[str, Any]]] = []  # with their sizes, in `_PIECES`
        self._newest: list[dict[str, Any]] = []

    def add(self, piece: dict[str, Any]) -> None:
        self._newest.append(piece)
        if len(self._newest) < _PIECES:
            return
        block, size = merged(self._newest), 1
        self._newest = []
        while self._blocks and self._blocks[-1][0] <= size:
            earlier_size, earlier = self._blocks.pop()
            block, size = merged([earlier, block]), earlier_size + size
        self._blocks.append((size, block))

    def joined(self) -> dict[str, Any]:
        return merged([*(block for _, block in self._blocks), *self._newest])


def merged(pieces: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the pieces in which an object came."""
    values: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            present = values.setdefault(key, [])
            if value is not None:
                present.append(value)
    return {key: _joined(key, present) for key, present in values.items()}


def _joined(key: str, values: list[Any]) -> Any:
    """Join the values of a field; only values of the last value's type count."""
    if not values:
        return None
    kind = type(values[-1])
    alike = [value for value in values if type(value) is kind]
    if kind is str:
        return next(filter(None, reversed(alike)), "") if key in _WHOLE_STRINGS else "".join(alike)
    if kind is dict:
        return merged(alike)
    if kind is list:
        items = [item for value in alike for item in value]
        of_calls = key == "tool_calls" and all(isinstance(item, dict) for item in items)
        return _calls(alike) if of_calls else items
    return values[-1]


def _calls(lists: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Merge the pieces of calls by their index."""
    by_index: dict[int, list[dict[str, Any]]] = {}
    for pieces in lists:
        for position, piece in enumerate(pieces):
            by_index.setdefault(index_of(piece, position), []).append(piece)
    return [merged(by_index[index]) for index in sorted(by_index)]


def apply_mended(completion: dict[str, Any], reply: Reply) -> None:
    """Replace text, calls and finish reason of each choice that stages mended."""
    for choice in completion["choices"]:
        if choice["index"] not in reply.mended:
            continue
        mended = reply.choices[choice["index"]]
        message = choice["message"]
        message.pop("function_call", None)
        message.pop("tool_calls", None)
        if mended.tool_calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in mended.tool_calls
            ]
        message["content"] = mended.text or (None if mended.tool_calls else "")
        choice["finish_reason"] = mended.finish_reason


def _finished(choice: dict[str, Any]) -> dict[str, Any]:
    """Turn a choice merged from deltas into one with a message."""
    message = choice.pop("delta")
    calls = message.pop("tool_calls", None)
    if calls:
        message["tool_calls"] = [
            {key: value for key, value in call.items() if key != "index"} for call in calls
        ]
    message.setdefault("role", "assistant")
    if not message.get("content"):
        # OpenAI sends null beside calls.
        called = calls or message.get("function_call")
        message["content"] = None if called else message.get("content")
    return {"index": choice["index"], "message": message, "finish_reason": None, **choice}
