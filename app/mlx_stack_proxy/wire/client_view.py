"""Writes a reply in the form that its client asked for; a chunk in that form keeps its bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import legacy
from .chunks import Chunk, render
from .dialect import Encoder


class ClientView:
    """Turns chunks into the bytes for one client.

    ``identity``: top-level fields that every chunk must carry, for a stream that another attempt
    began. ``encoder``: the encoder for a client that speaks another dialect.
    """

    __slots__ = ("_encoder", "_identity", "_legacy", "_strip_usage")

    def __init__(
        self,
        identity: Mapping[str, Any],
        *,
        include_usage: bool,
        legacy_functions: bool,
        encoder: Encoder | None = None,
    ) -> None:
        self._encoder = encoder
        self._identity = identity
        self._strip_usage = not include_usage
        self._legacy = legacy_functions

    def frame(self, chunk: Chunk) -> bytes:
        """Return the bytes to send for a chunk, maybe none; unchanged if nothing has to change.

        Call this once for each chunk, in order: an encoder keeps state.
        """
        if self._encoder is not None:
            return self._encoder.chunk(chunk.payload) if chunk.payload is not None else b""
        return self._as_chat(chunk)

    def end(self, done_frame: bytes) -> bytes:
        """Return the bytes that end a stream. ``done_frame``: the frame of its ``[DONE]``."""
        return done_frame if self._encoder is None else self._encoder.end()

    def _as_chat(self, chunk: Chunk) -> bytes:
        payload = chunk.payload
        if payload is None:
            return chunk.raw
        visible = {**payload, **self._identity} if self._identity else payload
        if self._strip_usage and payload.get("usage"):
            if _says_nothing(payload.get("choices") or ()):
                return b""
            visible = {key: value for key, value in visible.items() if key != "usage"}
        if self._legacy:
            visible = legacy.to_functions(visible, "delta")
        return chunk.raw if visible == payload else render(visible)

    def shows(self, chunk: Chunk) -> bool:
        """Whether a chunk says anything to this client."""
        return chunk.payload is not None and bool(self._as_chat(chunk))

    def completion(self, completion: dict[str, Any]) -> dict[str, Any]:
        """Return a whole reply for a client that does not stream."""
        return legacy.to_functions(completion, "message") if self._legacy else completion


def _says_nothing(choices: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a chunk has only its usage: OpenAI sends no choice then, LiteLLM an empty one."""
    return not any(choice[key] for choice in choices for key in choice if key != "index")
