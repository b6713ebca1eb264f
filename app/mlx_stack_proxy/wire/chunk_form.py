"""A chunk as clients expect it, whatever form its server gave it.

OpenAI's SDKs, and the frameworks on them, take the form of a chunk on trust: one without
``choices``, a ``message`` in place of a ``delta`` or a role in every chunk ends an agent, or spoils
its history. ``ChunkForm`` spells a field as OpenAI does where another spelling can mean only one
thing, and drops a chunk that says nothing in any spelling. A chunk in OpenAI's form comes out
equal, the order of its fields included, so the relay can send the bytes that came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from . import field_forms
from .delta import CHUNK, Counts, index_of
from .field_forms import BROKEN, OBJECT_OR_NONE

# Fields that say nothing of a chunk's own.
OF_SERVER: Final = ("system_fingerprint", "service_tier")
_SHARED: Final = frozenset(
    {"id", "object", "created", "model", "choices", "obfuscation", *OF_SERVER}
)
Believes = Callable[[Mapping[str, Any] | Counts], bool]
MAX_CHOICES: Final = 128  # of a reply: a client may ask for no more


def choices_of(payload: Mapping[str, Any]) -> list[Any]:
    """Return the choices of a chunk or a completion; some servers send one without a list."""
    choices = payload.get("choices")
    if isinstance(choices, dict):
        return [choices]
    return choices[:MAX_CHOICES] if isinstance(choices, list) else []


def said_in(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Return a choice's delta, its message, or the text of an older completion as a message."""
    for message in (choice.get("delta"), choice.get("message")):
        if isinstance(message, dict):
            return message
    text = choice.get("text")
    return {"content": text} if isinstance(text, str) else {}


def always(usage: Mapping[str, Any] | Counts) -> bool:
    return True


class ChunkForm:
    """Brings the chunks of one stream into form.

    ``id`` and ``model`` stand in chunks that lack them, until a chunk says its own. A usage that
    ``believes`` refuses is left out, because it can't be true. Of the choices, the first
    ``expected`` that begin are kept: what a server sends unasked is no part of the reply.
    """

    __slots__ = ("_expected", "begun", "believes", "called", "top")

    def __init__(
        self, id: str, model: str, believes: Believes = always, expected: int = MAX_CHOICES
    ) -> None:
        self.believes = believes
        self._expected = expected
        self.called: set[int] = set()  # choices that have made a call
        # The fields that all chunks of a reply share. `created` is 0 until a chunk brings a time.
        self.top: dict[str, Any] = {"id": id, "created": 0, "model": model, "object": CHUNK}
        self.begun: set[int] = set()  # choices of which a chunk, and so the role, has gone out

    def formed(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """Return the chunk in form, unchanged if it was in form; None if it says nothing."""
        raw_choices = choices_of(payload)
        if error := _error_in(payload, raw_choices):
            return {"error": error}
        choices = [
            self._choice(choice, index)
            for position, choice in enumerate(raw_choices)
            if isinstance(choice, dict) and self.takes(index := index_of(choice, position))
        ]
        formed = {**payload, **self._identify(payload), "choices": choices}
        formed.pop("error", None)  # some clients take `"error": null` for an error
        formed.pop("mlx_stack", None)  # ours: no server may write it
        if "usage" in payload:
            formed["usage"] = self._usage(payload["usage"])
        says_something = choices or formed.get("usage") or payload.get("choices") == []
        return formed if says_something else None

    def takes(self, index: int) -> bool:
        return index in self.begun or len(self.begun) < self._expected

    def _usage(self, raw_usage: Any) -> dict[str, Any] | None:
        """Return the usage with all its counts; None if it has no count, or can't be true."""
        usage = field_forms.usage(raw_usage)
        return usage if usage is None or self.believes(raw_usage) else None

    def _identify(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Return the shared fields: the chunk's own, else the values of earlier chunks."""
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
        if delta.get("tool_calls"):
            self.called.add(index)
        formed = {**choice, "index": index, "delta": delta}
        formed.pop("message", None)
        if not isinstance(choice.get("delta"), dict):
            formed.pop("text", None)
        if type(choice.get("logprobs")) not in OBJECT_OR_NONE:
            del formed["logprobs"]
        if "finish_reason" in choice:
            formed["finish_reason"] = self._finish_reason(choice["finish_reason"], index)
        return formed

    def _finish_reason(self, reason: Any, index: int) -> str | None:
        """Return OpenAI's finish reason. A reply with calls ends for them, so that agents go on."""
        formed = field_forms.finish_reason(reason)
        return "tool_calls" if formed == "stop" and index in self.called else formed


def says_nothing(formed: Mapping[str, Any]) -> bool:
    """Whether a chunk in form has nothing that any client would read.

    The first chunk of a choice has its role.
    """
    for choice in formed["choices"]:
        said = any(value for key, value in choice.items() if key not in ("index", "delta"))
        if said or any(choice["delta"].values()):
            return False
    return bool(formed["choices"]) and not any(formed[key] for key in formed.keys() - _SHARED)


def _error_in(payload: Mapping[str, Any], choices: list[Any]) -> Any:
    """Return the error that a chunk brings; None if it brings none."""
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
