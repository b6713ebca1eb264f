"""Rewrites the held chunks of a reply that stages mended.

The text and calls of a mended choice are taken out of its chunks, and the mended ones go out whole,
just before the choice's finish. Everything else that a chunk carries (reasoning, logprobs, unknown
fields, usage) stays in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .chunks import Chunk, made
from .field_forms import REASONING_FIELDS
from .reply import ChoiceReply, Reply

_REPLACED = frozenset({"content", "tool_calls", "function_call"})


def rewritten(held: Sequence[Chunk], reply: Reply, flowed: int) -> list[Chunk]:
    """Return the chunks to deliver in place of ``held``.

    ``flowed``: how many characters of the text the client has already. If it has any, the reply has
    one choice.
    """
    writer = _Writer(reply, flowed)
    chunks: list[Chunk] = []
    for chunk in held:
        chunks += writer.write(chunk)
    return chunks


def without_reasoning(held: Sequence[Chunk]) -> list[Chunk]:
    """Return the chunks without reasoning and role, which the client has from another attempt."""
    dropped = frozenset({*REASONING_FIELDS, "role", "reasoning_details"})
    chunks = []
    for chunk in held:
        payload = chunk.payload
        if payload is None or not payload.get("choices"):
            chunks.append(chunk)
            continue
        choices = []
        for choice in payload["choices"]:
            kept = {key: value for key, value in choice["delta"].items() if key not in dropped}
            if choice.get("finish_reason") or any(kept.values()):
                choices.append({**choice, "delta": kept})
        if choices:
            chunks.append(made({**payload, "choices": choices}))
    return chunks


class _Writer:
    def __init__(self, reply: Reply, flowed: int) -> None:
        self._reply = reply
        self._flowed = flowed
        self._written: set[int] = set()

    def write(self, chunk: Chunk) -> list[Chunk]:
        payload = chunk.payload
        choices = payload.get("choices") if payload else None
        if payload is None or not any(
            choice["index"] in self._reply.mended for choice in choices or ()
        ):
            return [chunk]
        top = {key: payload[key] for key in payload if key not in ("choices", "usage")}
        inserted: list[Chunk] = []
        kept = []
        for choice in payload["choices"]:
            index = choice["index"]
            if index not in self._reply.mended:
                kept.append(choice)
                continue
            delta = {key: value for key, value in choice["delta"].items() if key not in _REPLACED}
            new_choice = {**choice, "delta": delta}
            if choice.get("finish_reason") and index not in self._written:
                self._written.add(index)
                mended = self._reply.choices[index]
                inserted += self._content(top, index, mended)
                kept.append({**new_choice, "finish_reason": mended.finish_reason})
            elif index not in self._written and any(delta.values()):
                kept.append(new_choice)
        if kept or payload.get("usage"):
            return [*inserted, made({**payload, "choices": kept})]
        return inserted

    def _content(self, top: dict[str, Any], index: int, choice: ChoiceReply) -> list[Chunk]:
        deltas: list[dict[str, Any]] = []
        if text := choice.text[self._flowed :]:
            deltas.append({"content": text})
        for position, call in enumerate(choice.tool_calls):
            function = {"name": call.name, "arguments": call.arguments}
            piece = {"index": position, "id": call.id, "type": "function", "function": function}
            deltas.append({"tool_calls": [piece]})
        return [
            made({**top, "choices": [{"index": index, "delta": delta, "finish_reason": None}]})
            for delta in deltas
        ]
