"""A tier whose window is smaller than prompt and output together answers with less output."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.catalogue import good
from tests.server.asking import ask
from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.support.replies import litellm_error
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

PROMPT = [{"role": "user", "content": "Where does the quokka live? " * 700}]  # 5,600 tokens
WINDOW = 7168  # a tier of 8,192 by the settings
VLLM = (
    "This model's maximum context length is {window} tokens. However, you requested {total} tokens "
    "({prompt} in the messages, {output} in the completion). Please reduce the length."
)


def serving(window: int, prompt: int, words: str = VLLM) -> WhenWhole:
    """A server that refuses what is larger than its window, in these words."""

    def choose(call: Call) -> Reply:
        output = call.json()["max_tokens"]
        if prompt + output <= window:
            return good(False)
        numbers = {"window": window, "prompt": prompt, "output": output}
        return litellm_error(400, words.format(total=prompt + output, **numbers))

    return WhenWhole(choose)


def limits(upstream: ScriptedServer) -> list[int]:
    return [call.json()["max_tokens"] for call in upstream.calls]


@pytest.mark.parametrize("more", [{}, {"max_tokens": 3000}, {"max_tokens": 30_000}])
async def test_the_same_tier_answers_with_what_is_left(
    more: dict[str, Any], three_tiers: StartProxy
) -> None:
    proxy = await three_tiers()
    proxy.upstream.always(serving(WINDOW, 6000))
    response = await ask(proxy, messages=PROMPT, **more)
    assert response.status_code == 200, response.text
    assert asked(proxy.upstream) == ["fast", "fast"]
    assert limits(proxy.upstream)[1] == WINDOW - 6000
    assert "x-mlx-stack-escalated-from" not in response.headers
    if more:
        note = response.headers["x-mlx-stack-max-tokens"]
        assert note == f"{WINDOW - 6000};asked={more['max_tokens']}"
    # The window is learnt: no further request fails for it.
    response = await ask(proxy, messages=PROMPT)
    assert (response.status_code, len(proxy.upstream.calls)) == (200, 3)


async def test_a_limit_of_ours_as_large_as_the_window(three_tiers: StartProxy) -> None:
    proxy = await three_tiers()
    proxy.upstream.always(serving(2048, 30))
    for calls in (2, 3):
        assert (await ask(proxy)).status_code == 200
        assert asked(proxy.upstream) == ["fast"] * calls


async def test_a_server_that_stops_counting_at_its_window(three_tiers: StartProxy) -> None:
    """It names the least that the prompt can have, so the first answer is a guess."""
    words = (
        "maximum context length is {window} tokens. However, you requested {output} output tokens "
        "and your prompt contains at least {least} input tokens"
    )

    def choose(call: Call) -> Reply:
        output = call.json()["max_tokens"]
        if output <= 900:
            return good(False)
        least = WINDOW - output + 1
        return litellm_error(400, words.format(window=WINDOW, output=output, least=least))

    proxy = await three_tiers()
    proxy.upstream.always(WhenWhole(choose))
    response = await ask(proxy, messages=PROMPT, max_tokens=2200)
    assert response.status_code == 200, response.text
    # Before it answers with less and less, the larger tiers are asked.
    assert limits(proxy.upstream) == [2200, 1100, 2200, 1100, 2200, 1100, 550]


async def test_a_larger_tier_answers_if_next_to_nothing_is_left(three_tiers: StartProxy) -> None:
    def choose(call: Call) -> Reply:
        small = serving(WINDOW, WINDOW - 300).choose(call)
        return small if call.json()["model"] == "fast" else good(False)

    proxy = await three_tiers()
    proxy.upstream.always(WhenWhole(choose))
    assert (await ask(proxy, messages=PROMPT)).status_code == 200
    assert asked(proxy.upstream) == ["fast", "standard"]
    # Where no tier is larger, little is better than nothing.
    proxy.upstream.calls.clear()
    alone = await three_tiers(chain=["fast"])
    assert (await ask(alone, messages=PROMPT)).status_code == 200
    assert (asked(proxy.upstream), limits(proxy.upstream)[-1]) == (["fast", "fast"], 300)
