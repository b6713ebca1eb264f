"""What an overflow says: the prompt is too long, or prompt and output are together."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine import overflow
from mlx_stack_proxy.engine.request import UpstreamRequest
from mlx_stack_proxy.engine.upstream_answers import failure_of_status
from mlx_stack_proxy.engine.verdicts import Failure
from mlx_stack_proxy.wire.delta import Usage
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request
from tests.support.deltas import text_delta, usage_delta

# 7,150 tokens by our estimate.
REQUEST = client_request(messages=[{"role": "user", "content": "The quokka sat. " * 1563}])
WINDOW = 12_288
OUTPUT = 8192


def failed(text: str, status: int = 400) -> Failure:
    body = b'{"error": {"message": "%s"}}' % text.encode()
    found = failure_of_status(status, (), body, our_key=True, our_choice=True, needs=frozenset())
    assert isinstance(found, Failure)
    return found


def measured(failure: Failure, reply: Reply | None = None, **sent: Any) -> Failure:
    request = UpstreamRequest("fast", {"max_tokens": OUTPUT, **sent}, WINDOW)
    return overflow.measured(failure, request, REQUEST, reply or Reply())


@pytest.mark.parametrize(
    ("text", "room"),
    [
        # OpenAI, and vLLM until 0.6
        (
            "This model's maximum context length is 12288 tokens. However, you requested 16292 "
            "tokens (8100 in the messages, 8192 in the completion).",
            4188,
        ),
        # SGLang
        (
            "Requested token count exceeds the model's maximum context length of 12,288 tokens. "
            "You requested a total of 16,292 tokens: 8,100 tokens from the input messages and "
            "8,192 tokens for the completion.",
            4188,
        ),
        # vLLM
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 8192. This model's maximum "
            "context length is 12288 tokens and your request has 8100 input tokens "
            "(8192 > 12288 - 8100).",
            4188,
        ),
        # Anthropic
        (
            "input length and `max_tokens` exceed context limit: 8100 + 8192 > 12288, decrease "
            "input length or `max_tokens` and try again",
            4188,
        ),
        # It does not say that 16,292 is a total.
        ("maximum context length is 12288 tokens, but 16292 were asked for", 0),
        # vLLM, which stops to count at the window: 4,097 is the least that the prompt can have.
        (
            "This model's maximum context length is 12288 tokens. However, you requested 8192 "
            "output tokens and your prompt contains at least 4097 input tokens, for a total of at "
            "least 12289 tokens.",
            4096,
        ),
        # The server's window is larger than the one configured, and it counts to its end as above.
        (
            "This model's maximum context length is 196608 tokens. However, you requested 8192 "
            "output tokens and your prompt contains at least 188417 input tokens, for a total of "
            "at least 196609 tokens.",
            4096,
        ),
        # The three numbers agree, so our estimate of the prompt (7,150) counts for nothing.
        ("maximum context length is 12288 tokens: 8192 output tokens + 5000 = 13192 tokens", 7288),
        # An output that we did not ask for
        ("maximum context length is 12288 tokens, 10240 to write and 7000 read are 17240", 2048),
        # Only the window
        ("the maximum context length is 120000 tokens", 0),
        # The prompt alone is too long.
        ("maximum context length is 12288 tokens, but your prompt has 13000 tokens", 0),
        ("This model's maximum context length is 4096 tokens, and you sent 8100", 0),
        ("the prompt is too long", 0),
    ],
)
def test_the_room_that_an_overflow_leaves(text: str, room: int) -> None:
    found = measured(failed(text))
    assert (found.reason, found.room) == ("context_overflow", room)


def test_a_call_without_a_limit_leaves_no_room() -> None:
    text = "you requested 16292 tokens (8100 + 8192), the maximum context length is 12288"
    assert measured(failed(text), max_tokens=None).room == 0


def test_an_error_at_the_full_window_is_an_overflow() -> None:
    """Whatever its name: llama.cpp fails so after some reasoning, others with a bare 500."""
    reply = Reply()
    reply.take(text_delta("x" * 4 * 5200))
    found = measured(failed("CUDA error: invalid argument", 500), reply)
    assert (found.reason, found.inferred) == ("context_overflow", True)
    reply = Reply()
    reply.take(usage_delta(Usage(12_288, 0)))
    assert measured(failed("no kv slot", 500), reply).reason == "context_overflow"


@pytest.mark.parametrize(
    "failure",
    [
        failed("CUDA error: out of memory", 500),
        Failure("server_error", "connection lost"),
        Failure("timeout", "nothing came"),
    ],
)
def test_other_errors_stay_what_they_are(failure: Failure) -> None:
    assert measured(failure) == failure


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("context shift is disabled", None),
        ("Cannot truncate prompt with n_keep (10023) >= n_ctx (4096)", 4096),
        ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 3000 `inputs` tokens", 4096),
        ("exceed context limit: 8100 + 8192 > 12288", 12_288),
    ],
)
def test_overflows_by_other_names(text: str, window: int | None) -> None:
    found = failed(text, 500)
    assert (found.reason, found.window) == ("context_overflow", window)
