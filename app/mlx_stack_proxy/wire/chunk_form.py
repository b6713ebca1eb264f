"""A chunk as clients expect it, whatever form its server gave it.

OpenAI's SDKs, and the frameworks on them, take the form of a chunk on trust: one without
``choices``, a ``message`` in place of a ``delta`` or a role in every chunk ends an agent, or spoils
its history. What a server spells another way and can mean but one thing is spelt as OpenAI does;
what says nothing in any spelling is left out. A chunk that has its form stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from . import field_forms
from .field_forms import BROKEN, FINISH_REASONS, OBJECT_OR_NONE, REASONING_FIELDS
from .reply import Reply

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
    """One stream's. ``reply``: what its chunks have said so far.

    ``id``, ``model``: for chunks that don't say them. ``believes``: whether what upstream says of
    its tokens can be; what can't be is left out. ``top``: what they do say of the reply. ``begun``:
    the choices of which anything has come, and so their role, which goes out once.
    """

    __slots__ = ("_believes", "_by_message", "_is_known", "_reply", "begun", "top")

    def __init__(self, reply: Reply, id: str, model: str, believes: Believes = _always) -> None:
        self._reply = reply
        self._believes = believes
        # When it was made, nobody says then.
        self.top: dict[str, Any] = {"id": id, "created": 0, "model": model, "object": CHUNK}
        self._is_known = False
        self.begun: set[int] = set()
        self._by_message: set[int] = set()  # choices that come in messages, piece by piece

    def formed(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """The chunk in its form, itself where it has that; None: it says nothing."""
        if self._is_formed(payload):
            return payload
        error = _error_in(payload)
        if error:
            return {"error": error}
        choices = [one for one in choices_of(payload) if isinstance(one, dict)]
        formed = {**payload, **self._identify(payload)}
        formed.pop("error", None)
        formed["choices"] = [
            self._choice(one, position)
            for position, one in enumerate(choices)
            if index_of(one, position) < MAX_CHOICES
        ]
        if "usage" in payload:
            formed["usage"] = self._usage(payload["usage"])
        says_something = formed["choices"] or formed.get("usage") or payload.get("choices") == []
        return formed if says_something else None

    def _is_formed(self, payload: dict[str, Any]) -> bool:
        """Whether a chunk needs no second look, as nearly all don't."""
        choices, usage = payload.get("choices"), payload.get("usage")
        if (
            type(choices) is not list
            or len(choices) > MAX_CHOICES
            or payload.get("object") != CHUNK
            or type(payload.get("id")) is not str
            or type(payload.get("created")) is not int
            or type(payload.get("model")) is not str
            or (usage is not None and not self._is_usage(usage))
            or "error" in payload  # a null is one to some clients
        ):
            return False
        for choice in choices:
            if type(choice) is not dict or not self._is_choice(choice):
                return False
        if not self._is_known:
            self._identify(payload)
        if len(choices) != 1 or choices[0]["index"] not in self.begun:
            self.begun.update([choice["index"] for choice in choices])
        return True

    def _is_usage(self, usage: Any) -> bool:
        return field_forms.is_usage(usage) and self._believes(usage)

    def _usage(self, said: Any) -> dict[str, Any] | None:
        """With all its counts; None for one that has none, or is not believed."""
        usage = field_forms.usage(said)
        return usage if usage is None or self._believes(said) else None

    def _is_choice(self, choice: dict[str, Any]) -> bool:
        index, delta = choice.get("index"), choice.get("delta")
        if (
            type(index) is not int
            or index >= MAX_CHOICES
            or type(delta) is not dict
            or "message" in choice
        ):
            return False
        if delta.get("role") != (None if index in self.begun else "assistant"):
            return False
        reason = choice.get("finish_reason")
        if reason is not None and reason not in FINISH_REASONS:
            return False
        if choice.get("error") or type(choice.get("logprobs")) not in OBJECT_OR_NONE:
            return False
        return field_forms.is_delta(delta)

    def _identify(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """What a chunk says of the reply; what it doesn't, as the one before it did."""
        self._is_known = True
        for key in ("id", "model"):
            value = payload.get(key)
            if type(value) in (str, int) and value != "":
                self.top[key] = str(value)
        created = field_forms.whole_number(payload.get("created"))
        if created is not None:
            self.top["created"] = created
        return self.top

    def _choice(self, choice: dict[str, Any], position: int) -> dict[str, Any]:
        index = index_of(choice, position)
        said = field_forms.delta(self._news(index, choice))
        role = {} if index in self.begun else {"role": "assistant"}
        self.begun.add(index)
        delta = {**role, **{key: said[key] for key in said if key != "role"}}
        replaced = {"index", "delta", "message", "finish_reason"}
        if not isinstance(choice.get("delta"), dict):
            replaced.add("text")
        if type(choice.get("logprobs")) not in OBJECT_OR_NONE:
            replaced.add("logprobs")
        rest = {key: choice[key] for key in choice if key not in replaced}
        reason = field_forms.finish_reason(choice.get("finish_reason"))
        return {"index": index, "delta": delta, "finish_reason": reason, **rest}

    def _news(self, index: int, choice: dict[str, Any]) -> dict[str, Any]:
        """What a choice says that has not come yet.

        A message in place of a delta is a piece like that one. But with the finish of what came in
        deltas it is all of it once more.
        """
        said = said_in(choice)
        if isinstance(choice.get("delta"), dict):
            return said
        came = self._reply.choices.get(index)
        if came is None or index in self._by_message or not choice.get("finish_reason"):
            self._by_message.add(index)
            return said
        whole = field_forms.delta(said)
        text = whole.get("content") or ""
        if not isinstance(text, str) or not text.startswith(came.text):
            return said
        again = {*REASONING_FIELDS} if came.reasoning else set()
        again |= {"tool_calls", "function_call"} if came.tool_calls else set()
        rest = {key: whole[key] for key in whole if key not in again}
        return {**rest, "content": text.removeprefix(came.text)}


def _error_in(payload: Mapping[str, Any]) -> Any:
    """The error that a chunk brings; nothing if it is none."""
    if error := payload.get("error"):
        return error
    for choice in choices_of(payload):
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
