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
    ("gpt-4o-mini", None, "standard", "group-standard"),
    ("gpt-9-unheard-of", None, "fast", "group-fast"),
    ("embedder", None, "embedder", "embedder"),
    ("embedder", "standard", "standard", "group-standard"),
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


async def test_a_model_that_no_tier_names_is_other_in_metrics(proxy: RunningProxy) -> None:
    await ask(proxy, model="embedder")
    text = (await proxy.client.get("/metrics")).text
    assert 'tier="other"' in text
    assert "embedder" not in text


async def test_params_of_the_tier_are_put_in(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.always(text_stream())
    proxy = await start_proxy({"tiers.fast.params": {"temperature": 0.1, "top_k": 20}})
    await ask(proxy)
    sent = upstream.calls[0].json()
    assert (sent["temperature"], sent["top_k"]) == (0.1, 20)
