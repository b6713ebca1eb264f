"""A client that leaves stops the model."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx
import openai
import pytest

from app.local_stack.tiers import demo_model

from .running_stack import RunningStack, wait_until

# What the proxy promises is a second. The model server then notices at its next token, once LiteLLM
# has let go of the call: mostly at once, but it has been seen to keep one until its garbage was
# collected, 40 s and more where it has nothing else to do. So it is given something.
CANCELLED_SECONDS = 1.0
IDLE_SECONDS = 60.0
OTHER = {
    "model": "fast",
    "messages": [{"role": "user", "content": "Who are you?"}],
    "max_tokens": 1,
}


@pytest.fixture
def endless() -> dict[str, object]:
    """A request whose reply never ends by itself: the token that ends it is forbidden."""
    folder = demo_model("standard")
    assert folder is not None
    return {
        "model": "standard",
        "messages": [{"role": "user", "content": "Who are you?"}],
        "max_tokens": 16_000,
        "temperature": 1.0,
        "logit_bias": {str(token): -100 for token in ending_tokens(folder)},
    }


def ending_tokens(model: Path) -> list[int]:
    ends = json.loads((model / "config.json").read_text())["eos_token_id"]
    return ends if isinstance(ends, list) else [ends]


def in_flight(stack: RunningStack) -> float:
    return stack.metric("mlx_stack_in_flight", tier="standard")


def assert_stopped(stack: RunningStack) -> None:
    """The upstream call is gone at once, and soon after the model server does nothing any more."""
    wait_until(lambda: in_flight(stack) == 0, CANCELLED_SECONDS, "the upstream call's end")
    server = stack.children()["standard"]

    def idle() -> bool:
        httpx.post(f"{stack.url}/v1/chat/completions", json=OTHER, timeout=30).raise_for_status()
        before = sum(server.cpu_times()[:2])
        time.sleep(0.3)
        return sum(server.cpu_times()[:2]) - before < 0.06

    wait_until(idle, IDLE_SECONDS, "the model's end")


def test_in_the_middle_of_a_stream(
    stack: RunningStack, client: openai.OpenAI, endless: dict[str, object]
) -> None:
    stream = client.chat.completions.create(**endless, stream=True)  # type: ignore[call-overload]
    for count, _ in enumerate(stream):
        if count == 5:
            break
    assert in_flight(stack) == 1
    stream.close()
    assert_stopped(stack)


def test_while_waiting_for_a_whole_reply(stack: RunningStack, endless: dict[str, object]) -> None:
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{stack.url}/v1/chat/completions", json=endless, timeout=2)
    assert_stopped(stack)


def test_the_tier_serves_on(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="standard", messages=[{"role": "user", "content": "Who are you?"}]
    )
    assert "demo model" in (reply.choices[0].message.content or "")
