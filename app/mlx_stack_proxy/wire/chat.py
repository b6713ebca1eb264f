"""Writes a reply for a client of chat completions: as chunks, or as one ``chat.completion``.

An unchanged frame goes out with the bytes that arrived. Anything changed is written from the reply:
for each choice the rest of its text, its calls (each whole) and its finish reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from . import legacy, sse
from .call import Call, call_fields
from .chunks import MalformedChunk
from .delta import Delta, render, split_text
from .field_forms import REASONING_FIELDS
from .merge import merged, merged_chunks
from .reply import ChoiceReply, Reply
from .tape import Tape

_REPEATED_FIELDS = frozenset({*REASONING_FIELDS, "role", "reasoning_details"})
Json = dict[str, Any]


class ChatRenderer:
    """Writes one attempt's reply.

    ``top()``: the fields that its chunks share. ``identity``: those that an earlier attempt has
    already sent in this stream; the client then also has a role, and maybe reasoning, from that
    attempt.
    """

    def __init__(
        self,
        top: Callable[[], Json],
        identity: Mapping[str, Any],
        *,
        streams: bool,
        include_usage: bool,
        legacy_functions: bool,
    ) -> None:
        self._top = top
        self._identity = dict(identity)
        self._continues = bool(identity)
        self._streams = streams
        self._include_usage = include_usage
        self._legacy = legacy_functions
        self._changes = self._continues or legacy_functions  # whether any frame may need changes
        self._must_rewrite = False  # whether the rest must be rewritten
        self._tape: Tape | None = None  # created with the first held frame
        self._held_fields: list[bytes] = []  # unknown fields of held frames, as JSON
        self._has_role = False  # whether the client has received the role
        self._done = sse.DONE_FRAME

    def release(self, delta: Delta) -> bytes:
        """Return the bytes of a frame that may go out now."""
        self._has_role = True
        return delta.raw if delta.usage is None and not self._changes else self._frame(delta)

    def hold(self, delta: Delta) -> None:
        """Keep a frame until the reply ends. Raises :class:`MalformedChunk`."""
        if delta.more is not None:
            try:
                self._held_fields.append(orjson.dumps(delta.more))
            except orjson.JSONEncodeError:  # orjson reads deeper nesting than it writes
                if not self._streams:
                    raise MalformedChunk("an event that is nested too deeply") from None
        if self._streams:
            self._tape = self._tape or Tape()
            self._tape.add(self._frame(delta))

    def continue_stream(self, identity: Mapping[str, Any]) -> None:
        """Continue a stream that another attempt has begun."""
        if identity.items() - self._top().items() - self._identity.items():
            self._identity, self._must_rewrite = dict(identity), True

    def split(self, delta: Delta, length: int) -> tuple[Delta, Delta]:
        """Split a frame after ``length`` characters of text; the first half keeps other fields."""
        head, tail = split_text(delta, length)
        payload = orjson.loads(sse.data_of(delta.raw) or b"{}")
        (choice,) = payload["choices"]
        kept = {**choice, "delta": {**choice["delta"], "content": head.text}}
        more = {"index": choice["index"], "delta": {"content": tail.text}, "finish_reason": None}
        head.raw = render({**payload, "choices": [kept]})
        tail.raw = render({**self._top(), "choices": [more]})
        return head, tail

    def unpack(self) -> None:
        """Decompress the held frames for :meth:`rest`; takes a millisecond for 300 kB."""
        if self._tape is not None:
            self._tape.unpack()

    def end(self, done_frame: bytes) -> None:
        """Use upstream's own ``[DONE]`` frame."""
        self._done = done_frame

    def rest(self, reply: Reply, note: bytes = b"", metadata: Json | None = None) -> bytes:
        """Return the bytes still to be sent, up to ``[DONE]``; see ``Attempt.rest``."""
        if self._must_rewrite or reply.mended:
            frames = [render(self._visible(one)) for one in self._rest_of_chunks(reply)]
            held, last = b"".join(frames[:-1]), b"".join(frames[-1:])
        else:
            held, last = self._tape.take() if self._tape is not None else (b"", b"")
        if metadata is not None and last:
            last = render({**orjson.loads(sse.data_of(last) or b"{}"), "mlx_stack": metadata})
        return b"".join([held, last, note, self._done])

    def whole(self, reply: Reply, metadata: Json | None = None) -> Json:
        """Return the reply as one ``chat.completion``."""
        top, fields = merged_chunks(map(orjson.loads, self._held_fields))
        whole = {**self._top(), **top, "object": "chat.completion"}
        whole["choices"] = [
            _as_message(index, choice, fields.get(index, {"delta": {}}), index in reply.mended)
            for index, choice in sorted(reply.choices.items())
        ]
        if reply.usage_fields is not None:
            whole["usage"] = reply.usage_fields
        if metadata is not None:
            whole["mlx_stack"] = metadata
        return legacy.to_functions(whole, "message") if self._legacy else whole

    def _frame(self, delta: Delta) -> bytes:
        """Return a frame as this client gets it, perhaps b""; the original bytes if unchanged."""
        strips = delta.usage is not None and not self._include_usage
        if not (strips or self._changes):
            return delta.raw
        payload = orjson.loads(sse.data_of(delta.raw) or b"{}")
        visible = dict(payload)
        if self._continues and payload.get("choices"):
            choices = visible["choices"] = []
            for choice in payload["choices"]:  # without what another attempt has sent
                content = _without_repeated(choice["delta"])
                if choice.get("finish_reason") or any(content.values()):
                    choices.append({**choice, "delta": content})
            if not choices:
                return b""
        if strips:
            # With a usage, LiteLLM sends a choice that has nothing but its index.
            choices = visible.get("choices") or []
            if not any(one[key] for one in choices for key in one if key != "index"):
                return b""
            del visible["usage"]
        visible = self._visible(visible)
        return delta.raw if visible == payload else render(visible)

    def _visible(self, payload: Json) -> Json:
        visible = {**payload, **self._identity}
        return legacy.to_functions(visible, "delta") if self._legacy else visible

    def _rest_of_chunks(self, reply: Reply) -> list[Json]:
        """Return chunks with everything that the client still lacks."""
        top = self._top()
        more, fields = merged_chunks(map(orjson.loads, self._held_fields))
        chunks = []
        for index, choice in sorted(reply.choices.items()):
            others = fields.get(index, {"index": index, "delta": {}})
            if index in reply.mended:
                others["delta"].pop("content", None)
            for delta in self._deltas(reply, choice, others["delta"]):
                chunks.append({"index": index, "delta": delta, "finish_reason": None})
            end = {"index": index, "delta": {}, "finish_reason": choice.finish_reason}
            chunks.append({**others, **end})
        whole: list[Json] = [{**top, "choices": [choice]} for choice in chunks]
        if whole:
            whole[-1] |= more
        if reply.usage_fields is not None and self._include_usage:
            whole.append({**top, "choices": [], "usage": reply.usage_fields})
        return whole

    def _deltas(self, reply: Reply, choice: ChoiceReply, others: Json) -> list[Json]:
        """Return a choice's deltas without its finish. ``others``: its unknown fields."""
        first: Json = {} if self._has_role else {"role": "assistant"}
        if thought := choice.reasoning[reply.thoughts_out :]:
            first |= dict.fromkeys(choice.thought_fields, thought)
        if refusal := choice.refusal[reply.refusal_out :]:
            first["refusal"] = refusal
        first |= others
        if self._continues:
            first = _without_repeated(first)
        deltas: list[Json] = [first]
        if text := choice.text[reply.flowed :]:
            deltas.append({"content": text})
        for position, call in enumerate(choice.tool_calls):
            deltas.append({"tool_calls": [{"index": position, **_as_call(call)}]})
        return list(filter(None, deltas))


def _as_call(call: Call) -> Json:
    """Return a call with the unknown fields of its pieces."""
    fields = call_fields(call.id or None, call.name, call.arguments)
    if not call.more:
        return fields
    more = merged(call.more)
    return {**more, **fields, "function": {**more.get("function", {}), **fields["function"]}}


def _as_message(index: int, choice: ChoiceReply, fields: Json, mended: bool) -> Json:
    """Return a choice of a completion. ``fields``: its unknown fields."""
    calls = [_as_call(call) for call in choice.tool_calls]
    empty = None if calls or choice.refusal or choice.has_other else ""
    message: Json = {"role": "assistant", "content": choice.text or empty}
    message |= dict.fromkeys(choice.thought_fields, choice.reasoning)
    if choice.refusal:
        message["refusal"] = choice.refusal
    if calls:
        message["tool_calls"] = calls
    if mended:
        fields["delta"].pop("content", None)
    message |= fields.pop("delta")
    end = {"index": index, "message": message, "finish_reason": choice.finish_reason}
    return {**end, **fields}


def _without_repeated(delta: Json) -> Json:
    return {key: value for key, value in delta.items() if key not in _REPEATED_FIELDS}
