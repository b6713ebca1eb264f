"""A webhook is told: once, soon, again if it fails, and nothing that is a secret."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mlx_stack_proxy.server import notifications
from mlx_stack_proxy.server.notifications import Notifier, next_at, words
from mlx_stack_proxy.settings import NotifySettings
from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.support.clock import Clock
from tests.support.redis_server import RedisServer
from tests.support.replies import litellm_error
from tests.support.scripted_server import Reply, ScriptedServer
from tests.support.waiting import settled, until

Json = dict[str, Any]
SECRET = "/hook/T0-secret?key=sk-hidden"
EVENT = {
    "kind": "exhausted",
    "agent": "claude-cli",
    "request_id": "req_1",
    "detail": {"type": "all_tiers_failed"},
}
DOWN = {"kind": "upstream_down", "detail": {"why": "refused"}}


@pytest.fixture
async def webhook() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer() as server:
        server.always(lambda _: Reply.json({"ok": True}))
        yield server


def asking(webhook: ScriptedServer, **more: Any) -> Json:
    return {"observability.notify": {"url": webhook.url + SECRET, **more}}


async def test_a_failed_request_is_told(start_proxy: StartProxy, webhook: ScriptedServer) -> None:
    proxy = await start_proxy(asking(webhook))
    proxy.upstream.will(litellm_error(500, "no"))
    failed = await ask(proxy, {"X-MLX-Stack-Agent": "night"})
    call = await webhook.next_call()
    assert (call.method, call.target) == ("POST", SECRET)
    said = call.json()
    request = failed.headers["x-mlx-stack-request-id"]
    assert said["kind"] == "exhausted"
    assert said["text"].startswith("night: all_tiers_failed after 1 attempt: mlx-stack-proxy")
    assert said["text"].endswith(request)
    # ntfy takes its title and text from the body by these.
    assert [call.header(name) for name in ("x-template", "x-title", "x-message")] == [
        "yes",
        "{{.title}}",
        "{{.text}}",
    ]


@pytest.fixture
async def notifier(
    webhook: ScriptedServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Notifier]:
    monkeypatch.setattr(notifications, "RETRY_SECONDS", 0.0)
    settings = NotifySettings(url=webhook.url + SECRET, on=("exhausted", "upstream_down"))
    one = Notifier(settings, webhook.url + SECRET, clock)
    yield one
    await one.close()


async def test_what_follows_is_counted_and_told_in_one(
    notifier: Notifier, webhook: ScriptedServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    let = asyncio.Event()
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        if seconds > 1:
            await let.wait()
        else:
            await real(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    for _ in range(41):
        notifier.on_event(EVENT)
    notifier.on_event(DOWN)
    notifier.on_event({**DOWN, "kind": "budget_exceeded"})  # which is not asked for
    assert {(await webhook.next_call()).json()["kind"] for _ in range(2)} == {
        "exhausted",
        "upstream_down",
    }
    clock.now += notifications.QUIET_SECONDS
    let.set()
    assert (await webhook.next_call()).json()["text"].startswith("40 more in 5 minutes")
    await settled()
    assert len(webhook.calls) == 3


async def test_it_is_tried_once_more(
    notifier: Notifier, webhook: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    webhook.will(litellm_error(503, "later"))
    notifier.on_event(EVENT)
    for _ in range(2):
        await webhook.next_call()
    webhook.will(*[litellm_error(500, "never")] * 2)
    notifier.on_event(DOWN)
    said = ""

    def complained() -> bool:
        nonlocal said
        said += capsys.readouterr().err
        return "notify_failed" in said

    await until(complained)
    assert len(webhook.calls) == 4
    assert "status 500" in said and "secret" not in said and "sk-hidden" not in said


async def test_of_two_proxies_on_one_store_one_sends_the_report(
    redis: RedisServer,
    start_proxy: StartProxy,
    webhook: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mornings: list[float] = []

    def at(now: float, report_at: str) -> float:
        mornings.append(now)
        return now if len(mornings) <= 2 else now + 1e6

    monkeypatch.setattr(notifications, "next_at", at)
    shared = {"state.backend": "redis", "state.redis_url": redis.url}
    for _ in range(2):
        await start_proxy({**asking(webhook, on=["report"]), **shared})
    await until(lambda: len(mornings) == 4)  # two tries to send it are through
    assert len(webhook.calls) == 1
    said = webhook.calls[0].json()
    assert (said["kind"], said["text"]) == ("report", "There were no requests.")


def test_the_next_morning() -> None:
    def at(day: int, hour: int, minute: int = 0) -> float:
        return time.mktime((2026, 11, day, hour, minute, 0, 0, 0, -1))

    assert next_at(at(26, 7, 59), "08:00") == at(26, 8)
    assert next_at(at(26, 8), "08:00") == at(27, 8)
    assert next_at(at(30, 9), "08:00") == time.mktime((2026, 12, 1, 8, 0, 0, 0, 0, -1))


def test_words_of_a_budget() -> None:
    detail = {"scope": "session", "limit": 500_000}
    whose = {"agent": "claude-cli", "request_id": "req_1"}
    _, said = words({"kind": "budget_exceeded", "detail": detail, **whose})
    used_up = "claude-cli: the token budget (session, 500,000 tokens) is used up"
    assert said == f"{used_up}: mlx-stack-proxy events --request req_1"
