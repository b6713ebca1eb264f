"""Chunks → one ``chat.completion``, exactly as a server that does not stream would have sent it.

Known fields follow OpenAI's meaning; unknown ones are kept by their shape: strings are joined,
lists are extended, objects are merged, anything else takes the last value that came.
"""

from __future__ import annotations

from typing import Any

from .chunk_form import index_of
from .reply import Reply

# Strings that name something and are sent whole, perhaps more than once.
_WHOLE_STRINGS = frozenset({"role", "id", "type", "object", "model", "format", "signature"})
_CHOICE_SKIPPED = frozenset({"delta", "message", "index"})
_TOP_SKIPPED = frozenset({"choices", "usage", "object"})


class _Pieces(list[str]):
    """A string still growing: joining once at the end keeps a long reply linear."""


class _Items(list[Any]):
    """A list still growing, ours to extend."""


class CompletionBuilder:
    """Takes the parsed chunks of one reply in order; :meth:`build` gives the whole."""

    __slots__ = ("_choices", "_top", "_usage")

    def __init__(self) -> None:
        self._top: dict[str, Any] = {}
        self._choices: dict[int, dict[str, Any]] = {}
        self._usage: Any = None

    def add(self, payload: dict[str, Any]) -> None:
        """Take one chunk. It is not changed, but parts of it may be kept."""
        said = payload
        if None in payload.values():
            said = {k: v for k, v in payload.items() if v is not None or k not in self._top}
        self._top.update(said)
        choices = payload.get("choices")
        for position, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict):
                self._add_choice(choice, position)
        if payload.get("usage") is not None:
            self._usage = payload["usage"]

    def _add_choice(self, choice: dict[str, Any], position: int) -> None:
        index = index_of(choice, position)
        known = self._choices.setdefault(index, {"index": index, "message": {}})
        delta = choice.get("delta")
        if isinstance(delta, dict):
            _add_delta(known["message"], delta)
        for key, value in choice.items():
            if key in _CHOICE_SKIPPED or (value is None and key in known):
                continue
            if key == "finish_reason":
                known[key] = value or known.get(key)
            else:
                known[key] = _joined(key, known.get(key), value)

    def build(self) -> dict[str, Any]:
        """The ``chat.completion`` object."""
        top = {key: self._top[key] for key in self._top if key not in _TOP_SKIPPED}
        whole: dict[str, Any] = {"object": "chat.completion", **top}
        whole["choices"] = [_finished(_resolved(self._choices[i])) for i in sorted(self._choices)]
        if self._usage is not None:
            whole["usage"] = self._usage
        return whole


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


def _add_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    if len(delta) == 1 and "content" in delta:  # nearly every delta of a stream
        text, pieces = delta["content"], message.get("content")
        if type(text) is str and type(pieces) is _Pieces:
            pieces.append(text)
            return
    for key, value in delta.items():
        if key == "tool_calls" and isinstance(value, list):
            _add_calls(_own(message, key), value)
        elif key == "function_call" and isinstance(value, dict):
            _add_function(_own(message, key), value)
        else:
            message[key] = _joined(key, message.get(key), value)


def _add_calls(calls: dict[int, dict[str, Any]], deltas: list[Any]) -> None:
    for place, delta in enumerate(deltas):
        if not isinstance(delta, dict):
            continue
        call = calls.setdefault(index_of(delta, place), {})
        for key, value in delta.items():
            if key == "function" and isinstance(value, dict):
                _add_function(_own(call, key), value)
            elif key != "index" and (value not in (None, "") or key not in call):
                call[key] = value  # some servers send an empty id with every further piece


def _add_function(function: dict[str, Any], delta: dict[str, Any]) -> None:
    for key, value in delta.items():
        if key == "name":
            # Some servers repeat the name in every piece; none is known to cut it in two.
            function[key] = value or function.get(key)
        else:
            function[key] = _joined(key, function.get(key), value)


def _own(holder: dict[str, Any], key: str) -> dict[Any, Any]:
    """The object at a key, made where there is none or null."""
    found = holder.get(key)
    if not isinstance(found, dict):
        found = holder[key] = {}
    return found


def _joined(key: str, old: Any, new: Any) -> Any:
    if old is None or new is None:
        return old if new is None else new
    if isinstance(new, str) and key not in _WHOLE_STRINGS:
        if isinstance(old, _Pieces):
            old.append(new)
            return old
        if isinstance(old, str):
            return _Pieces((old, new))
    if isinstance(old, list) and isinstance(new, list):
        if not isinstance(old, _Items):
            old = _Items(old)
        old.extend(new)
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        merged = dict(old)
        for part, value in new.items():
            merged[part] = _joined(part, old.get(part), value)
        return merged
    return new


def _finished(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice["message"]
    calls = message.get("tool_calls")
    if isinstance(calls, dict):
        if calls:
            message["tool_calls"] = [calls[i] for i in sorted(calls)]
        else:
            del message["tool_calls"]
    message.setdefault("role", "assistant")
    if not message.get("content"):
        # OpenAI's own: null beside calls, a string otherwise.
        called = message.get("tool_calls") or message.get("function_call")
        message["content"] = None if called else message.get("content")
    choice.setdefault("finish_reason", None)
    return choice


def _resolved(value: Any) -> Any:
    """A value with all strings in it whole."""
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {
            key: _resolved(part) if isinstance(part, (list, dict)) else part
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [_resolved(part) for part in value]
    return value
