"""Code that the dialects share: it takes a reply's chunks apart into text, reasoning and calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .chunk_form import index_of
from .chunks import reasoning_of, text_of

# This keyword of a parameter's schema lists the words with which the text begins and ends.
FRAME: Final = "x-frame"


class Call:
    """A call as far as it has come."""

    __slots__ = ("_arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""  # "": the server has sent none yet
        self.name = ""  # "": the server has sent none yet
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self._arguments)

    def add(self, piece: Mapping[str, Any]) -> None:
        function = piece.get("function") or {}
        self.id = self.id or piece.get("id") or ""
        self.name = self.name or function.get("name") or ""
        self._arguments.append(function.get("arguments") or "")


class ReplyReader:
    """Takes the chunks of one reply apart for an encoder.

    Text and reasoning are returned as they come. Calls are gathered until the end: they are
    released together anyway, and a server may interleave the pieces of several calls.
    """

    def __init__(self) -> None:
        self.finish: Any = None
        self.usage: Any = None
        self.more: dict[str, Any] = {}  # further fields for the stream's last event
        self._calls: dict[int, Call] = {}

    def take(self, payload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """Take a chunk. Yield pairs of a kind ("reasoning", "text", "refusal") and its text."""
        self.usage = payload.get("usage") or self.usage
        if "mlx_stack" in payload:
            self.more = {"mlx_stack": payload["mlx_stack"]}
        for choice in payload.get("choices") or ():
            if choice.get("index"):  # dialects ask for one choice, and have no place for more
                continue
            self.finish = choice.get("finish_reason") or self.finish
            delta = choice.get("delta") or {}
            for position, piece in enumerate(delta.get("tool_calls") or ()):
                self._calls.setdefault(index_of(piece, position), Call()).add(piece)
            yield from _texts(delta)

    def calls(self) -> list[tuple[int, Call]]:
        """Return all calls in their order, each with its index."""
        return sorted(self._calls.items())


def _texts(delta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    texts = {
        "reasoning": reasoning_of(delta),
        "text": text_of(delta.get("content")),
        "refusal": text_of(delta.get("refusal")),
    }
    return ((kind, text) for kind, text in texts.items() if text)


def as_chunk(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Turn a whole chat completion into one chunk."""
    choices = [
        {**choice, "delta": choice.get("message")} for choice in completion.get("choices") or ()
    ]
    return {**completion, "choices": choices}
