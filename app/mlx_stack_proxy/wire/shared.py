"""What the dialects share: a reply's chunks taken apart, and the frame of a custom tool's text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from .chunk_form import index_of
from .chunks import reasoning_of, text_of

# In a parameter's schema: the words with which its text begins and ends.
FRAME: Final = "x-frame"


class Call:
    """A call as far as it has come. ``id``, ``name``: "" while its server has said none."""

    __slots__ = ("_arguments", "id", "name")

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
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
    """Takes the chunks of one reply; an encoder goes on from what it has said.

    Text and thinking are given back as they come. Calls are gathered, and come last, in their
    order: they are released together anyway, and servers may send the pieces of several in turn.
    """

    def __init__(self) -> None:
        self.finish: Any = None
        self.usage: Any = None
        self.more: dict[str, Any] = {}  # what the last event says beside
        self._calls: dict[int, Call] = {}

    def take(self, payload: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        """The pieces of reasoning, text and refusals in a chunk, each with its kind."""
        self.usage = payload.get("usage") or self.usage
        if "mlx_stack" in payload:
            self.more = {"mlx_stack": payload["mlx_stack"]}
        for choice in payload.get("choices") or ():
            if choice.get("index"):  # one reply is asked for, and further ones have no place
                continue
            self.finish = choice.get("finish_reason") or self.finish
            delta = choice.get("delta") or {}
            for place, piece in enumerate(delta.get("tool_calls") or ()):
                self._calls.setdefault(index_of(piece, place), Call()).add(piece)
            yield from _texts(delta)

    def calls(self) -> list[tuple[int, Call]]:
        """All calls in their order, each with its index."""
        return sorted(self._calls.items())


def _texts(delta: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    said = {
        "reasoning": reasoning_of(delta),
        "text": text_of(delta.get("content")),
        "refusal": text_of(delta.get("refusal")),
    }
    return ((kind, text) for kind, text in said.items() if text)


def as_chunk(completion: Mapping[str, Any]) -> dict[str, Any]:
    """A whole chat completion as one chunk."""
    choices = [{**one, "delta": one.get("message")} for one in completion.get("choices") or ()]
    return {**completion, "choices": choices}
