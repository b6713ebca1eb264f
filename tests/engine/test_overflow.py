"""How servers say that a prompt is too long: their wordings, each with the window it names."""

from __future__ import annotations

import json

import pytest

from mlx_stack_proxy.engine.upstream_answers import failure_of_status, is_overflow, window_in
from mlx_stack_proxy.escalation.ladder import ABILITIES

WORDINGS = [
    ("This model's maximum context length is 8192 tokens. However, you requested 9000", 8192),
    ("litellm.ContextWindowExceededError: litellm.BadRequestError: too many tokens", None),
    ('{"code": "context_length_exceeded"}', None),
    ("the request exceeds the available context size. try increasing it", None),
    ('{"type":"exceed_context_size_error","n_prompt_tokens":4112,"n_ctx":4096}', 4096),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096", 4096),
    ("prompt is too long: 207310 tokens > 200000 maximum", 200000),
    ("The input token count (40000) exceeds the maximum number of tokens allowed (32768).", 32768),
    ("Trying to keep the first 9000 tokens when context the overflows.", None),
    ("input length exceeds the context length", None),
    ("Prompt (9000 tokens) exceeds context window (8192)", 8192),
]
EVERYTHING = frozenset(ABILITIES)
OTHERS = [
    "Connection error.",
    "max_tokens is too large: 99",
    "Rate limit reached: 30000 tokens per minute",
    "messages: the text of the context was not given",
    "No deployments available for selected model",
    "context deadline exceeded",
]


@pytest.mark.parametrize(("text", "window"), WORDINGS)
def test_an_overflow(text: str, window: int | None) -> None:
    assert is_overflow(text)
    assert window_in(text) == window


@pytest.mark.parametrize("text", OTHERS)
def test_no_overflow(text: str) -> None:
    assert not is_overflow(text)


@pytest.mark.parametrize("status", [400, 413, 500])
def test_it_is_a_failure_of_its_own(status: int) -> None:
    body = json.dumps({"error": {"message": WORDINGS[0][0]}}).encode()
    found = failure_of_status(status, (), body, our_key=True, our_choice=True, needs=EVERYTHING)
    assert (found.reason, found.window, found.body) == ("context_overflow", 8192, body)


def test_a_rate_limit_that_speaks_of_tokens_is_none() -> None:
    body = b'{"error": {"message": "exceeds the maximum number of tokens allowed per minute"}}'
    assert (
        failure_of_status(429, (), body, our_key=True, our_choice=True, needs=EVERYTHING).reason
        == "server_error"
    )


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        ("this model does not support tools", "tools"),
        ("registry.local/m does not support tools", "tools"),
        ("`tools` is not supported by this model", "tools"),
        ("Function calling is not enabled for this model", "tools"),
        ("This model does not support image input", "images"),
        ("image input is not supported - hint: you may need the mmproj", "images"),
        ("response_format is not supported", "response_format"),
        ("messages[0] has no role", ""),
        ("tool_choice must be a string", ""),
    ],
)
def test_what_a_tier_says_it_cannot(message: str, lacks: str) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    found = failure_of_status(400, (), body, our_key=True, our_choice=True, needs=EVERYTHING)
    assert found.lacks == lacks
    assert found.client_fault is (lacks == "")


@pytest.mark.parametrize("status", [400, 500, 501])
def test_what_the_request_does_not_need_cannot_be_what_it_lacks(status: int) -> None:
    body = json.dumps({"error": {"message": "this model does not support tools"}}).encode()
    needs = frozenset({"images"})
    found = failure_of_status(status, (), body, our_key=True, our_choice=True, needs=needs)
    assert (found.lacks, found.final) == ("", False)
    assert found.client_fault is (status == 400)
