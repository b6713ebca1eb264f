"""Other settings while requests are on their way: none is lost, each ends as it began."""

from __future__ import annotations

import asyncio
import copy
import signal
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx

from mlx_stack_proxy import main
from mlx_stack_proxy.settings import Settings
from tests.server.asking import CHAT, ask, body
from tests.server.conftest import StartProxy
from tests.server.polling import until_metric
from tests.server.pressing import Gate
from tests.support.proxy_process import ProxyProcess
from tests.support.replies import data, litellm_error, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer, Wait
from tests.support.waiting import until

ROLE, TEXT, END = (data(one) for one in text_chunks("ok"))
DONE = b"data: [DONE]\n\n"


def change(proxy: RunningProxy, **changes: Any) -> None:
    """`tiers__fast__model="x"` in place of what is in force."""
    data = asdict(proxy.services.settings)
    for path, value in changes.items():
        *parents, last = path.split("__")
        place = data
        for key in parents:
            place = place[key]
        place[last] = copy.deepcopy(value)
    main.change(proxy.services, Settings(**data))


def said_in(answer: httpx.Response) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


async def test_an_exchange_ends_with_the_settings_it_began_with(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"reliability.escalation.max_retries_before_escalate": 1})
    fails = asyncio.Event()
    proxy.upstream.will(
        Reply.sse(Wait(fails), data({"error": {"message": "out of memory", "code": 500}})),
        text_stream("after all"),
    )
    running = asyncio.create_task(ask(proxy))
    first = await proxy.upstream.next_call()
    change(
        proxy,
        tiers__fast__model="standard",
        reliability__escalation__max_retries_before_escalate=0,
    )
    proxy.upstream.script.insert(0, text_stream("the new"))
    answer = await ask(proxy)
    assert (said_in(answer), (await proxy.upstream.next_call()).json()["model"]) == (
        "the new",
        "standard",
    )
    fails.set()
    answer = await running
    assert (answer.status_code, said_in(answer)) == (200, "after all")
    retried = await proxy.upstream.next_call()
    assert first.json()["model"] == retried.json()["model"] == "fast"
    assert answer.headers["x-mlx-stack-retries"] == "1"


async def test_a_stream_goes_on_while_its_tier_is_taken_away(proxy: RunningProxy) -> None:
    goes_on = asyncio.Event()
    proxy.upstream.will(Reply.sse(ROLE, TEXT, Wait(goes_on), END, DONE), text_stream("new"))
    running = asyncio.create_task(ask(proxy, stream=True))
    await proxy.upstream.next_call()
    tier = asdict(proxy.services.settings.tiers["fast"])
    change(
        proxy,
        tiers={"other": {**tier, "model": "standard"}},
        reliability__escalation__chain=("other",),
    )
    assert (await ask(proxy, model="other")).headers["x-mlx-stack-tier"] == "other"
    goes_on.set()
    answer = await running
    assert answer.headers["x-mlx-stack-tier"] == "fast"
    assert answer.content.endswith(DONE) and b'"error"' not in answer.content
    shown = (await proxy.client.get("/mlx-stack/status")).json()
    assert list(shown["tiers"]) == ["other"]


async def test_more_places_let_in_who_waits(start_proxy: StartProxy) -> None:
    """And fewer throw nobody out: tests/escalation/test_tier_queue.py."""
    proxy = await start_proxy({"tiers.fast.max_concurrency": 1})
    gate = Gate(proxy.upstream)
    tasks = [asyncio.create_task(ask(proxy, user=str(number))) for number in range(2)]
    await gate.next_call()
    await until_metric(proxy, "mlx_stack_queue_depth", 1, tier="fast")
    change(proxy, tiers__fast__max_concurrency=2)
    await gate.next_call()
    gate.open()
    assert [answer.status_code for answer in await asyncio.gather(*tasks)] == [200] * 2


async def test_breakers_and_counts_go_on(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"reliability.escalation.degrade.failures": 1})
    proxy.upstream.will(litellm_error(500, "Connection error."), text_stream("fine"))
    assert (await ask(proxy)).status_code == 502
    assert proxy.services.tier_states["fast"].degraded
    change(proxy, tiers__standard__idle_timeout=7.0)
    assert proxy.services.tier_states["fast"].degraded
    assert proxy.services.tier_states.degraded() == {"fast": True, "standard": False}
    session = {"X-MLX-Stack-Session": "one-session"}
    proxy.upstream.always(text_stream("fine"))
    await ask(proxy, session)
    change(proxy, reliability__token_budget__per_session=1)
    answer = await ask(proxy, session)
    assert answer.headers["x-mlx-stack-budget-warning"]


async def test_what_the_loop_detection_remembers_goes_on(proxy: RunningProxy) -> None:
    (before,) = [one for one in proxy.services.stages if one.name == "loop_detection"]
    change(proxy, reliability__loop_detection__duplicate_threshold=5)
    (after,) = [one for one in proxy.services.stages if one.name == "loop_detection"]
    assert after is not before and after.rules.duplicate_threshold == 5  # type: ignore[attr-defined]
    assert after.sessions is before.sessions  # type: ignore[attr-defined]
    change(proxy, reliability__loop_detection__enabled=False)
    assert "loop_detection" not in [one.name for one in proxy.services.stages]


async def test_consent_to_the_cloud_given_and_taken_back(proxy: RunningProxy) -> None:
    assert proxy.services.cloud is None
    given = {"model": "m", "base_url": "http://127.0.0.1:9/v1"}
    change(proxy, reliability__escalation__cloud_fallback=given)
    cloud = proxy.services.cloud
    assert cloud is not None
    change(proxy, tiers__fast__idle_timeout=9.0)
    assert proxy.services.cloud is cloud
    change(proxy, reliability__escalation__cloud=False)
    assert proxy.services.cloud is None
    assert proxy.services.retired == [cloud]


async def test_sighup_in_the_real_process(upstream: ScriptedServer, tmp_path: Path) -> None:
    upstream.always(text_stream("fine"))
    log = tmp_path / "proxy.log"
    proxy = ProxyProcess(tmp_path, upstream.url, options=("--log-file", str(log)))

    async def until_said(event: str) -> None:
        await until(lambda: f'"event":"{event}"' in log.read_text(encoding="utf-8"))

    async with proxy, proxy.client() as client:
        await proxy.start()
        proxy.process.send_signal(signal.SIGHUP)
        await until_said("settings_unchanged")  # which is said to whoever asks
        proxy.configure({"tiers.fast.model": "standard"})
        proxy.process.send_signal(signal.SIGHUP)
        await until_said("settings_changed")
        await client.post(CHAT, json=body())
        assert upstream.calls[-1].json()["model"] == "standard"
        proxy.configure({"tiers.fast.modle": "x"})
        proxy.process.send_signal(signal.SIGHUP)
        await until_said("settings_refused")
        await client.post(CHAT, json=body())
        assert upstream.calls[-1].json()["model"] == "standard"
        assert await proxy.end(signal.SIGTERM) == 0
