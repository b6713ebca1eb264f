"""Writes the chunks of a chat completion as the events of a response.

One item is open at a time. Text and reasoning are passed on as they come. Calls are gathered and
come last, in their order: they are released together anyway, and their arguments may come
interleaved, which items must not. The last event has the whole response; ``[DONE]`` follows it.

All ids are derived from the request's, so the same reply has the same bytes. An unstreamed response
is built in the same way, from one chunk: it is the response that the stream ends with.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson

from ...errors import ProxyError
from ..call import Call
from ..dialect import Context, Ending
from ..sse import DONE_FRAME, named_frame
from .echo import Echo
from .errors import failure_of
from .output import REASONING, REFUSAL, TEXT, Item, ItemKind, called, usage_of

_INCOMPLETE: Final[Mapping[Any, str]] = {
    "length": "max_output_tokens",
    "content_filter": "content_filter",
}
_KINDS: Final = {"reasoning": REASONING, "text": TEXT, "refusal": REFUSAL}


class ResponseStream:
    """Writes one reply's stream, as an :class:`~..dialect.Encoder`."""

    def __init__(self, context: Context) -> None:
        echo: Echo = context.echo
        self._echo = echo.fields
        self._shapes = echo.shapes
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
        return self._begin() + self._grow(_KINDS[kind], text)

    def keepalive(self) -> bytes:
        return self._begin() or self._response_event(
            "response.in_progress", self._response("in_progress")
        )

    def error(self, error: ProxyError) -> bytes:
        failure = failure_of(error, text_is_out=self._text_is_out)
        response = self._response("failed", error=failure)
        return self._begin() + self._response_event("response.failed", response) + DONE_FRAME

    def end(self, ending: Ending) -> bytes:
        out = self._begin() + self._end_items(ending)
        response = self._final_response(ending)
        return out + self._response_event(f"response.{response['status']}", response) + DONE_FRAME

    def whole(self, ending: Ending) -> Item:
        self._end_items(ending)
        return {**self._final_response(ending), **orjson.loads(b"{%b}" % self._echo)}

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        response = self._response("in_progress")
        return self._response_event("response.created", response) + self._response_event(
            "response.in_progress", response
        )

    def _grow(self, kind: ItemKind, text: str) -> bytes:
        out = b"" if self._open is kind else self._close() + self._open_item(kind)
        self._pieces.append(text)
        return out + self._event(
            f"{kind.event}.delta", self._place(), delta=text, **kind.extra_fields
        )

    def _open_item(self, kind: ItemKind) -> bytes:
        self._open = kind
        self._text_is_out = self._text_is_out or kind is not REASONING
        self._item_id = f"{kind.prefix}_{self._next_id()}"
        added = kind.item(self._item_id, [], "in_progress")
        return self._item("added", added) + self._event(
            "response.content_part.added", self._place(), part=kind.part_of("")
        )

    def _close(self) -> bytes:
        kind, text = self._open, "".join(self._pieces)
        if kind is None:
            return b""
        self._open, self._pieces = None, []
        part, place = kind.part_of(text), self._place()
        fields = {kind.field: text, **kind.extra_fields}
        out = self._event(f"{kind.event}.done", place, **fields)
        out += self._event("response.content_part.done", place, part=part)
        return out + self._done(kind.item(self._item_id, [part], self._item_status()))

    def _item_status(self) -> str:
        cut = self._ending is not None and self._ending.finish in _INCOMPLETE
        return "incomplete" if cut else "completed"

    def _end_items(self, ending: Ending) -> bytes:
        self._ending = ending
        return self._close() + b"".join([self._call(call) for call in ending.calls])

    def _call(self, call: Call) -> bytes:
        id = self._next_id()
        shape = self._shapes[call.name]
        shaped_call = called(
            id, call.id or f"call_{id}", call.arguments, shape, self._item_status()
        )
        place = {"item_id": shaped_call.item["id"], "output_index": len(self._output)}
        text = shaped_call.item[shaped_call.field]
        out = self._item("added", shaped_call.opened)
        if text:
            out += self._event(f"{shaped_call.event}.delta", place, delta=text)
        fields = {shaped_call.field: text, **shaped_call.extra_fields}
        return (
            out
            + self._event(f"{shaped_call.event}.done", place, **fields)
            + self._done(shaped_call.item)
        )

    def _next_id(self) -> str:
        return f"{self._id}{len(self._output):02x}"

    def _place(self) -> Item:
        """Return the place in the response where the open item's text grows."""
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
        """Return the response as it stands, without the fields that it repeats from its request."""
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
            "usage": usage_of(usage) if usage else None,
            **(self._ending.more if self._ending is not None else {}),
            **fields,
        }

    def _response_event(self, type_: str, response: Item) -> bytes:
        encoded = b"%b,%b}" % (orjson.dumps(response)[:-1], self._echo)
        return self._event(type_, {}, response=orjson.Fragment(encoded))

    def _event(self, type_: str, place: Item, **fields: Any) -> bytes:
        payload = {"type": type_, "sequence_number": self._sequence, **place, **fields}
        self._sequence += 1
        return named_frame(type_, orjson.dumps(payload))
