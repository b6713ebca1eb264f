"""Writes a reply as Anthropic's stream of events.

The stream is ``message_start``; for each block ``content_block_start``, its deltas, and
``content_block_stop``; ``message_delta`` with the stop reason and the usage; ``message_stop``. One
block is open at a time, and a closed block can't be reopened. A whole reply is built by the same
encoder: it is the message that the stream has written by its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ...errors import ProxyError
from ..call import Call
from ..dialect import Context, Ending
from ..sse import named_frame
from ..transcript import Json
from .errors import error_reply
from .reply import counted, made_id, message, parsed, stop_reason, usage_of

# The kind of block for each kind of text in a chat completion.
_KINDS = {"reasoning": "thinking", "text": "text", "refusal": "text"}
_NEW: Mapping[str, Json] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class MessagesEncoder:
    """Writes one reply's stream, as an :class:`~..dialect.Encoder`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._started = False
        self._content: list[Json] = []  # the blocks that are closed
        self._open = ""  # the kind of the open block, "text" or "thinking"; "": none is open
        self._pieces: list[str] = []  # the open block's text
        self._written = 0  # characters of all blocks

    def identify(self, top: Mapping[str, Any]) -> None:
        """A message has an id of its own."""

    def write(self, kind: str, text: str) -> bytes:
        return self._write_text(_KINDS[kind], text)

    def keepalive(self) -> bytes:
        return self._start() + _event({"type": "ping"})

    def error(self, error: ProxyError) -> bytes:
        return _event(error_reply(error, self._context.request_id).body)

    def end(self, ending: Ending) -> bytes:
        out = self._start() + self._end_blocks(ending)
        message_delta = {"type": "message_delta", **self._ending(ending)}
        return out + _event(message_delta) + _event({"type": "message_stop"})

    def whole(self, ending: Ending) -> Json:
        self._end_blocks(ending)
        fields = self._ending(ending)
        whole = {**message(self._context, fields.pop("usage")), "content": self._content}
        return {**whole, **fields.pop("delta"), **fields}

    def _ending(self, ending: Ending) -> Json:
        reason = stop_reason(ending.finish, calls=bool(ending.calls))
        usage = usage_of(ending.usage, self._context, self._written)
        delta = {"stop_reason": reason, "stop_sequence": None}
        return {"delta": delta, "usage": usage, **ending.more}

    def _write_text(self, kind: str, text: str) -> bytes:
        out = b""
        if self._open != kind:
            out = self._close() + self._start_block(_NEW[kind])
            self._open = kind
        self._pieces.append(text)
        return out + self._grow({"type": f"{kind}_delta", kind: text}, text)

    def _end_blocks(self, ending: Ending) -> bytes:
        calls = enumerate(ending.calls)
        return self._close() + b"".join([self._write_call(place, call) for place, call in calls])

    def _write_call(self, position: int, call: Call) -> bytes:
        identity = call.id or made_id(self._context, position)
        block: Json = {"type": "tool_use", "id": identity, "name": call.name, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": _as_object(call.arguments)}
        out = self._start_block(block) + self._grow(delta, call.arguments)
        return out + self._stop_block({**block, "input": parsed(call.arguments)})

    def _close(self) -> bytes:
        kind, text = self._open, "".join(self._pieces)
        self._open, self._pieces = "", []
        return self._stop_block({**_NEW[kind], kind: text}) if kind else b""

    def _start_block(self, block: Json) -> bytes:
        return self._start() + self._block_event("start", content_block=block)

    def _grow(self, delta: Json, text: str) -> bytes:
        self._written += len(text)
        return self._block_event("delta", delta=delta)

    def _stop_block(self, block: Json) -> bytes:
        out = self._block_event("stop")
        self._content.append(block)
        return out

    def _block_event(self, phase: str, **fields: Json) -> bytes:
        """Write an event of the open block."""
        head = {"type": f"content_block_{phase}", "index": len(self._content)}
        return _event({**head, **fields})

    def _start(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        usage = counted(max(self._context.prompt_tokens(), 1), 0, 1)
        return _event({"type": "message_start", "message": message(self._context, usage)})


def _as_object(arguments: str) -> str:
    """Return arguments that begin an object unchanged, and wrap any other in an object."""
    if arguments.startswith("{"):
        return arguments
    return orjson.dumps(parsed(arguments)).decode()


def _event(data: Json) -> bytes:
    return named_frame(data["type"], orjson.dumps(data))
