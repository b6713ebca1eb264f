"""LiteLLM's part: what the request asks for in its last ``[[…]]`` is what it gets, good or bad.

``[[fault 7 fast]]`` is a fault of ``tests.faults.catalogue`` on one tier, ``[[fault 7 all]]`` on
each; the other words are below. Nothing is kept of a call.
"""

from __future__ import annotations

import functools
import random
import re

from tests.faults.catalogue import BAD_CALL, FAULTS, LAPS, calling, good, whole
from tests.support.replies import DONE, Json, chunk, data, long_text, text_chunks, usage_chunk
from tests.support.scripted_server import (
    SILENCE,
    Call,
    Delay,
    Piece,
    Reply,
    ScriptedServer,
    WhenWhole,
)

TIERS = ("fast", "standard")
DIRECTIVE = re.compile(rb"\[\[([a-z]+)(?: (\w+))?(?: (\w+))?\]\]")
EMBEDDING = {
    "object": "list",
    "model": "embedder",
    "data": [{"object": "embedding", "index": 0, "embedding": [0.25] * 64}],
    "usage": {"prompt_tokens": 5, "total_tokens": 5},
}
ROLE, _, END = (data(one) for one in text_chunks(""))
SHORT_WAIT = Delay(0.02)
BIG_CHUNKS, PADDING = 64, "." * 16_000
WORDS = 150  # chunks of a usual answer
SLOW = 200  # chunks of one that takes seconds


class Upstream(ScriptedServer):
    """Goes on for as long as it takes: no call is kept."""

    def __init__(self) -> None:
        super().__init__(TIERS)
        self.answered = 0
        self.always(WhenWhole(reply_to))

    def arrived(self, call: Call) -> None:
        self.answered += 1

    def drop_idle(self) -> None:
        """End the connections on which nothing is asked."""
        for connection in list(self.connections):
            if connection.call is None:
                connection.transport.close()


def reply_to(call: Call) -> Reply:
    if call.target.startswith("/v1/embeddings"):
        return Reply.json(EMBEDDING)
    body = bytes(call.body)
    asked = DIRECTIVE.findall(body)
    if not asked:  # the judge's question, say
        return good(False)
    word, first, second = (part.decode() for part in asked[-1])
    tools = b'"tools"' in body
    if word == "fault":
        model = re.search(rb'"model": ?"(\w+)"', body)
        hit = second == "all" or (model is not None and model[1].decode() == second)
        return FAULTS[int(first)].reply if hit else good(tools)
    if word == "look":
        return calling("search", f'{{"query": "quokka {first}"}}')
    return OTHERS[word]() if word in OTHERS else good(tools)


def say(texts: list[str], *between: Piece) -> Reply:
    pieces = [part for text in texts for part in (data(chunk({"content": text})), *between)]
    return Reply.sse(ROLE, *pieces, END, data(usage_chunk()), DONE)


def words(count: int, seed: int) -> list[str]:
    text = long_text(8 * count, seed)
    return [text[8 * at : 8 * at + 8] for at in range(count)]


TEXT = words(WORDS, 1)


@functools.cache
def text() -> Reply:
    return say(TEXT)


@functools.cache
def slow() -> Reply:
    return say(words(SLOW, 2), SHORT_WAIT)


@functools.cache
def big() -> Reply:
    """1 MB, and little text: the text of a reply is kept until its end."""
    pieces = [
        data({**chunk({"content": word}), "padding": PADDING}) for word in words(BIG_CHUNKS, 3)
    ]
    return Reply.sse(ROLE, *pieces, END, DONE)


def never_ending(chunks: list[Json]) -> Reply:
    """Written a few at a time, so that whoever leaves is noticed."""
    pieces: list[Piece] = []
    for number, one in enumerate(chunks, 1):
        pieces.append(data(one))
        if number % 20 == 0:
            pieces.append(Delay(0))
    return Reply.sse(ROLE, *pieces, SILENCE)


@functools.cache
def endless(seed: int) -> Reply:
    """Text without a repetition, which only a limit ends."""
    return never_ending([chunk({"content": word}) for word in words(3_000, seed)])


@functools.cache
def thinking() -> Reply:
    return never_ending([chunk({"reasoning_content": word}) for word in words(3_000, 7)])


@functools.cache
def laps() -> Reply:
    return never_ending([chunk({"content": LAPS[at : at + 29]}) for at in range(0, len(LAPS), 29)])


WRITTEN_CALL = '<tool_call>\n{"name": "search", "arguments": {"query": "quokka"}}\n</tool_call>'

OTHERS = {
    "text": text,
    "slow": slow,
    "big": big,
    "endless": lambda: endless(random.randrange(8)),
    "thinking": thinking,
    "laps": laps,
    "repaired": lambda: calling("search", "{'query': 'quokka',}"),
    "rescued": lambda: whole(text_chunks(WRITTEN_CALL)),
    "wrong": lambda: BAD_CALL,
}
