"""Chunks → one ``chat.completion``, exactly as a server that does not stream would have sent it.

Known fields follow OpenAI's meaning; unknown ones are kept by their shape: strings are joined,
lists are extended, objects are merged, anything else takes the last value that came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .chunk_form import index_of
from .reply import Reply

# Strings that name something: sent whole, perhaps more than once, and by some servers empty then.
_WHOLE_STRINGS: Final = frozenset(
    {"role", "id", "type", "object", "model", "format", "signature", "name", "finish_reason"}
)
_TOP_SKIPPED: Final = frozenset({"choices", "usage", "object"})
_PIECES: Final = 256  # of a choice, after which they are put together


class CompletionBuilder:
    """Takes the chunks of one reply in their form and order; :meth:`build` gives the whole."""

    __slots__ = ("_choices", "_top", "_usage")

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, list[dict[str, Any]]] = {}
        self._usage: Any = None

    def add(self, payload: dict[str, Any]) -> None:
        """Take one chunk. It is not changed, but parts of it may be kept."""
        for key, value in payload.items():
            if value is not None or key not in self._top:
                self._top[key] = value
        for choice in payload.get("choices") or ():
            pieces = self._choices.setdefault(choice["index"], [])
            pieces.append(choice)
            if len(pieces) > _PIECES:
                pieces[:] = [merged(pieces)]
        self._usage = payload.get("usage") or self._usage

    def build(self) -> dict[str, Any]:
        """The ``chat.completion`` object."""
        top = {key: self._top[key] for key in self._top if key not in _TOP_SKIPPED}
        whole: dict[str, Any] = {"object": "chat.completion", **top}
        whole["choices"] = [_finished(merged(self._choices[i])) for i in sorted(self._choices)]
        if self._usage is not None:
            whole["usage"] = self._usage
        return whole


def merged(pieces: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """An object that came in pieces."""
    values: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            said = values.setdefault(key, [])
            if value is not None:
                said.append(value)
    return {key: _joined(key, said) for key, said in values.items()}


def _joined(key: str, values: list[Any]) -> Any:
    """What the values of a field come to, those of one kind with the last of them."""
    if not values:
        return None
    kind = type(values[-1])
    same = [value for value in values if type(value) is kind]
    if kind is str:
        return next(filter(None, reversed(same)), "") if key in _WHOLE_STRINGS else "".join(same)
    if kind is dict:
        return merged(same)
    if kind is list:
        listed = [item for value in same for item in value]
        of_calls = key == "tool_calls" and all(isinstance(item, dict) for item in listed)
        return _calls(same) if of_calls else listed
    return values[-1]


def _calls(lists: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The calls of which these are the pieces, by their index."""
    by_index: dict[int, list[dict[str, Any]]] = {}
    for pieces in lists:
        for place, piece in enumerate(pieces):
            by_index.setdefault(index_of(piece, place), []).append(piece)
    return [merged(by_index[index]) for index in sorted(by_index)]


def apply_mended(whole: dict[str, Any], reply: Reply) -> None:
    """Put the text, calls and finish reason of mended choices in place of what came."""
    for choice in whole["choices"]:
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
    """A choice whose pieces were deltas as one with a message."""
    message = choice.pop("delta")
    calls = message.pop("tool_calls", None)
    if calls:
        message["tool_calls"] = [{k: v for k, v in call.items() if k != "index"} for call in calls]
    message.setdefault("role", "assistant")
    if not message.get("content"):
        # OpenAI's own: null beside calls, a string otherwise.
        called = calls or message.get("function_call")
        message["content"] = None if called else message.get("content")
    return {"index": choice["index"], "message": message, "finish_reason": None, **choice}
