"""Where a fault is played, and what each client got of it there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass

import httpx

from tests.faults.catalogue import (
    FAULTS,
    ROLE,
    TEXT,
    Fault,
    good,
    settings,
    tiers_with,
    with_caller,
)
from tests.faults.clients import EVERYONE, Client, Json, Outcome, ask, judged
from tests.faults.litellm import LiteLLM
from tests.faults.spoken import SPOKEN
from tests.support.ports import free_port
from tests.support.replies import litellm_error
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import (
    SILENCE,
    Call,
    Reply,
    ScriptedServer,
    WhenWhole,
)

KEY_VARIABLE = "FAULTS_LITELLM_KEY"
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


def clients_of(fault: Fault, speaking: Collection[str] = SPOKEN) -> list[Client]:
    return [one for one in EVERYONE if fault.fits(one) and one.speaks in speaking]


async def _outcomes(
    proxy: RunningProxy, fault: Fault, speaking: Collection[str] = SPOKEN
) -> list[tuple[Client, Outcome]]:
    """All clients of these dialects at once; each has a session of its own."""
    clients = clients_of(fault, speaking)
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
            calls = with_caller(client, upstream)
            rows.append(Row(fault.name, client, outcome, {t: calls.count(t) for t in TIERS}))
        return rows


@dataclass(frozen=True)
class Front:
    """What clients ask. `key`: LiteLLM's."""

    client: httpx.AsyncClient
    key: str


class Behind:
    """Scripted model servers, one for each tier, behind a real LiteLLM."""

    def __init__(self, litellm: LiteLLM, ports: Mapping[str, int]) -> None:
        self._litellm = litellm
        self.servers = {name: ScriptedServer() for name in ports}
        for name, port in ports.items():
            self.servers[name].port = port

    def litellm_itself(self) -> httpx.AsyncClient:
        """A client of LiteLLM, past the proxy."""
        key = {"Authorization": f"Bearer {self._litellm.key}"}
        return httpx.AsyncClient(base_url=self._litellm.url, headers=key, timeout=60)

    @contextlib.asynccontextmanager
    async def proxy(self, changes: Json, replies: int = WARM_UP) -> AsyncIterator[Front]:
        """What clients ask, once all tiers have given so many good replies."""
        async with contextlib.AsyncExitStack() as stack:
            for server in self.servers.values():
                await stack.enter_async_context(server)
                server.always(WELL)
            front = await stack.enter_async_context(self._front(changes))
            await self._warm_up(front, replies)
            yield front

    @contextlib.asynccontextmanager
    async def _front(self, changes: Json) -> AsyncIterator[Front]:
        """A proxy in front of LiteLLM."""
        os.environ[KEY_VARIABLE] = self._litellm.key
        config = {**changes, "upstream.api_key_env": KEY_VARIABLE}
        async with running_proxy(self._litellm.url, config) as proxy:
            yield Front(proxy.client, self._litellm.key)

    async def _warm_up(self, front: Front, replies: int) -> None:
        off = {"X-MLX-Stack-Escalation": "off"}
        for tier, server in self.servers.items():
            body = {"model": tier, "messages": [{"role": "user", "content": "Hello"}]}
            good = 0
            for _ in range(2 * WARM_UP):  # LiteLLM's very first replies may come too late
                response = await front.client.post("/v1/chat/completions", json=body, headers=off)
                good += response.status_code == 200
                if good == replies:
                    break
            assert good == replies, response.text
            server.calls.clear()

    async def rows(
        self,
        fault: Fault,
        silence: float,
        retries: int,
        speaking: Collection[str] = SPOKEN,
        replies: int = WARM_UP,
    ) -> list[Row]:
        async with self.proxy(settings(silence, retries), replies) as proxy:
            if fault.refused:
                await self.servers["fast"].stop()
            else:
                self.servers["fast"].always(fault.reply)
            rows = []
            # One dialect after the other: a busy LiteLLM passes text on later than faults come.
            found = [await _outcomes(proxy, fault, (speaks,)) for speaks in speaking]
            for client, outcome in itertools.chain(*found):
                arrived = {t: len(with_caller(client, s)) for t, s in self.servers.items()}
                if fault.refused:  # such a call arrives nowhere
                    arrived["fast"] = outcome.attempts - arrived["standard"]
                rows.append(Row(fault.name, client, outcome, arrived))
            return rows

    async def while_stopped(self, silence: float, retries: int) -> list[Row]:
        """LiteLLM itself is stopped."""
        async with self.proxy(settings(silence, retries)) as proxy:
            self._litellm.signal(signal.SIGSTOP)
            try:
                return _told(await _outcomes(proxy, nothing("SIGSTOP")), "SIGSTOP")
            finally:
                self._litellm.signal(signal.SIGCONT)

    async def while_killed(self, silence: float, retries: int) -> list[Row]:
        """LiteLLM itself is killed while the replies stream through it. It has to be restarted."""
        async with self.proxy(settings(silence, retries)) as proxy:
            self.servers["fast"].always(Reply.sse(ROLE, TEXT, SILENCE))
            asking = asyncio.create_task(_outcomes(proxy, nothing("kill -9")))
            for _ in EVERYONE:
                await self.servers["fast"].next_call()
            await asyncio.sleep(2)  # for the text to come through
            self._litellm.signal(signal.SIGKILL)
            return _told(await asking, "kill -9 while streaming")

    async def in_cooldown(self, silence: float, retries: int) -> list[Row]:
        """A LiteLLM whose cooldowns are on, after one 404 of the fast tier."""
        async with self.proxy(settings(silence, retries)) as proxy:
            self.servers["fast"].always(litellm_error(404, "no such thing"))
            while len(self.servers["fast"].calls) < 1:
                first = {"model": "fast", "messages": [{"role": "user", "content": "Hello"}]}
                await proxy.client.post("/v1/chat/completions", json=first)
            self.servers["fast"].calls.clear()
            self.servers["standard"].calls.clear()
            name = "429, cooldown, after one 404"
            rows = []
            for client, outcome in await _outcomes(proxy, nothing(name)):
                standard = len(with_caller(client, self.servers["standard"]))
                arrived = {"fast": outcome.attempts - standard, "standard": standard}
                rows.append(Row(name, client, outcome, arrived))
            assert not self.servers["fast"].calls, "LiteLLM answered by itself"
            return rows

    async def with_a_wrong_key(self, silence: float, retries: int) -> list[Row]:
        async with self.proxy(settings(silence, retries)):
            os.environ[KEY_VARIABLE] = "sk-not-the-one"
            config = {**settings(silence, retries), "upstream.api_key_env": KEY_VARIABLE}
            async with running_proxy(self._litellm.url, config) as proxy:
                return _told(await _outcomes(proxy, nothing("wrong key")), "our key is wrong")


class Inside(Behind):
    """The same with the reliability layer in LiteLLM's process; its settings stand in its file."""

    @contextlib.asynccontextmanager
    async def _front(self, changes: Json) -> AsyncIterator[Front]:
        headers = {"Authorization": f"Bearer {self._litellm.key}"}
        async with httpx.AsyncClient(
            base_url=self._litellm.url, headers=headers, trust_env=False, timeout=20
        ) as client:
            for one in EVERYONE:  # a proxy of its own begins with no sessions
                await client.delete(f"/mlx-stack/sessions/{one.session}")
            yield Front(client, self._litellm.key)


def nothing(name: str) -> Fault:
    """A fault that no server of ours plays."""
    return Fault(name, Reply(), "", 0)


def _told(outcomes: list[tuple[Client, Outcome]], name: str) -> list[Row]:
    """Rows where the calls can be counted only by what the client is told of them."""
    rows = []
    for client, outcome in outcomes:
        told = [one["tier"] for one in (outcome.error or {}).get("attempts", ())]
        rows.append(Row(name, client, outcome, {t: told.count(t) for t in TIERS}))
    return rows


def _well(call: Call) -> Reply:
    return good(bool(call.json().get("tools")))


WELL = WhenWhole(_well)


async def at_no_upstream(silence: float, retries: int) -> list[Row]:
    """LiteLLM isn't there at all."""
    url = f"http://127.0.0.1:{free_port()}"
    async with running_proxy(url, settings(silence, retries)) as proxy:
        outcomes = [(client, await ask(proxy.client, client)) for client in EVERYONE]
    return [Row("refused", c, one, {"fast": one.attempts}) for c, one in outcomes]


async def cost_of_a_dead_first_tier(requests: int = 300) -> tuple[float, float]:
    """Median seconds of a request while the first tier lives, and once it is degraded."""
    changes = settings(5, 0)
    changes["reliability.escalation"]["degrade"] = {"failures": 5, "cooldown_seconds": 600}
    changes["reliability.escalation"]["sticky_seconds"] = 0
    dead = next(fault for fault in FAULTS if fault.name == "500")
    async with ScriptedServer() as upstream, running_proxy(upstream.url, changes) as proxy:
        medians = []
        for fault in (None, dead):
            upstream.always(tiers_with(fault))
            seconds = []
            for number in range(requests):
                body = {"model": "fast", "messages": [{"role": "user", "content": f"{number}?"}]}
                begun = time.perf_counter()
                response = await proxy.client.post("/v1/chat/completions", json=body)
                seconds.append(time.perf_counter() - begun)
                assert response.status_code == 200
            medians.append(statistics.median(seconds[50:]))  # the first ones open the breaker
        assert response.headers["x-mlx-stack-escalation-reason"] == "tier_degraded"
        return medians[0], medians[1]
