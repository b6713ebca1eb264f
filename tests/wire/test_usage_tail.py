"""The usage of replies that pass through."""

from __future__ import annotations

import json

import pytest

from mlx_stack_proxy.wire.usage import Bounds
from mlx_stack_proxy.wire.usage_tail import MAX_HEAD, MAX_TAIL, UsageTail

MOST = Bounds(10_000, 10_000)
BODIES = [
    (b'{"data": [], "usage": {"prompt_tokens": 8, "total_tokens": 8}}', 8),
    (b'{"usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}}', 12),
    (b'data: {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\ndata: [DONE]\n\n', 7),
    (b'data: {"response": {"usage": {"input_tokens": 3, "output_tokens": 4}}}\n\n', 7),
    (b'{"text": "say \\"usage\\": {}", "usage": {"total_tokens": 9}}', 9),
    (b'{"usage": {"total_tokens": 9}, "text": "\\"usage\\""}', 9),
    (b'{"usage": null}', 0),
    (b'{"usage": {"total_tokens": "many"}}', 0),
    (b'{"usage": {"total_tok', 0),
    (b"\x89PNG", 0),
    (b"", 0),
]


@pytest.mark.parametrize(("body", "tokens"), BODIES)
def test_what_a_body_says(body: bytes, tokens: int) -> None:
    for size in (1, 7, len(body) or 1):
        tail = UsageTail()
        for at in range(0, len(body), size):
            tail.feed(body[at : at + size])
        assert sum(tail.usage(MOST) or ()) == tokens


def test_only_the_end_is_kept() -> None:
    tail = UsageTail()
    tail.feed(b"x" * MAX_HEAD + b'{"usage": {"total_tokens": 1}}' + b"x" * MAX_TAIL)
    assert tail.usage(MOST) is None
    tail.feed(b'{"usage": {"total_tokens": 2}}')
    assert tail.usage(MOST) == (2, 0)


# Anthropic's streams say first what the prompt was, and last what was written.
COUNTED = {
    "input_tokens": 25,
    "cache_creation_input_tokens": 100,
    "cache_read_input_tokens": 1000,
    "output_tokens": 1,
}
ANTHROPIC = b"".join(
    b"event: x\ndata: " + json.dumps(event).encode() + b"\n\n"
    for event in (
        {"type": "message_start", "message": {"id": "msg_1", "usage": COUNTED}},
        {"type": "content_block_delta", "index": 0, "delta": {"text": "Hello" * 30_000}},
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 15}},
        {"type": "message_stop"},
    )
)


def tokens(body: bytes, *, count_cached: bool = True, size: int = 1000) -> int:
    tail = UsageTail()
    for at in range(0, len(body), size):
        tail.feed(body[at : at + size])
    return sum(tail.usage(MOST, count_cached=count_cached) or ())


def test_a_stream_of_anthropics() -> None:
    assert tokens(ANTHROPIC, count_cached=False) == 25 + 100 + 15
    assert tokens(ANTHROPIC, count_cached=True) == 25 + 100 + 1000 + 15


PROMPT = {"prompt_tokens": 100, "completion_tokens": 4}
INPUT = {"output_tokens": 4, "cache_read_input_tokens": 90}
DETAILS = {"cached_tokens": 90}


@pytest.mark.parametrize(
    ("usage", "counted", "without_cached"),
    [
        ({**PROMPT, "total_tokens": 104, "prompt_tokens_details": DETAILS}, 104, 14),
        ({"input_tokens": 100, "output_tokens": 4, "input_tokens_details": DETAILS}, 104, 14),
        # LiteLLM's: the OpenAI spelling, with Anthropic's counts beside it
        ({**PROMPT, "cache_read_input_tokens": 90, "prompt_tokens_details": DETAILS}, 104, 14),
        ({**INPUT, "input_tokens": 10}, 104, 14),
        ({**INPUT, "input_tokens": 0, "output_tokens": 0}, 90, 0),
        ({"prompt_tokens": 8, "total_tokens": 8}, 8, 8),
    ],
)
def test_cached_tokens(usage: dict[str, object], counted: int, without_cached: int) -> None:
    body = json.dumps({"usage": usage}).encode()
    assert tokens(body, count_cached=True) == counted
    assert tokens(body, count_cached=False) == without_cached


@pytest.mark.parametrize("name", ["prompt_tokens", "input_tokens", "output_tokens", "total_tokens"])
@pytest.mark.parametrize("count", [True, -3, 5.5, "many", [], 20_001, 2**64 - 1, int("9" * 400)])
def test_a_usage_with_a_count_that_cannot_be_is_not_believed(name: str, count: object) -> None:
    tail = UsageTail()
    tail.feed(json.dumps({"usage": {"completion_tokens": 1, name: count}}).encode())
    assert tail.usage(MOST) is None
    assert tail.disbelieved


def test_a_model_may_have_written_as_many_tokens_as_bytes_came() -> None:
    tail = UsageTail()
    tail.feed(b"x" * 20_000 + b'{"usage": {"prompt_tokens": 1, "completion_tokens": 20000}}')
    assert tail.usage(MOST) == (1, 20_000)
