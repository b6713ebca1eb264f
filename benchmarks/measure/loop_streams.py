"""Content streams of the sample cases through the real stage, piece by piece.

An item of a stream is a text, or a rule that makes several: ``{repeat, times}``, ``{repeat_list,
times}``, ``{random: {alphabet, length, times, seed}}``, ``{rechunk, of}``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.records import Json
from mlx_stack_proxy.engine.verdicts import LoopDetected
from mlx_stack_proxy.loop_detection.generation.reply_watch import ReplyWatch
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange
from tests.loop_detection.histories import settings
from tests.support.deltas import text_delta, watched


def pieces(items: list[Any]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        elif "repeat" in item:
            yield from [item["repeat"]] * item["times"]
        elif "repeat_list" in item:
            yield from list(pieces(item["repeat_list"])) * item["times"]
        elif "random" in item:
            rule = item["random"]
            source = random.Random(rule["seed"])
            for _ in range(rule["times"]):
                yield "".join(source.choices(rule["alphabet"], k=rule["length"]))
        else:
            whole = "".join(pieces(item["of"] if isinstance(item["of"], list) else [item["of"]]))
            size = item["rechunk"]
            yield from (whole[at : at + size] for at in range(0, len(whole), size))


def watch(given: Settings, tools: Sequence[Json] = ()) -> ReplyWatch:
    """The real stage's watch of a reply to a request that offers these tools."""
    return ReplyWatch(exchange(client_request(tools=list(tools)), tiers=("fast",)), given)


def run(items: list[Any], params: Json) -> tuple[int | None, str]:
    """The first piece that ends the reply, from 0, and why, in words; None where it never is.

    ``params``: a project's own numbers, so many pieces of such a length; else our defaults.
    """
    generation: Json = {}
    if (times := params.get("content_threshold")) is not None:
        generation = {"min_laps": times, "min_chars": times * params.get("chunk", 1)}
    one, reply, characters = watch(settings(generation=generation)), Reply(), 0
    for at, piece in enumerate(pieces(items)):
        characters += len(piece)
        verdict = watched(one.watch, reply, [text_delta(piece)]) if piece else None
        if isinstance(verdict, LoopDetected):
            return at, f"cut in piece {at}, after {characters} characters"
        if verdict is not None:
            return at, f"piece {at}: {verdict}"
    return None, "silent"
