"""Content streams of the sample cases through the real stage, piece by piece.

An item of a stream is a text, or a rule that makes several: ``{repeat, times}``, ``{repeat_list,
times}``, ``{random: {alphabet, length, times, seed}}``, ``{rechunk, of}``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mlx_stack_proxy.engine.verdicts import LoopDetected, Verdict
from mlx_stack_proxy.loop_detection.generation.reply_watch import ReplyWatch
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange
from tests.loop_detection.histories import settings as settings_of
from tests.support.deltas import text_delta, watched

Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """The piece with which the reply was ended, from 0, and why; None: it never was."""

    at: int | None = None
    characters: int = 0
    verdict: Verdict | None = None

    def __str__(self) -> str:
        if self.at is None:
            return "silent"
        if isinstance(self.verdict, LoopDetected):
            return f"cut in piece {self.at}, after {self.characters} characters"
        return f"piece {self.at}: {self.verdict}"


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


def settings(params: Json | None = None, changes: Json | None = None) -> Settings:
    """Our defaults, or a project's own numbers: so many pieces of such a length.

    ``changes``: to the rules of ``loop_detection`` in any case, as its section has them.
    """
    params = params or {}
    generation: Json = {}
    if (times := params.get("content_threshold")) is not None:
        generation = {"min_laps": times, "min_chars": times * params.get("chunk", 1)}
    changes = changes or {}
    generation |= changes.get("generation", {})
    return settings_of(**{**changes, "generation": generation})


def watch(given: Settings, tools: Sequence[Json] = ()) -> ReplyWatch:
    """The real stage's watch of a reply to a request that offers these tools."""
    return ReplyWatch(exchange(client_request(tools=list(tools)), tiers=("fast",)), given)


def run(items: list[Any], params: Json | None = None, changes: Json | None = None) -> Answer:
    """The first piece that ends the reply."""
    one, reply = watch(settings(params, changes)), Reply()
    characters = 0
    for at, piece in enumerate(pieces(items)):
        characters += len(piece)
        verdict = watched(one.watch, reply, [text_delta(piece)]) if piece else None
        if verdict is not None:
            return Answer(at, characters, verdict)
    return Answer()
