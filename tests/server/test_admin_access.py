"""Who may use /mlx-stack/: this machine alone, or whoever has the key; and what is open to all."""

from __future__ import annotations

import httpx
import pytest

from mlx_stack_proxy.main import build_app, build_services
from mlx_stack_proxy.settings import Settings
from tests.support.running_proxy import proxy_config

PATHS = ("status", "sessions", "sessions/x", "events")
KEY = "sk-admin"
BEARER = {"Authorization": f"Bearer {KEY}"}


def client(
    peer: str, host: str = "127.0.0.1:4100", state: object = None, **server: object
) -> httpx.AsyncClient:
    """Asks a proxy that listens everywhere, from the address `peer`."""
    changes = {f"server.{name}": value for name, value in {"host": "0.0.0.0", **server}.items()}
    changes |= {"state": state} if state else {}
    settings = Settings(**proxy_config("http://127.0.0.1:9", changes))
    app = build_app(build_services(settings))
    transport = httpx.ASGITransport(app, client=(peer, 5))  # type: ignore[arg-type]
    return httpx.AsyncClient(transport=transport, base_url=f"http://{host}")


async def test_without_a_key_this_machine_may() -> None:
    for peer in ("127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"):
        for host in ("127.0.0.1:4100", "localhost:4100", "[::1]:4100"):
            async with client(peer, host) as here:
                assert (await here.get("/mlx-stack/status")).status_code == 200, (peer, host)


@pytest.mark.parametrize(
    "peer", ["192.168.1.5", "10.0.0.1", "::ffff:10.0.0.1", "fe80::1", "::", ""]
)
async def test_without_a_key_nobody_else_may(peer: str) -> None:
    async with client(peer) as elsewhere:
        for path in PATHS:
            response = await elsewhere.get(f"/mlx-stack/{path}")
            assert response.status_code == 403
            assert "server.admin_key" in response.json()["error"]["message"]


FOREIGN: list[dict[str, str]] = [
    {"X-Forwarded-For": "203.0.113.9"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"Forwarded": "for=127.0.0.1"},
    {"X-Real-IP": "127.0.0.1"},
    {"Via": "1.1 nginx"},
    {"X-Forwarded-Proto": "https"},
    {"CF-Connecting-IP": "203.0.113.9"},
    {"Host": "evil.example"},
    {"Host": "127.0.0.1.evil.example"},
    {"Host": "[127.0.0.1].evil.example"},
    {"Host": "evil.example:4100", "Origin": "http://evil.example:4100"},  # DNS rebinding
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://[x"},  # no URL
    {"Origin": "http://[:::1]"},
    {"Sec-Fetch-Site": "cross-site"},
]


async def test_a_web_page_or_a_proxy_of_this_machine_may_not() -> None:
    async with client("127.0.0.1") as here:
        for headers in FOREIGN:
            for method in ("GET", "DELETE"):
                response = await here.request(method, "/mlx-stack/sessions/x", headers=headers)
                assert response.status_code == 403, headers


async def test_a_peers_word_does_not_make_it_this_machine() -> None:
    async with client("192.168.1.5") as elsewhere:
        for name in ("X-Forwarded-For", "X-Real-IP", "Forwarded"):
            response = await elsewhere.get("/mlx-stack/status", headers={name: "127.0.0.1"})
            assert response.status_code == 403


async def test_with_a_key_only_the_key_counts() -> None:
    for peer in ("127.0.0.1", "192.168.1.5"):
        async with client(peer, "box.lan:4100", admin_key=KEY) as anywhere:
            for url in (f"/mlx-stack/{path}" for path in PATHS):
                let_in = await anywhere.get(url, headers=BEARER)
                assert let_in.status_code not in (401, 403)
                for given in ("", "Bearer", "Bearer sk-admi", "Bearer sk-adminn", "Basic sk-admin"):
                    response = await anywhere.get(url, headers={"Authorization": given})
                    assert response.status_code == 401
                assert (await anywhere.get(url, headers={"x-api-key": KEY})).status_code == 401
                assert (await anywhere.get(f"{url}?admin_key={KEY}")).status_code == 401


async def test_a_client_key_is_no_admin_key() -> None:
    async with client("192.168.1.5", admin_key=KEY, api_keys=["sk-client"]) as anywhere:
        headers = {"Authorization": "Bearer sk-client"}
        assert (await anywhere.get("/mlx-stack/status", headers=headers)).status_code == 401
        assert (await anywhere.get("/mlx-stack/status", headers=BEARER)).status_code == 200


async def test_health_and_metrics_are_open_and_say_nothing_private() -> None:
    async with client("192.168.1.5", "box.lan", admin_key=KEY, api_keys=["sk-client"]) as anyone:
        health = await anyone.get("/health")
        assert health.status_code == 200 and set(health.json()) == {"status", "version"}
        metrics = await anyone.get("/metrics")
        assert metrics.status_code == 200
        assert not any(word in metrics.text for word in ("sk-", "127.0.0.1", "/", "@"))


async def test_counts_by_agent_are_for_who_may_ask() -> None:
    def told(response: httpx.Response) -> bool:
        assert response.status_code == 200
        return "mlx_stack_agent_requests_total" in response.text

    async with client("127.0.0.1") as here, client("192.168.1.5") as elsewhere:
        assert told(await here.get("/metrics"))
        assert not told(await elsewhere.get("/metrics"))
    for peer in ("127.0.0.1", "192.168.1.5"):
        async with client(peer, "box.lan", admin_key=KEY) as anyone:
            assert told(await anyone.get("/metrics", headers=BEARER))
            assert not told(await anyone.get("/metrics"))


async def test_where_the_state_lies_is_not_for_all() -> None:
    backend = {"backend": "sqlite", "path": "/home/quokka/state.db"}  # not opened here
    async with client("127.0.0.1", state=backend) as here:
        assert "/home/quokka/state.db" in (await here.get("/ready")).json()["store"]
    async with client("192.168.1.5", "box.lan", admin_key=KEY, state=backend) as anyone:
        stranger, known = await anyone.get("/ready"), await anyone.get("/ready", headers=BEARER)
        assert stranger.json()["store"] == "fails" and "quokka" not in stranger.text
        assert "/home/quokka/state.db" in known.json()["store"]
