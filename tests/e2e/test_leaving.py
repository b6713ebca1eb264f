"""A client that leaves stops the model."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from psutil import CONN_ESTABLISHED

from mlx_stack_proxy.operator.local_stack.tiers import demo_model

from .running_stack import RunningStack, wait_until

# The proxy hangs up at once: the model would go on for longer than this. The model server notices
# at its next token, once LiteLLM has let go of the call: mostly at once, but where that is older
# than what its garbage collector looks at often, LiteLLM keeps it until the model is done.
CANCELLED_SECONDS = 10.0
IDLE_SECONDS = 20.0


@pytest.fixture
def endless() -> dict[str, object]:
    """A request whose reply never ends: the token that ends it is forbidden, and it is too random
    to go round, for which it would be cut.
    """
    folder = demo_model("standard")
    assert folder is not None
    return {
        "model": "standard",
        "messages": [{"role": "user", "content": "Who are you?"}],
        "max_tokens": 16_000,
        "temperature": 2.0,
        "logit_bias": {str(token): -100 for token in ending_tokens(folder)},
    }


def ending_tokens(model: Path) -> list[int]:
    ends = json.loads((model / "config.json").read_text())["eos_token_id"]
    return ends if isinstance(ends, list) else [ends]


def in_flight(stack: RunningStack) -> float:
    return stack.metric("mlx_stack_in_flight", tier="standard")


def connections(stack: RunningStack) -> int:
    """Those of the proxy to LiteLLM, idle ones included."""
    open_ones = stack.children()["proxy"].net_connections(kind="tcp")
    return sum(
        bool(one.raddr) and one.raddr.port == stack.litellm_port and one.status == CONN_ESTABLISHED
        for one in open_ones
    )


def assert_stopped(stack: RunningStack, before: int) -> None:
    """The upstream call is gone, and soon after the model server does nothing any more.

    ``before``: the proxy's connections to LiteLLM while the call ran.
    """
    wait_until(lambda: in_flight(stack) == 0, CANCELLED_SECONDS, "the upstream call's end")
    wait_until(lambda: connections(stack) < before, CANCELLED_SECONDS, "the connection's end")
    server = stack.children()["standard"]

    def idle() -> bool:
        before = sum(server.cpu_times()[:2])
        time.sleep(0.3)
        return sum(server.cpu_times()[:2]) - before < 0.06

    try:
        wait_until(idle, IDLE_SECONDS, "the model's end")
    except AssertionError:
        pytest.xfail("the proxy has hung up; LiteLLM keeps the call")


def test_in_the_middle_of_a_stream(
    stack: RunningStack, client: openai.OpenAI, endless: dict[str, object]
) -> None:
    stream = client.chat.completions.create(**endless, stream=True)  # type: ignore[call-overload]
    for count, _ in enumerate(stream):
        if count == 5:
            break
    assert in_flight(stack) == 1
    before = connections(stack)
    stream.close()
    assert_stopped(stack, before)


def test_while_waiting_for_a_whole_reply(stack: RunningStack, endless: dict[str, object]) -> None:
    def ask() -> None:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{stack.url}/v1/chat/completions", json=endless, timeout=2)

    with ThreadPoolExecutor() as pool:
        asked = pool.submit(ask)
        before = 0
        while not asked.done():  # the call's own connection may be a new one
            before = max(before, connections(stack))
        asked.result()
    assert_stopped(stack, before)


def test_the_tier_serves_on(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="standard", messages=[{"role": "user", "content": "Who are you?"}]
    )
    assert "demo model" in (reply.choices[0].message.content or "")
