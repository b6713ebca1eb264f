"""What comes in one read is decided as if each piece had come alone, for who doesn't stream."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest

from mlx_stack_proxy import stages
from mlx_stack_proxy.engine.attempt import Attempt
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.settings_source import from_mapping
from tests.engine.exchanges import attempt, client_request, cut, exchange
from tests.support.replies import DONE, chunk, data, usage_chunk

Json = dict[str, Any]
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "read", "arguments": {"n": 1}}</tool_call>\n'
WORDS = ["the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be"]


def prose(rng: random.Random, size: int) -> str:
    return "".join(f"{rng.choice(WORDS)}{rng.randrange(99)} " for _ in range(size))


def texts(rng: random.Random) -> str:
    """A reply's text that some rule or other may have to do with."""
    parts = [
        lambda: prose(rng, rng.randrange(40)),
        lambda: prose(rng, rng.randrange(1, 9)) * rng.randrange(2, 30),
        lambda: rng.choice(["ab", "x", "-+*", " ", "\n", "é", "😀 "]) * rng.randrange(1, 400),
        lambda: CALL * rng.randrange(1, 5),
        lambda: f"<think>{prose(rng, rng.randrange(30))}</think>",
        lambda: f'Action: read\nAction Input: {{"n": {rng.randrange(2)}}}\n' * rng.randrange(1, 6),
        lambda: f"```\n{prose(rng, 5) * rng.randrange(1, 9)}\n```\n",
    ]
    return "".join(rng.choice(parts)() for _ in range(rng.randrange(1, 4)))


def stream(rng: random.Random) -> bytes:
    """One reply, of which now and then something is no text, or belongs to another choice."""
    whole, at, text = bytearray(data(chunk({"role": "assistant", "content": ""}))), 0, texts(rng)
    longest = rng.choice([1, 4, 12, 60, 300])
    beside = rng.choice([{}, {}, {}, {"token_ids": [7]}, {"note": "a"}])  # in every chunk
    while at < len(text):
        size = rng.randint(1, longest)
        whole += data(chunk({"content": text[at : at + size]}, **beside))
        at += size
        match rng.randrange(60):
            case 0:
                whole += data(chunk({"reasoning_content": prose(rng, 3)}))
            case 1:
                whole += data(chunk({"content": prose(rng, 1)}, index=1))
            case 2:
                function = {"name": "read", "arguments": '{"n": 1}'}
                call = {"index": rng.randrange(2), "id": "c", "function": function}
                whole += data(chunk({"tool_calls": [call]}))
            case 3:
                whole += rng.choice([data(usage_chunk()), b": still here\n\n", data({"odd": 1})])
            case 4:
                whole += data(chunk({"content": ""})) + data(chunk({"content": None}))
            case 5:
                whole += data(chunk({"content": "a"}, logprobs={"content": [1]}))
    for index in (0, 1):
        if rng.random() < 0.9:
            whole += data(chunk({}, "stop", index=index))
    return bytes(whole + DONE)


def settings(rng: random.Random) -> Json:
    generation = {
        "min_laps": rng.choice([2, 4, 4]),
        "min_chars": rng.choice([1, 100, 400, 400]),
        "max_trailing_whitespace": rng.choice([5, 80, 512]),
        "max_reasoning_tokens": rng.choice([1, 20, 12_288]),
        "enabled": rng.random() < 0.9,
    }
    loops = {"generation": generation, "on_break": rng.choice(["escalate", "stop"])}
    limit = rng.choice([3, 40, 150, 4096])
    return {
        "tiers": {"fast": {}, "standard": {}},
        "reliability": {"loop_detection": loops, "token_budget": {"max_output_tokens": limit}},
    }


def decided(whole: Exchange, one: Attempt, pieces: Sequence[bytes]) -> Json:
    """All that an attempt has come to."""
    assert one.on_request() is None
    for piece in pieces:
        if not one.over:
            one.feed(piece)
    early = one.verdict
    if one.done or early is not None:
        one.settle()
    reply = one.reply
    found = {
        "early": early,
        "verdict": one.verdict,
        "notes": [one.remarks().notes, one.remarks().reply_notes],
        "incidents": one.remarks().incidents,
        "choices": {
            index: [c.text, c.reasoning, c.refusal, c.tool_calls, c.finish_reason]
            for index, c in reply.choices.items()
        },
        "counts": [reply.pieces, reply.counted, reply.usage, reply.cut, sorted(reply.mended)],
        "whole": one.completion(),
    }
    return {name: re.sub(r"call_\w+", "call", repr(value)) for name, value in found.items()}


@pytest.mark.parametrize("seed", range(50))
def test_a_network_that_joins_pieces_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    body, given = stream(rng), settings(rng)
    tools = [TOOL] if rng.random() < 0.5 else []

    choices = rng.choice([1, 2])

    def come_to(pieces: Sequence[bytes]) -> Json:
        asked = client_request(stream=False, tools=tools, n=choices)
        whole = exchange(asked)
        built = stages.build(from_mapping(given))
        return decided(whole, attempt(whole, stages=built), pieces)

    frames = [frame + b"\n\n" for frame in body.split(b"\n\n")[:-1]]
    alone = come_to(frames)
    assert come_to([body]) == alone
    places = [rng.randrange(len(body)) for _ in range(rng.randrange(1, 12))]
    assert come_to(cut(body, places)) == alone
