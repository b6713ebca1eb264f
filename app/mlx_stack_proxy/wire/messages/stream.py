"""Writes a reply as Anthropic's stream of events.

The stream is ``message_start``; for each block ``content_block_start``, its deltas, and
``content_block_stop``; ``message_delta`` with the stop reason and the usage; ``message_stop``. One
block is open at a time, and a closed block can't be reopened. The same encoder builds an unstreamed
reply: the message as the stream has written it by its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from ...errors import ProxyError
from ..call import Call, object_in
from ..delta import count_of
from ..dialect import Context, Ending
from ..prompt_size import BYTES_PER_OUTPUT_TOKEN
from ..sse import named_frame
from ..transcript import Json
from .errors import error_reply

# The block type for each kind of text in a chat completion.
_KINDS = {"reasoning": "thinking", "text": "text", "refusal": "text"}
_NEW: Mapping[str, Json] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
# Chat completions don't distinguish a stop sequence from the end of a turn: both are "end_turn".
_STOPS: Final = {"length": "max_tokens", "content_filter": "refusal"}


class MessagesEncoder:
    """Writes one reply's stream, as an :class:`~..dialect.Encoder`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._id = context.request_id.removeprefix("req_")
        self._started = False
        self._content: list[Json] = []  # closed blocks
        self._open = ""  # the type of the open block, "text" or "thinking"; "": none is open
        self._pieces: list[str] = []  # the open block's text
        self._written = 0  # characters of all blocks

    def identify(self, top: Mapping[str, Any]) -> None:
        """Nothing to use: a message has its own id."""

    def write(self, kind: str, text: str) -> bytes:
        kind, out = _KINDS[kind], b""
        if self._open != kind:
            out = self._close() + self._start_block(_NEW[kind])
            self._open = kind
        self._pieces.append(text)
        return out + self._grow({"type": f"{kind}_delta", kind: text}, text)

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
        whole = {**self._message(fields.pop("usage")), "content": self._content}
        return {**whole, **fields.pop("delta"), **fields}

    def _ending(self, ending: Ending) -> Json:
        # A reply with calls has "tool_use", whatever the server's finish reason is.
        reason = "tool_use" if ending.calls else _STOPS.get(ending.finish or "", "end_turn")
        delta = {"stop_reason": reason, "stop_sequence": None}
        return {"delta": delta, "usage": self._usage(ending.usage), **ending.more}

    def _usage(self, usage: Mapping[str, Any] | None) -> Json:
        """Translate a chat completion's usage; estimate it if there is none."""
        if usage is None:
            return _counted(
                self._context.prompt_tokens(), 0, self._written // BYTES_PER_OUTPUT_TOKEN
            )
        details = usage.get("prompt_tokens_details")
        cached = count_of(details.get("cached_tokens")) if isinstance(details, dict) else 0
        prompt = count_of(usage.get("prompt_tokens"))
        return _counted(max(prompt - cached, 0), cached, count_of(usage.get("completion_tokens")))

    def _end_blocks(self, ending: Ending) -> bytes:
        out = [self._close()]
        for position, call in enumerate(ending.calls):
            out.append(self._call(call, call.id or f"toolu_{self._id}_{position}"))
        return b"".join(out)

    def _call(self, call: Call, id: str) -> bytes:
        arguments = call.arguments
        block: Json = {"type": "tool_use", "id": id, "name": call.name, "input": {}}
        input_ = object_in(arguments or "{}")
        if input_ is None:  # an unchecked call's arguments, passed on as text
            input_ = {"arguments": arguments}
        text = arguments if arguments.startswith("{") else orjson.dumps(input_).decode()
        delta = {"type": "input_json_delta", "partial_json": text}
        out = self._start_block(block) + self._grow(delta, arguments)
        return out + self._stop_block({**block, "input": input_})

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
        usage = _counted(max(self._context.prompt_tokens(), 1), 0, 1)
        return _event({"type": "message_start", "message": self._message(usage)})

    def _message(self, usage: Json) -> Json:
        """Return the message with empty content."""
        return {
            "id": f"msg_{self._id}",
            "type": "message",
            "role": "assistant",
            "model": self._context.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }


def _counted(fresh: int, cached: int, written: int) -> Json:
    """Return a usage of ``fresh`` and ``cached`` prompt tokens and of output tokens."""
    return {
        "input_tokens": fresh,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": written,
    }


def _event(data: Json) -> bytes:
    return named_frame(data["type"], orjson.dumps(data))
