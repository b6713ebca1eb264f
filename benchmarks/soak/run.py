"""One run: rounds of load, each followed by a rest in which the figures are taken."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import json
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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


@dataclass
class Found:
    """``figures``: samples by name; ``ended``: how requests ended, by scenario.

    ``rows``: what the agents saw beside what the proxy's report says of them.
    """

    figures: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    ended: dict[str, Counter[str]] = field(default_factory=dict)
    longest: dict[str, float] = field(default_factory=dict)  # seconds, by scenario
    wrong: list[str] = field(default_factory=list)
    reloads: int = 0
    outages: int = 0
    demotions: int = 0
    rows: list[account.Row] = field(default_factory=list)
    cpu_seconds: float = 0.0
    counted: str = ""  # the proxy's metrics at the end

    def add(self, name: str, at: float, value: float) -> None:
        self.figures.setdefault(name, []).append((at, value))

    def note(self, scenario: str, word: str, seconds: float) -> None:
        self.longest[scenario] = max(seconds, self.longest.get(scenario, 0.0))
        if word not in EXPECTED:
            self.wrong.append(f"{scenario}: {word}")
            word = "wrong"
        self.ended.setdefault(scenario, Counter())[word] += 1


class Soak:
    """``round_seconds``: of load, before each rest. ``say``: takes a line for each round.

    ``store``: a Redis that is demoted to a replica now and then, so that it takes no writes.
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
        say: Callable[[str], None] = print,
    ) -> None:
        self._upstream = upstream
        self._proxy = proxy
        self._round_seconds = round_seconds
        self._store = store
        self._scenarios = scenarios
        self._say = say
        self._world = World(proxy.port, seed)
        self._loaded = asyncio.Event()
        self._active = 0
        self._quiet = asyncio.Event()
        self._settings = itertools.cycle(changes(proxy.config))
        self.found = Found()

    async def run(self, seconds: float) -> Found:
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
            await self._world.close()
        if self._proxy.ended:
            self.found.wrong.append(f"the proxy ended by itself: {self._proxy.server.said()}")
        else:
            self.found.cpu_seconds = self._proxy.server.cpu_seconds() - cpu
            report = json.loads(await self._told("/mlx-stack/report?since=24h"))
            for agent, seen in self._world.seen.items():
                self.found.rows += account.compared(report, agent, seen)
        return self.found

    async def _fill(self, seconds: float) -> None:
        """Have all caches full, as they are after days, or as full as they get in this time."""
        names = iter(range(FULL))
        end = time.monotonic() + seconds

        async def fill() -> None:
            while time.monotonic() < end and next(names, None) is not None:
                self.found.note("newcomers", await newcomers(self._world), 0.0)

        await asyncio.gather(*(fill() for _ in range(AT_ONCE)))

    def _now(self) -> float:
        return time.monotonic() - self._begun

    async def _client(self, scenario: Scenario) -> None:
        chance = self._world.chance
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
            self.found.note(scenario.name, word, time.monotonic() - begun)
            await asyncio.sleep(chance.uniform(0, 2 * scenario.pause))

    async def _round(self, number: int) -> None:
        self._loaded.set()
        beside = [asyncio.create_task(self._trouble(number))]
        memory = []
        end = time.monotonic() + self._round_seconds
        while time.monotonic() < end and not self._proxy.ended:
            await asyncio.sleep(min(1.0, self._round_seconds / 4))
            memory.append(self._proxy.rss())
        self._loaded.clear()
        await asyncio.gather(*beside)
        if self._proxy.ended:
            return
        await self._rest()
        told = self.found.counted = await self._told()
        at = self._now()
        for name, value in self._proxy.taken(told).items():
            self.found.add(name, at, value)
        self.found.add(UNDER_LOAD, at, median(memory))
        if faults := metric(told, "mlx_stack_stage_faults_total"):
            self.found.wrong.append(f"{faults:g} faults in stages")
        self._tell(at)

    async def _rest(self) -> None:
        """Until nothing runs any more, and nobody is connected."""
        self._quiet.clear()
        if self._active:
            try:
                async with asyncio.timeout(END_SECONDS):
                    await self._quiet.wait()
            except TimeoutError:
                self.found.wrong.append(f"{self._active} clients got no end")
        await self._world.close()
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
            self.found.reloads += 1
        if number % 3 == 1:
            await self._upstream.stop()
            await asyncio.sleep(away)
            await self._upstream.listen()
            self.found.outages += 1
        if self._store is not None and number % 4 == 2:
            self._store.ask("REPLICAOF", "127.0.0.1", "1")
            await asyncio.sleep(away)
            self._store.ask("REPLICAOF", "NO", "ONE")
            self.found.demotions += 1

    def _tell(self, at: float) -> None:
        count = sum(ended.total() for ended in self.found.ended.values())
        now = ", ".join(
            f"{name} {samples[-1][1]:,.1f}" for name, samples in self.found.figures.items()
        )
        self._say(f"{at / 60:5.1f} min  {count:,} requests; at rest: {now}")


Change = dict[str, Any] | str


def changes(config: dict[str, Any]) -> list[Change]:
    """What is put into the file, in turn: other limits, another tier, nonsense, as it was."""
    more, other = copy.deepcopy(config), copy.deepcopy(config)
    more["tiers"]["spare"] = {"model": "standard"}
    more["tiers"]["fast"]["max_concurrency"] = 12
    more["observability"]["log_level"] = "info"
    other["reliability"]["loop_detection"]["duplicate_threshold"] = 4
    other["reliability"]["token_budget"]["warn_at"] = 0.5
    return [more, "tiers: {fast: {modell: fast}}\n", other, config]
