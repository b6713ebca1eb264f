"""One run: rounds of load, each followed by a rest in which the figures are taken."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

import httpx

from benchmarks.soak import account
from benchmarks.soak.clients import EXPECTED, SCENARIOS, Scenario, World, newcomers
from benchmarks.soak.flat import WARM_UP
from benchmarks.soak.process import Proxy, metric
from benchmarks.upstream import Upstream
from tests.support.redis_server import RedisServer

REST_SECONDS = 20.0  # at most, until nothing runs any more
END_SECONDS = 90.0  # at most, until the last client of a round has what it asked for
OUTAGE_SECONDS = 2.0
LEAST_ROUNDS = 13
# Sessions and schemas that fill what is bounded by their number: 300 sessions here and 1,000 counts
# beside them, 512 histories, 1,024 schemas.
FULL = 1_500
AT_ONCE = 6
POLL_SECONDS = 0.5
UNDER_LOAD = "memory under load (MB)"


class Soak:
    """``round_seconds``: of load, before each rest.

    ``store``: a Redis that is demoted to a replica now and then, so that it takes no writes.
    ``figures``: samples by name. ``ended``, ``longest``: how requests ended, and the seconds that
    one took, by scenario. ``rows``: what the agents saw beside what the proxy's report says.
    """

    def __init__(
        self,
        upstream: Upstream,
        proxy: Proxy,
        round_seconds: float,
        *,
        seed: int,
        store: RedisServer | None = None,
        scenarios: Sequence[Scenario] = SCENARIOS,
    ) -> None:
        self._upstream = upstream
        self._proxy = proxy
        self._round_seconds = round_seconds
        self._store = store
        self._scenarios = scenarios
        self._world = World(proxy.port, seed)
        self._loaded, self._quiet = asyncio.Event(), asyncio.Event()
        self._active = 0
        self._settings = itertools.cycle(changes(proxy.config))
        self.figures: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        self.ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.longest: defaultdict[str, float] = defaultdict(float)
        self.wrong: list[str] = []
        self.rows: list[tuple[str, int, int]] = []
        self.reloads = self.outages = self.demotions = 0
        self.cpu_seconds = 0.0
        self.counted = ""  # the proxy's metrics at the end

    async def run(self, seconds: float) -> None:
        """Rounds until so many seconds have passed, and enough for a judgement."""
        self._begun = time.monotonic()
        cpu = self._proxy.server.cpu_seconds()
        clients = [
            asyncio.create_task(self._client(scenario))
            for scenario in self._scenarios
            for _ in range(scenario.clients)
        ]
        try:
            await self._fill(seconds * WARM_UP / 2)
            for number in itertools.count():
                await self._round(number)
                if self._proxy.ended or (self._now() >= seconds and number >= LEAST_ROUNDS - 1):
                    break
        finally:
            for client in clients:
                client.cancel()
            await asyncio.gather(*clients, return_exceptions=True)
            await self._world.http.aclose()
        if self._proxy.ended:
            self.wrong.append(f"the proxy ended by itself: {self._proxy.server.said()}")
            return
        self.cpu_seconds = self._proxy.server.cpu_seconds() - cpu
        report = json.loads(await self._told("/mlx-stack/report?since=24h"))
        for agent, seen in self._world.seen.items():
            self.rows += account.compared(report, agent, seen)

    async def _fill(self, seconds: float) -> None:
        """Have all caches full, as they are after days, or as full as they get in this time."""
        names = iter(range(FULL))
        end = time.monotonic() + seconds

        async def fill() -> None:
            while time.monotonic() < end and next(names, None) is not None:
                self._note("newcomers", await newcomers(self._world), 0.0)

        await asyncio.gather(*(fill() for _ in range(AT_ONCE)))

    def _now(self) -> float:
        return time.monotonic() - self._begun

    def _note(self, scenario: str, word: str, seconds: float) -> None:
        self.longest[scenario] = max(seconds, self.longest[scenario])
        if word not in EXPECTED:
            self.wrong.append(f"{scenario}: {word}")
            word = "wrong"
        self.ended[scenario][word] += 1

    async def _client(self, scenario: Scenario) -> None:
        while True:
            await self._loaded.wait()
            self._active += 1
            begun = time.monotonic()
            try:
                word = await scenario.once(self._world)
            except (httpx.HTTPError, OSError, ValueError, AssertionError) as error:
                word = f"wrong: {type(error).__name__}: {error}"
            finally:
                self._active -= 1
                if not self._active:
                    self._quiet.set()
            self._note(scenario.name, word, time.monotonic() - begun)
            await asyncio.sleep(self._world.chance.uniform(0, 2 * scenario.pause))

    async def _round(self, number: int) -> None:
        self._loaded.set()
        trouble = asyncio.create_task(self._trouble(number))
        memory = []
        end = time.monotonic() + self._round_seconds
        while time.monotonic() < end and not self._proxy.ended:
            await asyncio.sleep(min(1.0, self._round_seconds / 4))
            memory.append(self._proxy.rss())
        self._loaded.clear()
        await trouble
        if self._proxy.ended:
            return
        await self._rest()
        told = self.counted = await self._told()
        at, taken = self._now(), {**self._proxy.taken(told), UNDER_LOAD: median(memory)}
        for name, value in taken.items():
            self.figures[name].append((at, value))
        if faults := metric(told, "mlx_stack_stage_faults_total"):
            self.wrong.append(f"{faults:g} faults in stages")
        count = sum(ended.total() for ended in self.ended.values())
        now = ", ".join(f"{name} {value:,.1f}" for name, value in taken.items())
        print(f"{at / 60:5.1f} min  {count:,} requests; at rest: {now}")

    async def _rest(self) -> None:
        """Until nothing runs any more, and nobody is connected."""
        self._quiet.clear()
        if self._active:
            try:
                async with asyncio.timeout(END_SECONDS):
                    await self._quiet.wait()
            except TimeoutError:
                self.wrong.append(f"{self._active} clients got no end")
        await self._world.http.aclose()
        self._world.open()
        self._upstream.drop_idle()
        before = -1.0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_SECONDS):
                while True:
                    told = await self._told()
                    tasks = metric(told, "mlx_stack_tasks")
                    if tasks == before and not metric(told, "mlx_stack_in_flight"):
                        return
                    before = tasks
                    await asyncio.sleep(min(POLL_SECONDS, self._round_seconds / 4))

    async def _told(self, path: str = "/metrics") -> str:
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=30) as client:
            headers = self._world.headers()
            found = await client.get(self._proxy.url + path, headers=headers)
            return found.raise_for_status().text

    async def _trouble(self, number: int) -> None:
        """Other settings in every second round; in every third, no upstream for a while.

        In every fourth the Redis is a replica for as long.
        """
        away = min(OUTAGE_SECONDS, self._round_seconds / 4)
        await asyncio.sleep(self._round_seconds / 3)
        if number % 2:
            self._proxy.write(next(self._settings))
            self._proxy.server.process.send_signal(signal.SIGHUP)
            self.reloads += 1
        if number % 3 == 1:
            await self._upstream.stop()
            await asyncio.sleep(away)
            await self._upstream.listen()
            self.outages += 1
        if self._store is not None and number % 4 == 2:
            self._store.ask("REPLICAOF", "127.0.0.1", "1")
            await asyncio.sleep(away)
            self._store.ask("REPLICAOF", "NO", "ONE")
            self.demotions += 1


def changes(config: dict[str, Any]) -> list[dict[str, Any] | str]:
    """What is put into the file, in turn: other limits, another tier, nonsense, as it was."""
    more, other = copy.deepcopy(config), copy.deepcopy(config)
    more["tiers"]["spare"] = {"model": "standard"}
    more["tiers"]["fast"]["max_concurrency"] = 12
    more["observability"]["log_level"] = "info"
    other["reliability"]["loop_detection"]["duplicate_threshold"] = 4
    other["reliability"]["token_budget"]["warn_at"] = 0.5
    return [more, "tiers: {fast: {modell: fast}}\n", other, config]
