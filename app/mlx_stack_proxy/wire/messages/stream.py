"""A reply as Anthropic's stream of events.

``message_start`` · for each block ``content_block_start``, its deltas, ``content_block_stop`` ·
``message_delta`` with the stop reason and the usage · ``message_stop``. One block is open at a
time. Text and thinking go out as they come; calls wait for the end, where they come judged anyway:
servers may send the pieces of several in turn, and a block that is closed can't be gone on with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ...errors import ProxyError
from ..chunks import reasoning_of, text_of
from ..dialect import Context
from ..shared import Call, Calls
from ..sse import named_frame
from ..transcript import Json
from .errors import error_reply
from .reply import counted, made_id, message, parsed, stop_reason, tool_use, usage_of

_NEW = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}


class MessagesEncoder:
    """One reply's stream, as :class:`Encoder` says."""

    __slots__ = (
        "_calls",
        "_context",
        "_finish",
        "_index",
        "_metadata",
        "_open",
        "_started",
        "_usage",
        "_written",
    )

    def __init__(self, context: Context) -> None:
        self._context = context
        self._started = False
        self._open = ""  # the kind of the block that is open
        self._index = -1  # its place
        self._calls = Calls()
        self._finish: Any = None
        self._usage: Any = None
        self._written = 0
        self._metadata: Any = None

    def chunk(self, payload: Mapping[str, Any]) -> bytes:
        out: list[bytes] = []
        for choice in payload.get("choices") or ():
            if not choice.get("index"):  # one reply is asked for, and further ones have no place
                self._take(choice, out)
        if payload.get("usage"):
            self._usage = payload["usage"]
        self._metadata = payload.get("mlx_stack", self._metadata)
        return b"".join(out)

    def keepalive(self) -> bytes:
        return self._start() + _event({"type": "ping"})

    def error(self, error: ProxyError) -> bytes:
        return _event(error_reply(error, self._context.request_id).body)

    def end(self) -> bytes:
        out = [self._start()]
        self._close(out)
        for position, call in self._calls.in_order():
            self._say_call(position, call, out)
        ending = {
            "stop_reason": stop_reason(self._finish, calls=bool(self._calls)),
            "stop_sequence": None,
        }
        usage = usage_of(self._usage, self._context, self._written)
        last: Json = {"type": "message_delta", "delta": ending, "usage": usage}
        if self._metadata is not None:
            last["mlx_stack"] = self._metadata
        return b"".join([*out, _event(last), _event({"type": "message_stop"})])

    def _take(self, choice: Json, out: list[bytes]) -> None:
        delta = choice.get("delta") or {}
        if thought := reasoning_of(delta):
            self._say("thinking", "thinking_delta", thought, out)
        if text := text_of(delta.get("content")) or text_of(delta.get("refusal")):
            self._say("text", "text_delta", text, out)
        self._calls.add(delta)
        self._finish = choice.get("finish_reason") or self._finish

    def _say(self, kind: str, delta: str, text: str, out: list[bytes]) -> None:
        if self._open != kind:
            self._begin(kind, _NEW[kind], out)
        self._written += len(text)
        said = {"type": delta, kind: text}
        out.append(_event({"type": "content_block_delta", "index": self._index, "delta": said}))

    def _say_call(self, position: int, call: Call, out: list[bytes]) -> None:
        arguments = call.arguments
        identity = call.id or made_id(self._context, position)
        self._begin("tool_use", tool_use(identity, call.name, {}), out)
        said = {"type": "input_json_delta", "partial_json": _as_object(arguments)}
        out.append(_event({"type": "content_block_delta", "index": self._index, "delta": said}))
        self._written += len(arguments)
        self._close(out)

    def _begin(self, kind: str, block: Json, out: list[bytes]) -> None:
        self._close(out)
        if not self._started:
            out.append(self._start())
        self._open = kind
        self._index += 1
        start = {"type": "content_block_start", "index": self._index, "content_block": block}
        out.append(_event(start))

    def _close(self, out: list[bytes]) -> None:
        if self._open:
            self._open = ""
            out.append(_event({"type": "content_block_stop", "index": self._index}))

    def _start(self) -> bytes:
        if self._started:
            return b""
        self._started = True
        usage = counted(max(self._context.prompt_tokens(), 1), 0, 1)
        return _event({"type": "message_start", "message": message(self._context, usage)})


def _as_object(arguments: str) -> str:
    """The arguments as they are, where they are those of an object."""
    if arguments.startswith("{"):
        return arguments
    return orjson.dumps(parsed(arguments)).decode()


def _event(data: Json) -> bytes:
    return named_frame(data["type"], orjson.dumps(data))
