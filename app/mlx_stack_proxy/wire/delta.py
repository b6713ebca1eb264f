"""A typed chunk of ``/v1/chat/completions``: what one frame of a stream adds to the reply.

``DECODE`` strictly decodes a chunk that is already in OpenAI's form, in one step; it refuses every
other chunk, including one with an unknown field. ``typed`` converts a chunk that ``ChunkReader``
has normalised; fields that only the client reads go into ``more``.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Annotated, Any, Final, Literal

import msgspec
import orjson
from msgspec import Meta, Struct

from . import sse
from .call import Call, CallPiece, Function, Index, OddPiece, as_function
from .field_forms import MOST, REASONING_FIELDS

CHUNK: Final = "chat.completion.chunk"
FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]
# The kinds of content in a delta, as bits of `Delta.kinds`.
TEXT, REASONING, OTHER, CALL, FINISH = 1, 2, 4, 8, 16
_Name = Annotated[str, Meta(min_length=1)]


class DeltaContent(Struct, forbid_unknown_fields=True, gc=False):
    """The content of one choice's delta."""

    content: str | None = None
    role: Literal["assistant"] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    thinking: str | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None
    function_call: None = None
    audio: None = None
    provider_specific_fields: dict[str, Any] | None = None

    @property
    def thought(self) -> str:
        """The reasoning; servers have three names for it, and some use two at once."""
        return self.reasoning_content or self.reasoning or self.thinking or ""

    @property
    def says_more(self) -> bool:
        """Whether there is anything besides text and calls."""
        return bool(self.thought or self.refusal or self.provider_specific_fields)


class ChoiceDelta(Struct, forbid_unknown_fields=True, gc=False):
    """One choice in a chunk."""

    index: Index
    delta: DeltaContent
    finish_reason: FinishReason | None = None
    logprobs: None = None
    stop_reason: None = None  # vLLM's, like the next; `matched_stop` is SGLang's
    token_ids: None = None
    matched_stop: None = None


class Chunk(Struct, forbid_unknown_fields=True, gc=False):
    """A chunk in form."""

    id: _Name
    created: Annotated[int, Meta(ge=-MOST, le=MOST)]
    model: _Name
    object: Literal["chat.completion.chunk"]
    choices: list[ChoiceDelta]
    usage: dict[str, Any] | None = None
    system_fingerprint: str | None = None
    service_tier: str | None = None
    obfuscation: str = ""  # OpenAI's padding, which hides packet lengths


class Usage(Struct, frozen=True, gc=False):
    """Token counts of the whole reply, as upstream gives them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    counted_by_litellm: bool = False  # they look like LiteLLM's estimate
    names_cached: bool = False  # the usage reports cached tokens, even if 0


class UpstreamErrorEvent(Struct, frozen=True, gc=False):
    """An error object in a stream that began with status 200."""

    message: str
    type: str
    code: str | None


class Delta(Struct, gc=False):
    """The content of one frame of a stream."""

    raw: bytes  # the frame for a client of chat completions
    choices: list[ChoiceDelta] = []
    usage: dict[str, Any] | None = None
    error: UpstreamErrorEvent | None = None
    # Fields that only the client reads, as in a chunk: `{"a": 1, "choices": [{"index": 0, …}]}`.
    more: dict[str, Any] | None = None
    other: tuple[int, ...] = ()  # choices with content that no stage inspects: audio, images
    done: bool = False  # the frame is ``[DONE]``
    texts: list[str] = []  # the texts of frames that were merged into one delta
    # Set once the reply has taken the delta:
    kinds: int = 0  # the kinds of its content
    text: str = ""  # of all choices
    grown: list[tuple[int, Call, str]] = []  # its calls' growth: choice, call, new arguments


DECODE: Final = msgspec.json.Decoder(Chunk).decode
_CHUNK_FIELDS: Final = frozenset(Chunk.__struct_fields__) | {"error"}
_CHOICE_FIELDS: Final = frozenset({"index", "delta", "finish_reason"})
_CALL_FIELDS: Final = frozenset({"index", "id", "type", "function"})
_FUNCTION_FIELDS: Final = frozenset({"name", "arguments"})
_TEXTS: Final = ("role", "refusal", *REASONING_FIELDS)
_DELTA_FIELDS: Final = frozenset({"content", "tool_calls", "function_call", *_TEXTS})


def typed(raw: bytes, formed: Mapping[str, Any]) -> Delta:
    """Return a normalised chunk as a delta."""
    delta = Delta(raw, usage=formed.get("usage") or None)
    if error := formed.get("error"):
        delta.error = read_error(error)
    more = _others(formed, _CHUNK_FIELDS)
    rest: list[dict[str, Any]] = []
    for choice in formed.get("choices") or ():
        index, fields = choice["index"], choice["delta"]
        content, function = fields.get("content"), fields.get("function_call")
        calls = [*(fields.get("tool_calls") or ())]
        if function:
            calls.append(as_function(function, index=0))
        said = DeltaContent(text_of(content), **{name: fields.get(name) for name in _TEXTS})
        said.tool_calls = [_piece(place, call) for place, call in enumerate(calls)]
        others = _others(fields, _DELTA_FIELDS)
        if not isinstance(content, str | None):
            others["content"] = content
        if (
            others.get("audio")
            or others.get("images")
            or ("content" in others and not said.content)
        ):
            delta.other = (*delta.other, index)
        delta.choices.append(ChoiceDelta(index, said, choice.get("finish_reason")))
        of_choice = _others(choice, _CHOICE_FIELDS)
        if of_choice or others:
            rest.append({"index": index, "delta": others, **of_choice})
    delta.more = more | {"choices": rest} if rest else more or None
    return delta


def _others(fields: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    """Return the fields that only the client reads."""
    return {key: value for key, value in fields.items() if key not in known and value is not None}


def _piece(position: int, call: dict[str, Any]) -> CallPiece:
    given = call.get("function")
    function = given or {}
    arguments = function.get("arguments")
    was_object = isinstance(arguments, (dict, list))  # some servers don't encode them as text
    if was_object:
        arguments = orjson.dumps(arguments).decode()
    name, kind, index = string_of(function.get("name")), call.get("type"), index_of(call, position)
    whole = kind == "function" or (kind is None and not name)
    more = _others(call, _CALL_FIELDS)
    if inner := _others(function, _FUNCTION_FIELDS):
        more["function"] = inner
    return OddPiece(
        index,
        Function(name, string_of(arguments)),
        string_of(call.get("id")),
        was_object=was_object,
        odd=index is not call.get("index") or not whole or type(given) is not dict,
        more=more or None,
    )


def usage_of(usage: Mapping[str, Any]) -> Usage:
    """Return the counts of a normalised usage."""
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    prompt, output = count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))
    by_litellm = "completion_tokens_details" in usage and cached is None
    return Usage(prompt, output, count_of(cached), by_litellm, cached is not None)


def split_text(delta: Delta, length: int) -> tuple[Delta, Delta]:
    """Split a delta of one choice's text after ``length`` characters; frames are not split."""
    (choice,) = delta.choices
    text = choice.delta.content or ""
    head, said = copy(delta), copy(choice.delta)
    said.content = text[:length]
    head.choices, head.text = [ChoiceDelta(choice.index, said)], text[:length]
    tail = ChoiceDelta(choice.index, DeltaContent(content=text[length:]))
    return head, Delta(b"", [tail], kinds=TEXT, text=text[length:])


def read_error(error: Any) -> UpstreamErrorEvent:
    """Return the error in a chunk."""
    if not isinstance(error, dict):
        return UpstreamErrorEvent(str(error), "error", None)
    code = error.get("code")
    message, kind = str(error.get("message", "")), str(error.get("type") or "error")
    return UpstreamErrorEvent(message, kind, None if code is None else str(code))


def render(payload: Mapping[str, Any]) -> bytes:
    """Write a chunk as a frame."""
    return sse.data_frame(orjson.dumps(payload))


def index_of(item: Mapping[str, Any], position: int) -> int:
    """Return the ``index`` of a choice or call; without one, its position in the list."""
    index = item.get("index")
    return index if type(index) is int and index >= 0 else position


def text_of(content: Any) -> str:
    """Return the text of a message's ``content``, which is a string, a list of parts, or None."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return "".join(text for text in parts if isinstance(text, str))
    return ""


def string_of(value: Any) -> str:
    """Return a string unchanged; "" for any other value."""
    return value if isinstance(value, str) else ""


def count_of(value: Any) -> int:
    """Return a count from a usage; 0 if the value is not a positive integer."""
    return value if isinstance(value, int) and value > 0 else 0
