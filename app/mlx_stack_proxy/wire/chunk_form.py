"""A chunk as clients expect it, whatever form its server gave it.

OpenAI's SDKs, and the frameworks on them, take the form of a chunk on trust: one without
``choices``, a ``message`` in place of a ``delta`` or a role in every chunk ends an agent, or spoils
its history. What a server spells another way and can mean but one thing is spelt as OpenAI does;
what says nothing in any spelling is left out. A chunk that has its form comes out equal, the order
of its fields included, so that who relays it can send the bytes that came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from . import field_forms, surrogates
from .field_forms import BROKEN, OBJECT_OR_NONE

CHUNK: Final = "chat.completion.chunk"
Believes = Callable[[Mapping[str, Any]], bool]
MAX_CHOICES: Final = 128  # of a reply, as many as a client may ask for; further ones are left out


def choices_of(payload: Mapping[str, Any]) -> list[Any]:
    """The choices of a chunk or a completion; some servers send the only one without a list."""
    choices = payload.get("choices")
    if isinstance(choices, dict):
        return [choices]
    return choices[:MAX_CHOICES] if isinstance(choices, list) else []


def said_in(choice: Mapping[str, Any]) -> dict[str, Any]:
    """What a choice says: its delta, its message, or its text, as the older completions have it."""
    for said in (choice.get("delta"), choice.get("message")):
        if isinstance(said, dict):
            return said
    text = choice.get("text")
    return {"content": text} if isinstance(text, str) else {}


def index_of(one: Mapping[str, Any], position: int) -> int:
    """Which of its kind a choice or a call is: as it says, else by its place in the list."""
    index = one.get("index")
    return index if type(index) is int else position


def _always(usage: Mapping[str, Any]) -> bool:
    return True


class ChunkForm:
    """One stream's.

    ``id``, ``model``: for chunks that don't say them. ``believes``: whether what upstream says of
    its tokens can be; what can't be is left out. ``top``: what they do say of the reply.
    ``halves``: of the characters in its texts. ``begun``: the choices of which anything has come,
    and so their role, which goes out once.
    """

    __slots__ = ("_believes", "begun", "halves", "top")

    def __init__(self, id: str, model: str, believes: Believes = _always) -> None:
        self._believes = believes
        # When it was made, nobody says then.
        self.top: dict[str, Any] = {"id": id, "created": 0, "model": model, "object": CHUNK}
        self.halves = surrogates.Halves()
        self.begun: set[int] = set()

    def formed(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """The chunk in its form, equal to what came where that has it; None: it says nothing."""
        given = choices_of(payload)
        if error := _error_in(payload, given):
            return {"error": error}
        choices = [
            self._choice(one, index)
            for position, one in enumerate(given)
            if isinstance(one, dict) and (index := index_of(one, position)) < MAX_CHOICES
        ]
        formed = {**payload, **self._identify(payload), "choices": choices}
        formed.pop("error", None)  # a null is one to some clients
        if "usage" in payload:
            formed["usage"] = self._usage(payload["usage"])
        says_something = choices or formed.get("usage") or payload.get("choices") == []
        return formed if says_something else None

    def _usage(self, said: Any) -> dict[str, Any] | None:
        """With all its counts; None for one that has none, or is not believed."""
        usage = field_forms.usage(said)
        return usage if usage is None or self._believes(said) else None

    def _identify(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """What a chunk says of the reply; what it doesn't, as the one before it did."""
        for key in ("id", "model"):
            value = payload.get(key)
            if type(value) in (str, int) and value != "":
                self.top[key] = str(value)
        created = field_forms.whole_number(payload.get("created"))
        if created is not None:
            self.top["created"] = created
        return self.top

    def _choice(self, choice: dict[str, Any], index: int) -> dict[str, Any]:
        delta = field_forms.delta(said_in(choice))
        if index not in self.begun:
            self.begun.add(index)
            delta["role"] = "assistant"
        elif delta.get("role") is not None:
            del delta["role"]
        formed = {**choice, "index": index, "delta": delta}
        formed.pop("message", None)
        if not isinstance(choice.get("delta"), dict):
            formed.pop("text", None)
        if type(choice.get("logprobs")) not in OBJECT_OR_NONE:
            del formed["logprobs"]
        if "finish_reason" in choice:
            formed["finish_reason"] = field_forms.finish_reason(choice["finish_reason"])
        return formed


def _error_in(payload: Mapping[str, Any], choices: list[Any]) -> Any:
    """The error that a chunk brings; nothing if it is none."""
    if error := payload.get("error"):
        return error
    for choice in choices:
        if isinstance(choice, dict):
            if choice.get("error"):
                return choice["error"]
            if (reason := choice.get("finish_reason")) in BROKEN:
                return f"the model server ended the reply by {reason!r}"
    if "choices" in payload:
        return None
    if "error" in (payload.get("object"), payload.get("type")):  # as vLLM had it
        return payload
    return payload.get("detail")  # as FastAPI has it
