"""`/mlx-stack/status` and `/mlx-stack/report`: what stands there is what has happened."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import sys
import termios
from typing import Any, NoReturn

import pytest

from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.state.store import StoreError
from tests.server.asking import ask
from tests.server.calling import BAD, GOOD, TOOLS, calling
from tests.server.conftest import StartProxy
from tests.server.failing import SETTINGS
from tests.support.clock import Clock
from tests.support.replies import data, litellm_error, long_text, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, Wait
from tests.support.waiting import until

GENEROUS = 20  # seconds; what takes longer hangs
CHANGES = {
    **SETTINGS,
    "reliability.token_budget": {"per_hour": 1000, "per_tier": {"standard": {"per_hour": 500}}},
    "reliability.escalation.max_retries_before_escalate": 0,
}


async def status(proxy: RunningProxy) -> dict[str, Any]:
    response = await proxy.client.get("/mlx-stack/status")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()
    return found


async def test_what_is_spent(start_proxy: StartProxy) -> None:
    """What else has happened is the report's: the same counts, of a day."""
    proxy = await start_proxy(CHANGES)
    proxy.upstream.will(text_stream(), litellm_error(500, "no"), calling(GOOD))
    await ask(proxy)
    await ask(proxy, tools=TOOLS)
    found = await status(proxy)
    assert found["tiers"]["fast"]["tokens_per_second"] > 0
    totals = found["day"]["totals"]
    assert (totals["requests"], totals["left"]) == (2, 1)
    hour, tier = found["budgets"]
    spent = totals["tokens_in"] + totals["tokens_out"]
    assert hour == {"scope": "hour", "used": spent, "limit": 1000}
    assert tier == {"scope": "tier:standard", "used": 13, "limit": 500}
    assert (found["running"], found["sessions"], found["store"]) == (0, 1, "ok")
    metrics = (await proxy.client.get("/metrics")).text
    for scope, used, limit in (("hour", spent, 1000), ("tier:standard", 13, 500)):
        assert f'mlx_stack_budget_used_tokens{{scope="{scope}"}} {used}.0' in metrics
        assert f'mlx_stack_budget_limit_tokens{{scope="{scope}"}} {limit}.0' in metrics


@pytest.mark.parametrize(
    ("keys", "litellms", "told"),
    [
        (["*"], "sk-1", ("any", False)),
        (["k-1"], "", ("own", True)),
        ([], "sk-1", ("litellm", True)),
        ([], "", ("litellm", False)),
    ],
)
async def test_what_a_client_must_know(
    keys: list[str],
    litellms: str,
    told: tuple[str, bool],
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", litellms)
    changes = {"server.api_keys": keys, "tiers.fast.context_window": 50_000}
    proxy = await start_proxy({**changes, "reliability.escalation.aliases": {"gpt-*": "fast"}})
    found = await status(proxy)
    assert found["clients"] == {
        "key": told[0],
        "key_needed": told[1],
        "aliases": {"gpt-*": "fast"},
        "max_output_tokens": 16_384,
    }
    assert found["tiers"]["fast"]["context_window"] == 50_000
    learned = TierView(windows={"fast": 4096})
    monkeypatch.setattr(proxy.services.tier_states, "view", lambda: learned)
    assert (await status(proxy))["tiers"]["fast"]["context_window"] == 4096


async def test_what_runs_and_what_waits(start_proxy: StartProxy) -> None:
    """A reply that is on its way counts by what it has written."""
    proxy = await start_proxy({"tiers.fast.max_concurrency": 1})
    rest = asyncio.Event()
    role, text, end = (data(one) for one in text_chunks(long_text(400)))
    proxy.upstream.will(Reply.sse(role, text, Wait(rest), end, b"data: [DONE]\n\n"), text_stream())
    asking = [asyncio.create_task(ask(proxy, stream=True)) for _ in range(2)]

    async def busy() -> Any:
        found = await status(proxy)
        fast = found["tiers"]["fast"]
        return fast["waiting"] and fast["tokens_per_second"] and found

    found = await until(busy)
    fast = found["tiers"]["fast"]
    assert (fast["in_flight"], fast["waiting"], found["running"]) == (1, 1, 2)
    rest.set()
    assert [one.status_code for one in await asyncio.gather(*asking)] == [200, 200]
    assert (await status(proxy))["running"] == 0


async def test_a_store_that_fails_is_said(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(now: float, limit: int) -> NoReturn:
        raise StoreError("no disk")

    monkeypatch.setattr(proxy.services.store, "sessions", fails)
    monkeypatch.setattr(proxy.services.store.health, "sentence", "no disk")
    found = await status(proxy)
    assert (found["sessions"], found["budgets"], found["store"]) == (None, [], "no disk")
    assert found["tiers"]["fast"]["state"] == "ok"


async def test_watched_in_a_terminal(proxy: RunningProxy) -> None:
    """Drawn again and again on a screen of its own, which goes away with Ctrl-C."""
    proxy.upstream.always(lambda _: text_stream())
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mlx_stack_proxy", "status", "--watch", "0.1", "--url", proxy.url),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    shown = bytearray()

    async def until_shown(text: bytes) -> None:
        async with asyncio.timeout(GENEROUS):
            while text not in shown:
                with contextlib.suppress(OSError):  # its end was closed: it has ended
                    shown.extend(await asyncio.to_thread(os.read, ours, 65_536))

    try:
        await until_shown(b"0 requests, 0 delivered")
        assert b"\x1b[?1049h" in shown, "a screen of its own"
        await ask(proxy)
        await until_shown(b"1 request, 1 delivered")
        os.write(ours, b"\x03")
        async with asyncio.timeout(GENEROUS):
            assert await process.wait() == 130
        await until_shown(b"\x1b[?1049l")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)


# The report

Json = dict[str, Any]


async def report(proxy: RunningProxy, **query: Any) -> Json:
    response = await proxy.client.get("/mlx-stack/report", params=query)
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def named(agent: str) -> Json:
    return {"headers": {"X-MLX-Stack-Agent": agent}}


async def test_what_has_happened(start_proxy: StartProxy) -> None:
    """What counts as which: tests/telemetry/test_counters.py."""
    proxy = await start_proxy(SETTINGS)
    proxy.upstream.will(calling(BAD), calling(GOOD))
    await ask(proxy, tools=TOOLS, **named("a"))
    proxy.upstream.will(*[litellm_error(500, "no")] * 2, text_stream())
    await ask(proxy, **named("b"))
    proxy.upstream.will(*[litellm_error(500, "no")] * 4)
    await ask(proxy, **named("b"))
    found = await report(proxy)
    assert found["agents"] == ["a", "b"]
    totals = found["totals"]
    counted = ("requests", "turns", "attempts", "retries", "invalid_calls", "retried_right")
    assert [totals[name] for name in counted] == [3, 2, 9, 4, 1, 1]
    assert totals["tokens_in"] > 0
    assert totals["model_seconds"] > 0
    fast, standard = found["by_tier"]["fast"], found["by_tier"]["standard"]
    assert (fast["left:server_error"], fast["failed:server_error"]) == (2, 4)
    assert (standard["escalated_right"], standard["errors:all_tiers_failed"]) == (1, 1)
    assert found["by_agent"]["b"]["requests"] == 2
    of_b = (await report(proxy, agent="b"))["hours"]
    assert {(one["agent"], one["tier"]) for one in of_b} == {("b", "fast"), ("b", "standard")}
    [failed] = found["failures"]
    assert (failed["agent"], failed["type"]) == ("b", "all_tiers_failed")
    assert failed["command"].endswith(failed["request_id"])


async def test_hours_are_told_apart(start_proxy: StartProxy, clock: Clock) -> None:
    proxy = await start_proxy(SETTINGS, wall_clock=clock)
    for _ in range(2):
        proxy.upstream.will(text_stream())
        await ask(proxy, **named("a"))
        clock.now += 3600
    found = await report(proxy, since="3h")
    assert [entry["counts"]["requests"] for entry in found["hours"]] == [1, 1]
    assert found["since"] == found["hours"][0]["hour"] - 3600
    assert (await report(proxy, since="20m"))["totals"] == {}


@pytest.mark.parametrize("query", [{"since": "yesterday"}, {"until": "3h", "since": "1h"}])
async def test_what_makes_no_sense_is_refused(proxy: RunningProxy, query: Json) -> None:
    response = await proxy.client.get("/mlx-stack/report", params=query)
    assert response.status_code == 400
    assert "since" in response.json()["error"]["message"]
