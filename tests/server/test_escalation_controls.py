"""What the client and the settings say about escalation, and the bounds of an exchange."""

from __future__ import annotations

import pytest

from tests.faults.catalogue import EMPTY
from tests.faults.clients import ANSWER, TOOLS
from tests.server.asking import ask, checked_error, payloads, text_of
from tests.server.calling import note_of
from tests.server.climbing import DEAD, asked, by_model, settings, three_tiers
from tests.server.conftest import StartProxy
from tests.support.replies import chunk, data, litellm_error
from tests.support.scripted_server import (
    RESET,
    SILENCE,
    Reply,
    ScriptedServer,
)

SILENT = Reply.sse(SILENCE)
SHORT = {"tiers.fast.first_token_timeout": 0.3}  # only for who is silent


# What a request may say


async def test_escalation_off_stays_on_its_tier(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, retries=1)
    upstream.always(by_model(fast=DEAD))
    response = await ask(proxy, {"X-MLX-Stack-Escalation": "off"})
    error = checked_error(response, 502, "all_tiers_failed")
    assert [attempt["tier"] for attempt in error["attempts"]] == ["fast", "fast"]
    assert asked(upstream) == ["fast", "fast"], "retries are no escalation"
    assert response.headers["x-mlx-stack-retries"] == "1"
    assert "x-mlx-stack-escalated-from" not in response.headers


async def test_a_tier_of_the_header_is_where_it_starts_and_only_forward(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy)
    upstream.always(by_model(standard=DEAD))
    response = await ask(proxy, {"X-MLX-Stack-Tier": "standard"})
    assert response.json()["choices"][0]["message"]["content"] == ANSWER
    assert asked(upstream) == ["standard", "longctx"]
    assert response.headers["x-mlx-stack-escalated-from"] == "standard"
    assert response.headers["x-mlx-stack-tier"] == "longctx"


async def test_the_first_escalation_is_the_one_that_is_told(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, retries=1)
    upstream.always(by_model(fast=DEAD, standard=EMPTY))
    headers = (await ask(proxy)).headers
    assert asked(upstream) == ["fast", "fast", "standard", "standard", "longctx"]
    assert headers["x-mlx-stack-tier"] == "longctx"
    assert headers["x-mlx-stack-escalated-from"] == "fast"
    assert headers["x-mlx-stack-escalation-reason"] == "server_error"
    assert headers["x-mlx-stack-retries"] == "2"
    assert headers["x-mlx-stack-attempts"] == "5"


async def test_a_stream_whose_headers_are_out_says_it_in_its_last_comment(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """Reasoning flows, and commits nothing."""
    proxy = await three_tiers(upstream, start_proxy)
    thinks = data(chunk({"role": "assistant", "reasoning_content": "Hm."}))
    upstream.always(by_model(fast=Reply.sse(thinks, RESET)))
    response = await ask(proxy, stream=True)
    assert response.headers["x-mlx-stack-tier"] == "fast"
    assert text_of(response.content) == ANSWER
    note = note_of(response)
    assert (note["tier"], note["escalated_from"]) == ("standard", "fast")
    assert (note["escalation_reason"], note["attempts"]) == ("server_error", 2)
    assert "error" not in str(payloads(response.content))


async def test_a_keep_alive_sends_the_headers_and_escalation_stays_free(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, {**SHORT, "stream.keepalive_seconds": 0.05})
    upstream.always(by_model(fast=SILENT))
    response = await ask(proxy, stream=True)
    assert response.content.startswith(b": keep-alive")
    assert text_of(response.content) == ANSWER
    assert note_of(response)["escalation_reason"] == "timeout"


# The cloud


CLOUD = {
    "tiers": {
        "fast": {"model": "fast"},
        "premium": {"model": "premium", "local": False},
    }
}
CONSENT = {"model": "cloud/large"}


@pytest.mark.parametrize(
    ("headers", "escalation", "entered"),
    [
        ({}, {"cloud_fallback": CONSENT}, True),
        ({"X-MLX-Stack-Cloud": "off"}, {"cloud_fallback": CONSENT}, False),
        ({}, {"cloud_fallback": CONSENT, "cloud": False}, False),
        ({}, {"cloud_fallback": {**CONSENT, "enabled": False}}, False),
        ({}, {}, False),
    ],
    ids=["consent", "header off", "off for all", "disabled", "no consent"],
)
async def test_the_cloud_is_entered_by_consent_only(
    headers: dict[str, str],
    escalation: dict[str, object],
    entered: bool,
    upstream: ScriptedServer,
    start_proxy: StartProxy,
) -> None:
    upstream.models = ("fast", "premium")
    changes = {**settings(**escalation), **CLOUD}
    changes["reliability.escalation"]["chain"] = ["fast", "premium"]
    proxy = await start_proxy(changes)
    upstream.always(by_model(fast=DEAD))
    response = await ask(proxy, headers)
    assert asked(upstream) == ["fast", *["premium"] * entered]
    assert response.headers.get("x-mlx-stack-cloud") == ("true" if entered else None)
    if entered:
        assert response.headers["x-mlx-stack-tier"] == "premium"
    else:
        checked_error(response, 502, "all_tiers_failed")


async def test_a_named_cloud_tier_is_refused_where_nothing_may_leave(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.models = ("fast", "premium")
    changes = {**settings(), **CLOUD}
    changes["reliability.escalation"]["chain"] = ["fast", "premium"]
    proxy = await start_proxy(changes)
    upstream.always(by_model())
    named = {"X-MLX-Stack-Tier": "premium"}
    checked_error(
        await ask(proxy, {**named, "X-MLX-Stack-Cloud": "off"}), 400, "invalid_request_error"
    )
    assert upstream.calls == []
    assert (await ask(proxy, named)).headers["x-mlx-stack-tier"] == "premium"


# Which reasons


async def test_a_prompt_that_cannot_fit_starts_higher(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy)
    upstream.always(by_model())
    long = [{"role": "user", "content": "The quokka sat. " * 4000}]
    response = await ask(proxy, messages=long)
    assert asked(upstream) == ["longctx"]
    assert response.headers["x-mlx-stack-escalated-from"] == "fast"
    assert response.headers["x-mlx-stack-escalation-reason"] == "context_overflow"
    # And the next turn, short again, is the first tier's: an overflow is seen again by its length.
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast"


async def test_a_tier_that_says_it_cannot_do_tools_is_gone_past_from_then_on(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, sticky_seconds=0)
    upstream.always(by_model(fast=litellm_error(400, "This model does not support tools.")))
    first = await ask(proxy, tools=TOOLS)
    assert first.headers["x-mlx-stack-tier"] == "standard"
    assert asked(upstream) == ["fast", "standard"]
    await ask(proxy, tools=TOOLS)
    assert asked(upstream)[2:] == ["standard"], "learnt"
    upstream.always(by_model())
    assert (await ask(proxy)).headers["x-mlx-stack-tier"] == "fast", "without tools it can"


# How many, how long


async def test_max_attempts_keeps_a_call_for_each_tier_to_come(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await three_tiers(upstream, start_proxy, retries=1, max_attempts=4)
    calls = ["fast", "fast", "standard", "longctx"]
    upstream.always(DEAD)
    error = checked_error(await ask(proxy), 502, "all_tiers_failed")
    assert asked(upstream) == calls
    assert [(one["tier"], one["reason"], one["status"]) for one in error["attempts"]] == [
        (tier, "server_error", 500) for tier in calls
    ]
    assert all(one["seconds"] >= 0 for one in error["attempts"])


@pytest.mark.parametrize("header", ["x-stainless-read-timeout", "x-stainless-timeout"])
async def test_nothing_begins_after_the_clients_own_timeout(
    header: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """The SDKs send it with every request; a client that streams reads meanwhile."""
    proxy = await three_tiers(upstream, start_proxy, SHORT)
    upstream.always(by_model(fast=SILENT))
    checked_error(await ask(proxy, {header: "0.1"}), 504, "all_tiers_failed")
    assert asked(upstream) == ["fast"]
    response = await ask(proxy, {header: "0.1"}, stream=True)
    assert text_of(response.content) == ANSWER


# What the model itself did wrong says more than what a server did after it
