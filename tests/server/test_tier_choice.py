"""Which tier a request starts at, as far as it needs no stage."""

from __future__ import annotations

import pytest

from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer

SETTINGS = {
    "tiers.fast.model": "group-fast",
    "tiers.standard.model": "group-standard",
    "reliability.escalation.chain": ["fast", "standard"],
    "reliability.escalation.aliases": {"gpt-4o-mini": "standard"},
}


@pytest.fixture
async def proxy(upstream: ScriptedServer, start_proxy: StartProxy) -> RunningProxy:
    upstream.models = ("group-fast", "group-standard", "embedder")
    upstream.always(text_stream())
    return await start_proxy(SETTINGS)


CASES = [
    ("fast", None, "fast", "group-fast"),
    ("standard", None, "standard", "group-standard"),
    ("auto", None, "fast", "group-fast"),
    ("gpt-4o-mini", None, "standard", "group-standard"),
    ("gpt-9-unheard-of", None, "fast", "group-fast"),
    ("embedder", None, "embedder", "embedder"),
    ("fast", "standard", "standard", "group-standard"),
    ("embedder", "standard", "standard", "group-standard"),
    ("auto", "auto", "fast", "group-fast"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}")
async def test_start_tier(
    case: tuple[str, str | None, str, str], upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    model, header, tier, group = case
    response = await ask(proxy, {"X-MLX-Stack-Tier": header} if header else None, model=model)
    assert response.status_code == 200
    assert response.headers["x-mlx-stack-tier"] == tier
    assert upstream.calls[0].json()["model"] == group
    assert response.json()["model"] == "fast", "upstream's own word stays"


async def test_no_model_is_auto(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    response = await proxy.client.post(
        "/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}]}
    )
    assert response.headers["x-mlx-stack-tier"] == "fast"
    assert upstream.calls[0].json()["model"] == "group-fast"


async def test_a_model_that_no_tier_names_is_other_in_metrics(proxy: RunningProxy) -> None:
    await ask(proxy, model="embedder")
    text = (await proxy.client.get("/metrics")).text
    assert 'tier="other"' in text
    assert "embedder" not in text


async def test_unknown_models_may_be_passed_on(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.always(text_stream())
    proxy = await start_proxy({"reliability.escalation.unknown_models": "passthrough"})
    await ask(proxy, model="gpt-9-unheard-of")
    assert upstream.calls[0].json()["model"] == "gpt-9-unheard-of"


async def test_params_of_the_tier_are_put_in(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.always(text_stream())
    proxy = await start_proxy({"tiers.fast.params": {"temperature": 0.1, "top_k": 20}})
    await ask(proxy)
    sent = upstream.calls[0].json()
    assert (sent["temperature"], sent["top_k"]) == (0.1, 20)


async def test_a_limit_is_always_sent(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    """mlx-lm's own is 512."""
    await ask(proxy)
    await ask(proxy, max_tokens=77)
    await ask(proxy, max_completion_tokens=78)
    await ask(proxy, max_tokens=1_000_000)
    first, second, third, fourth = (call.json() for call in upstream.calls)
    assert first["max_tokens"] == 16_384
    assert second["max_tokens"] == 77
    assert third.get("max_completion_tokens", third.get("max_tokens")) == 78
    assert fourth["max_tokens"] == 16_384
