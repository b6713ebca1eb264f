"""Deltas of a reply, made by hand, and replies as dialects write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mlx_stack_proxy.engine.verdicts import Verdict
from mlx_stack_proxy.wire.call import CallPiece, Function, OddPiece
from mlx_stack_proxy.wire.chunks import ChunkReader
from mlx_stack_proxy.wire.delta import (
    ChoiceDelta,
    Delta,
    DeltaContent,
    FinishReason,
    Usage,
)
from mlx_stack_proxy.wire.dialect import Context, Dialect, DialectRenderer, Encoder
from mlx_stack_proxy.wire.reply import Reply
from mlx_stack_proxy.wire.sse import Frame
from tests.support.replies import Json, data

Watch = Callable[[Reply, Delta], Verdict | None]


def text_delta(text: str, choice: int = 0) -> Delta:
    return Delta(b"", [ChoiceDelta(choice, DeltaContent(content=text))])


def reasoning_delta(text: str) -> Delta:
    return Delta(b"", [ChoiceDelta(0, DeltaContent(reasoning_content=text))])


def call_piece(
    arguments: str = "", name: str = "", id: str = "", index: int = 0, odd: bool = False
) -> CallPiece:
    function = Function(name, arguments)
    return OddPiece(index, function, id, odd=True) if odd else CallPiece(index, function, id)


def call_delta(*pieces: CallPiece, choice: int = 0) -> Delta:
    return Delta(b"", [ChoiceDelta(choice, DeltaContent(tool_calls=list(pieces)))])


def finish_delta(reason: FinishReason, choice: int = 0) -> Delta:
    return Delta(b"", [ChoiceDelta(choice, DeltaContent(), reason)])


def usage_delta(usage: Usage) -> Delta:
    counts: Json = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    return Delta(b"", usage=counts)


def watched(watch: Watch, reply: Reply, deltas: Iterable[Delta]) -> Verdict | None:
    """The first verdict while a reply grows."""
    for delta in deltas:
        reply.take(delta)
        if (verdict := watch(reply, delta)) is not None:
            return verdict
    return None


class Speaking:
    """One reply in a dialect: a chunk of a chat completion in, bytes out."""

    def __init__(self, encoder: Encoder) -> None:
        self._reader = ChunkReader("", "")
        self._reply = Reply()
        self._renderer = DialectRenderer(encoder, self._reader.top, continues=False)
        self.encoder = encoder

    def chunk(self, payload: Mapping[str, Any]) -> bytes:
        raw = data(dict(payload))
        delta = self._reader.read(Frame(raw, raw[6:-2]))
        if delta is None:
            return b""
        self._reply.take(delta)
        self._reply.release(delta)
        return self._renderer.release(delta)

    def end(self, metadata: Json | None = None) -> bytes:
        return self._renderer.rest(self._reply, metadata=metadata)


def spoken(dialect: Dialect, completion: Mapping[str, Any], context: Context) -> Json:
    """A whole chat completion as the dialect's own object."""
    reader, reply = ChunkReader("", ""), Reply()
    renderer = DialectRenderer(dialect.encoder(context), reader.top, continues=False)
    for delta in reader.read_completion(completion):
        reply.take(delta)
    return renderer.whole(reply, completion.get("mlx_stack"))
