"""Where a fault is played, and what each client got of it there."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from tests.faults.catalogue import Fault, asked_by, good, settings, tiers_with
from tests.faults.clients import CLIENTS, Client, Json, Outcome, ask, judged
from tests.faults.litellm import LiteLLM
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole, closed_port

KEY_VARIABLE = "MLX_STACK_FAULTS_KEY"
# So many good replies come before: what tells a dead server's made-up end is known by then.
WARM_UP = 12
TIERS = ("fast", "standard")


@dataclass(frozen=True)
class Row:
    """One cell of the table. `arrived`: calls that each tier's server saw for it."""

    fault: str
    client: Client
    outcome: Outcome
    arrived: Mapping[str, int]

    @property
    def verdict(self) -> str:
        """`good`, `error`, or what is wrong."""
        found = judged(self.outcome, self.client)
        calls = sum(self.arrived.values())
        if not found.startswith("wrong") and calls != self.outcome.attempts:
            return f"wrong: {self.outcome.attempts} attempts, {calls} calls"
        return found

    @property
    def right(self) -> bool:
        return not self.verdict.startswith("wrong")


def clients_of(fault: Fault) -> list[Client]:
    return [client for client in CLIENTS if fault.fits(client)]


async def _outcomes(proxy: RunningProxy, fault: Fault) -> list[tuple[Client, Outcome]]:
    """All clients at once; each has a session of its own."""
    clients = clients_of(fault)
    found = await asyncio.gather(*(ask(proxy.client, one, fault.after) for one in clients))
    return list(zip(clients, found, strict=True))


async def at_scripted_upstream(fault: Fault, silence: float, retries: int) -> list[Row]:
    """The scripted server stands where LiteLLM does."""
    async with ScriptedServer() as upstream:
        upstream.always(tiers_with(fault))
        async with running_proxy(upstream.url, settings(silence, retries)) as proxy:
            outcomes = await _outcomes(proxy, fault)
        rows = []
        for client, outcome in outcomes:
            calls = asked_by(client, upstream)
            rows.append(Row(fault.name, client, outcome, {t: calls.count(t) for t in TIERS}))
        return rows


class Behind:
    """Scripted model servers, one for each tier, behind a real LiteLLM."""

    def __init__(self, litellm: LiteLLM, ports: Mapping[str, int]) -> None:
        self._litellm = litellm
        self.servers = {name: ScriptedServer() for name in ports}
        for name, port in ports.items():
            self.servers[name].port = port

    @contextlib.asynccontextmanager
    async def proxy(self, changes: Json) -> AsyncIterator[RunningProxy]:
        """A proxy in front of it, once all tiers have given some good replies."""
        os.environ[KEY_VARIABLE] = self._litellm.key
        config = {**changes, "upstream.api_key_env": KEY_VARIABLE}
        async with contextlib.AsyncExitStack() as stack:
            for server in self.servers.values():
                await stack.enter_async_context(server)
                server.always(WELL)
            proxy = await stack.enter_async_context(running_proxy(self._litellm.url, config))
            await self._warm_up(proxy)
            yield proxy

    async def _warm_up(self, proxy: RunningProxy) -> None:
        for tier, server in self.servers.items():
            for _ in range(WARM_UP):
                body = {"model": tier, "messages": [{"role": "user", "content": "Hello"}]}
                response = await proxy.client.post("/v1/chat/completions", json=body)
                assert response.headers["x-mlx-stack-tier"] == tier, response.text
            server.calls.clear()

    async def rows(self, fault: Fault, silence: float, retries: int) -> list[Row]:
        async with self.proxy(settings(silence, retries)) as proxy:
            if fault.refused:
                await self.servers["fast"].stop()
            else:
                self.servers["fast"].always(fault.reply)
            rows = []
            for client, outcome in await _outcomes(proxy, fault):
                arrived = {t: len(asked_by(client, s)) for t, s in self.servers.items()}
                if fault.refused:  # such a call arrives nowhere
                    arrived["fast"] = outcome.attempts - arrived["standard"]
                rows.append(Row(fault.name, client, outcome, arrived))
            return rows


def _well(call: Call) -> Reply:
    return good(bool(call.json().get("tools")))


WELL = WhenWhole(_well)


async def at_no_upstream(silence: float, retries: int) -> list[Row]:
    """LiteLLM isn't there at all."""
    url = f"http://127.0.0.1:{closed_port()}"
    async with running_proxy(url, settings(silence, retries)) as proxy:
        outcomes = [(client, await ask(proxy.client, client)) for client in CLIENTS]
    return [Row("refused", c, one, {"fast": one.attempts}) for c, one in outcomes]
