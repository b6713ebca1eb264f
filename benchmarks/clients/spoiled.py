"""How a model's reply is spoiled, and which are: one ask in four.

The kinds are the models' mistakes that people reported and recorded: broken arguments, wrong names,
calls as text, empty replies, and what loops until a limit ends it. Servers that fail are no
mistake of a model: they are in `make clients` and `make faults`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from random import Random

from benchmarks.clients.scripted import Turn, Use, call_of
from benchmarks.records import Json
from tests.clients.mistakes import MISTAKES, SENTENCE
from tests.faults.catalogue import whole
from tests.support.replies import DONE, chunk, data, text_chunks, usage_chunk
from tests.support.scripted_server import Delay, Piece, Reply

SHARE = 4  # one in so many
CHARACTERS = 4  # of a token
# A reply that loops ends at the server's limit, 4,096 tokens, written at 1,250 a second.
LIMIT, PAUSE = 4096, 0.01
Spoil = Callable[[Turn, str], Reply]  # of what was to be said, and its arguments


def _round(add: Callable[[str], Json], *first: Json) -> Reply:
    """One sentence over and over, word by word, each time with a pause, until the limit."""
    laps = LIMIT * CHARACTERS // len(SENTENCE)
    begun = [data(chunk({"role": "assistant", "content": None})), *map(data, first)]
    lap = [data(chunk(add(f"{word} "))) for word in SENTENCE.split()]
    pieces: list[Piece] = [*lap, Delay(PAUSE)] * laps
    return Reply.sse(*begun, *pieces, data(chunk({}, "length")), data(usage_chunk()), DONE)


def _call_that_loops(turn: Turn, arguments: str) -> Reply:
    assert isinstance(turn, Use)
    begun = {"name": turn.tool, "arguments": arguments[: len(arguments) // 2]}
    call = {"index": 0, "id": "call_round", "type": "function", "function": begun}
    return _round(
        lambda text: {"tool_calls": [{"index": 0, "function": {"arguments": text}}]},
        chunk({"tool_calls": [call]}),
    )


def _as_text(turn: Turn, arguments: str) -> Reply:
    """In one of four forms that models write."""
    assert isinstance(turn, Use)
    given = json.loads(arguments)
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in given.items())
    call = json.dumps({"name": turn.tool, "arguments": given})
    forms = (
        f"<tool_call>\n{call}\n</tool_call>",
        f"<tool_call>\n<function={turn.tool}>\n{parameters}</function>\n</tool_call>",
        f"[TOOL_CALLS][{call}]",
        call,
    )
    text = forms[len(arguments) % len(forms)]
    return whole(text_chunks(*(text[at : at + 16] for at in range(0, len(text), 16))))


def _known(name: str) -> Spoil:
    mistake = MISTAKES[name]
    assert mistake is not None
    return mistake  # type: ignore[return-value]


def _named(change: Callable[[str], str]) -> Spoil:
    return lambda turn, given: call_of(change(turn.tool), given)  # type: ignore[union-attr]


CUT, COMMA, MISSING = "arguments that are cut", "a comma too many", "missing arguments"
UNKNOWN, LOST, NOTHING = "an unknown tool", "no call, though it says so", "nothing"
KINDS: dict[str, Spoil] = {
    **{name: _known(name) for name in (CUT, COMMA, MISSING, UNKNOWN, LOST, NOTHING)},
    "arguments within a string": lambda turn, given: call_of(turn.tool, json.dumps(given)),  # type: ignore[union-attr]
    "a channel's mark in the name": _named(lambda tool: f"{tool}<|channel|>commentary"),
    "a call as text": _as_text,
    "a text that loops": lambda *_: _round(lambda text: {"content": text}),
    "thinking that loops": lambda *_: _round(lambda text: {"reasoning": text}),
    "a call that loops": _call_that_loops,
}
# Those that need no call: what a model's last words may become.
OF_TEXT = (NOTHING, "a text that loops", "thinking that loops")


def dealt(seed: int, tasks: int, calls: int) -> dict[tuple[int, int], str]:
    """The turns, as (task, turn), that are spoiled when asked first: each kind as often.

    `calls`: so many turns of a task make a call, and one more says that it is done.
    """
    draws = Random(seed)
    found: dict[tuple[int, int], str] = {}
    for turns, kinds in ((range(calls), tuple(KINDS)), ((calls,), OF_TEXT)):
        places = list(product(range(tasks), turns))
        draws.shuffle(places)
        chosen = places[: len(places) // SHARE]
        found |= {place: kinds[at % len(kinds)] for at, place in enumerate(chosen)}
    return found


def again(seed: int, task: int, turn: int, attempt: int, calls: int) -> str:
    """How a turn is spoiled that is asked once more; empty: it is not."""
    draws = Random(f"{seed}:{task}:{turn}:{attempt}")
    kinds = tuple(KINDS) if turn < calls else OF_TEXT
    return draws.choice(kinds) if draws.random() * SHARE < 1 else ""
