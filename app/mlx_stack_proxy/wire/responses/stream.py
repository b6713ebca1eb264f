"""Writes a reply as the events of a response.

A message's text, its refusal and the reasoning are items that grow; one item is open at a time, and
text and reasoning are sent as they arrive. Calls come last, each whole and in order, because they
are released together anyway. The last event has the whole response; ``[DONE]`` follows it. An
unstreamed reply is the response in the last event of such a stream.

All ids are derived from the request's, so the same reply has the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson
from msgspec import Struct

from ...errors import ProxyError
from ..call import Call
from ..dialect import Context, Ending
from ..sse import DONE_FRAME, named_frame
from .errors import failure_of
from .request import Echo
from .tools import custom_text

Item = dict[str, Any]
_INCOMPLETE: Final[Mapping[Any, str]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}


class ItemKind(Struct, frozen=True):
    """A kind of item that grows piece by piece."""

    prefix: str  # of the item's id
    event: str  # prefix of its events' names
    field: str  # the text's field in the content part and in the event that ends the text
    part: Mapping[str, Any]  # the content part, without the text
    extra_fields: Mapping[str, Any]  # further fields of the item's events


_OUTPUT_TEXT: Final = {"type": "output_text", "annotations": [], "logprobs": []}
_REASONING: Final = ItemKind(
    "rs", "response.reasoning_text", "text", {"type": "reasoning_text"}, {}
)
_KINDS: Final[Mapping[str, ItemKind]] = {
    "reasoning": _REASONING,
    "text": ItemKind("msg", "response.output_text", "text", _OUTPUT_TEXT, {"logprobs": []}),
    "refusal": ItemKind("msg", "response.refusal", "refusal", {"type": "refusal"}, {}),
}


class ResponseStream:
    """Writes one reply's stream, as an :class:`~..dialect.Encoder`."""

    def __init__(self, context: Context) -> None:
        self._echo: Echo = context.echo
        self._model = context.model
        self._ending: Ending | None = None
        self._id = blake2b(context.request_id.encode(), digest_size=12).hexdigest()
        self._created = 0
        self._begun = False
        self._sequence = 0
        self._output: list[Item] = []
        self._open: ItemKind | None = None
        self._text_is_out = False
        self._item_id = ""
        self._pieces: list[str] = []

    def identify(self, top: Mapping[str, Any]) -> None:
        self._created = self._created or int(top.get("created") or 0)
        self._model = self._model or str(top.get("model") or "")

    def write(self, kind: str, text: str) -> bytes:
        item_kind, out = _KINDS[kind], self._begin()
        if self._open is not item_kind:
            out += self._close() + self._open_item(item_kind)
        self._pieces.append(text)
        fields = item_kind.extra_fields
        return out + self._event(f"{item_kind.event}.delta", self._place(), delta=text, **fields)

    def keepalive(self) -> bytes:
        return self._begin() or self._response_event(
            "response.in_progress", self._response("in_progress")
        )

    def error(self, error: ProxyError) -> bytes:
        failure = failure_of(error, text_committed=self._text_is_out)
        response = self._response("failed", error=failure)
        return self._begin() + self._response_event("response.failed", response) + DONE_FRAME

    def end(self, ending: Ending) -> bytes:
        out = self._begin() + self._end_items(ending)
        response = self._final_response(ending)
        return out + self._response_event(f"response.{response['status']}", response) + DONE_FRAME

    def whole(self, ending: Ending) -> Item:
        self._end_items(ending)
        return {**self._final_response(ending), **orjson.loads(b"{%b}" % self._echo.fields)}

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        response = self._response("in_progress")
        return self._response_event("response.created", response) + self._response_event(
            "response.in_progress", response
        )

    def _open_item(self, kind: ItemKind) -> bytes:
        self._open = kind
        self._text_is_out = self._text_is_out or kind is not _REASONING
        self._item_id = f"{kind.prefix}_{self._next_id()}"
        out = self._item("added", self._grown_item(kind, [], "in_progress"))
        part = {**kind.part, kind.field: ""}
        return out + self._event("response.content_part.added", self._place(), part=part)

    def _close(self) -> bytes:
        kind, text = self._open, "".join(self._pieces)
        if kind is None:
            return b""
        self._open, self._pieces = None, []
        part, place = {**kind.part, kind.field: text}, self._place()
        fields = {kind.field: text, **kind.extra_fields}
        out = self._event(f"{kind.event}.done", place, **fields)
        out += self._event("response.content_part.done", place, part=part)
        return out + self._done(self._grown_item(kind, [part], self._item_status()))

    def _grown_item(self, kind: ItemKind, parts: list[Item], status: str) -> Item:
        if kind is _REASONING:
            empty: Item = {"summary": [], "content": parts, "encrypted_content": None}
            return {"id": self._item_id, "type": "reasoning", **empty}
        head = {"id": self._item_id, "type": "message", "status": status, "role": "assistant"}
        return {**head, "content": parts}

    def _item_status(self) -> str:
        cut = self._ending is not None and self._ending.finish in _INCOMPLETE
        return "incomplete" if cut else "completed"

    def _end_items(self, ending: Ending) -> bytes:
        self._ending = ending
        return self._close() + b"".join([self._call(call) for call in ending.calls])

    def _call(self, call: Call) -> bytes:
        """Write a call in the shape in which its tool was offered."""
        id, shape, text = self._next_id(), self._echo.shapes[call.name], call.arguments
        kind, prefix, field, named = "function_call", "fc", "arguments", {"name": shape.name}
        if shape.custom:
            kind, prefix, field, text = "custom_tool_call", "ctc", "input", custom_text(text)
        item = {"id": f"{prefix}_{id}", "type": kind, "status": self._item_status()}
        item |= {"call_id": call.id or f"call_{id}", **named}
        if shape.namespace:
            item["namespace"] = shape.namespace
        place = {"item_id": item["id"], "output_index": len(self._output)}
        out = self._item("added", {**item, "status": "in_progress", field: ""})
        if text:
            out += self._event(f"response.{kind}_{field}.delta", place, delta=text)
        fields = {field: text, **({} if shape.custom else named)}
        out += self._event(f"response.{kind}_{field}.done", place, **fields)
        return out + self._done({**item, field: text})

    def _next_id(self) -> str:
        return f"{self._id}{len(self._output):02x}"

    def _place(self) -> Item:
        """Return the position of the open item's text in the response."""
        place = {"item_id": self._item_id, "output_index": len(self._output)}
        return {**place, "content_index": 0}

    def _done(self, item: Item) -> bytes:
        out = self._item("done", item)
        self._output.append(item)
        return out

    def _item(self, step: str, item: Item) -> bytes:
        place = {"output_index": len(self._output)}
        return self._event(f"response.output_item.{step}", place, item=item)

    def _final_response(self, ending: Ending) -> Item:
        reason = _INCOMPLETE.get(ending.finish)
        if reason is None:
            return self._response("completed")
        return self._response("incomplete", incomplete_details={"reason": reason})

    def _response(self, status: str, **fields: Any) -> Item:
        """Return the response so far, without the fields repeated from its request."""
        usage = self._ending.usage if self._ending is not None else None
        return {
            "id": f"resp_{self._id}",
            "object": "response",
            "created_at": self._created,
            "completed_at": self._created if status == "completed" else None,
            "status": status,
            "model": self._model,
            "error": None,
            "incomplete_details": None,
            "output": self._output,
            "usage": _usage_of(usage) if usage else None,
            **(self._ending.more if self._ending is not None else {}),
            **fields,
        }

    def _response_event(self, type_: str, response: Item) -> bytes:
        encoded = b"%b,%b}" % (orjson.dumps(response)[:-1], self._echo.fields)
        return self._event(type_, {}, response=orjson.Fragment(encoded))

    def _event(self, type_: str, place: Item, **fields: Any) -> bytes:
        payload = {"type": type_, "sequence_number": self._sequence, **place, **fields}
        self._sequence += 1
        return named_frame(type_, orjson.dumps(payload))


def _usage_of(usage: Mapping[str, Any]) -> Item:
    """Translate a chat completion's usage, with both details objects, which the SDKs require."""
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
