"""What can't be reached, and what the process tells of itself: in events, the report and status."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlx_stack_proxy import main
from mlx_stack_proxy.engine import reachability
from mlx_stack_proxy.server import lifetime
from tests.server.asking import CHAT, ask, body
from tests.server.conftest import StartProxy
from tests.support.ports import free_port
from tests.support.proxy_process import ProxyProcess
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer
from tests.support.waiting import until

Json = dict[str, Any]


async def got(client: httpx.AsyncClient, path: str) -> Json:
    response = await client.get(path)
    found: Json = response.json()
    return found


async def kinds(client: httpx.AsyncClient) -> list[str]:
    return [one["kind"] for one in (await got(client, "/mlx-stack/events"))["events"]]


@pytest.mark.parametrize(("status", "wrong"), [(404, "upstream.base_url"), (500, "the key")])
async def test_an_answer_without_a_list_has_its_cause(
    status: int, wrong: str, proxy: RunningProxy
) -> None:
    proxy.upstream.routes["GET", "/v1/models"] = Reply.json({}, status)
    ready = await got(proxy.client, "/ready")
    assert ready["litellm"].endswith(f"is {wrong} right?")


async def test_litellm_goes_and_comes_back(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachability, "INTERVAL_SECONDS", 0.01)
    assert (await got(proxy.client, "/mlx-stack/status"))["litellm"] == "ok"
    await proxy.upstream.stop()
    for _ in range(2):
        assert (await ask(proxy)).status_code == 503
    status = await got(proxy.client, "/mlx-stack/status")
    assert "refused" in status["litellm"]
    down = (await got(proxy.client, "/mlx-stack/report"))["outages"]
    assert [(one["what"], one["until"]) for one in down] == [("litellm", None)]
    await proxy.upstream.listen()
    await until(lambda: not proxy.services.upstream.reach.why)
    await proxy.services.journal.written()
    of_litellm = [kind for kind in await kinds(proxy.client) if kind.startswith("upstream")]
    assert of_litellm == ["upstream_down", "upstream_up"]
    found = await got(proxy.client, "/mlx-stack/report")
    assert found["process"]["down"] == 1
    assert [one["until"] is None for one in found["outages"]] == [False]
    assert (await got(proxy.client, "/mlx-stack/status"))["litellm"] == "ok"


async def test_the_next_answer_says_that_it_is_back(proxy: RunningProxy) -> None:
    await proxy.upstream.stop()
    assert (await ask(proxy)).status_code == 503
    await proxy.upstream.listen()
    proxy.upstream.will(text_stream())
    assert (await ask(proxy)).status_code == 200
    assert "upstream_up" in await kinds(proxy.client)


async def test_the_event_of_a_failed_request_says_why(proxy: RunningProxy) -> None:
    await proxy.upstream.stop()
    assert (await ask(proxy)).status_code == 503
    events = (await got(proxy.client, "/mlx-stack/events"))["events"]
    [failed] = [event["detail"] for event in events if event["kind"] == "exhausted"]
    assert failed["why"] == "the connection was refused"
    exchange = await got(proxy.client, "/mlx-stack/exchanges/last")
    assert "accepted no connection (the connection was refused" in exchange["why"]
    await proxy.upstream.listen()


async def test_a_tier_whose_server_is_gone(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"tiers.fast.health_url": f"http://127.0.0.1:{free_port()}/health"})
    status = await got(proxy.client, "/mlx-stack/status")
    assert {name: tier["state"] for name, tier in status["tiers"].items()} == {
        "fast": "unreachable",
        "standard": "ok",
    }
    ready = await proxy.client.get("/ready")
    assert (ready.status_code, ready.json()["tiers"]["fast"]["state"]) == (200, "unreachable")


async def test_settings_that_were_refused_or_wait(proxy: RunningProxy) -> None:
    assert (await got(proxy.client, "/ready"))["configuration"] == "ok"
    main.note_reload(proxy.services, "config_refused", {"problems": ["tiers: needs one"]})
    found = (await got(proxy.client, "/mlx-stack/status"))["configuration"]
    assert found == {"refused": ["tiers: needs one"], "restart_due": []}
    for _ in range(2):
        said = {"keys": [], "restart": ["server.port"]}
        main.note_reload(proxy.services, "config_reloaded", said)
    found = (await got(proxy.client, "/ready"))["configuration"]
    assert found == {"refused": [], "restart_due": ["server.port"]}
    assert await kinds(proxy.client) == ["config_refused", "config_reloaded"]
    main.note_reload(proxy.services, "config_reloaded", {"keys": [], "restart": []})
    assert (await got(proxy.client, "/ready"))["configuration"] == "ok"


async def test_a_stranger_is_not_told_which(start_proxy: StartProxy) -> None:
    proxy = await start_proxy({"server.admin_key": "sk-admin"})
    main.note_reload(proxy.services, "config_refused", {"problems": ["tiers: needs one"]})
    assert (await got(proxy.client, "/ready"))["configuration"] == "refused"


async def test_starts_stops_and_kills_are_told(
    upstream: ScriptedServer, start_proxy: StartProxy, tmp_path: Path
) -> None:
    path = str(tmp_path / "state.db")
    upstream.always(lambda _: text_stream())
    state = {"state": {"backend": "sqlite", "path": path}}
    async with ProxyProcess(tmp_path, upstream.url, state) as process, process.client() as client:
        for how in (signal.SIGKILL, signal.SIGTERM):
            await process.start()
            assert (await client.post(CHAT, json=body())).status_code == 200
            await process.end(how)
    looking = (await start_proxy({"state.backend": "sqlite", "state.path": path})).client
    found = await got(looking, "/mlx-stack/report")
    assert found["totals"]["right_at_once"] == found["totals"]["requests"] == 2
    assert found["process"] == {"kills": 1, "starts": 2, "stops": 1}
    assert (await got(looking, "/mlx-stack/status"))["day"]["totals"]["requests"] == 2
    events = (await got(looking, "/mlx-stack/events"))["events"]
    assert [one["kind"] for one in events] == ["started", "started", "stopped"]
    assert [one["detail"].get("killed") for one in events] == [False, True, None]
    assert events[2]["detail"]["signal"] == "SIGTERM"


@pytest.mark.parametrize(
    ("gone", "said", "what"),
    [("litellm", "not_ready", "refused"), ("fast", "tiers_unreachable", '["fast"]')],
)
async def test_what_can_not_be_reached_is_said_at_the_start(
    gone: str, said: str, what: str, start_proxy: StartProxy, capfd: pytest.CaptureFixture[str]
) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    if gone == "litellm":
        proxy = await start_proxy(url=nowhere)
    else:
        proxy = await start_proxy({"tiers.fast.health_url": f"{nowhere}/health"})
    await lifetime.started(proxy.services)
    seen = ""

    def is_said() -> bool:
        nonlocal seen
        seen += capfd.readouterr().err
        return said in seen

    await until(is_said)
    [line] = [line for line in seen.splitlines() if said in line]
    assert what in line and "mlx-stack-proxy check" in line
