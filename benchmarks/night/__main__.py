"""A night in some minutes: is what the report says of it true?

    python -m benchmarks.night            # about five minutes; ten at most

Real LiteLLM before the demo tiers, the proxy with its SQLite file, three agents. Meanwhile a
model's server and LiteLLM are killed and come back, the settings change and once can't be used, and
the proxy is killed with -9. Then the report is compared with what the agents saw, number by number.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from benchmarks import servers
from benchmarks.agents.stack import Backend, demo_backend, kill_child
from mlx_stack_proxy.operator.local_stack import configs
from mlx_stack_proxy.operator.remote.report import screen

from . import account, compare
from .agents import Agent, all_agents

MOST_SECONDS = 600.0
AWAY_SECONDS = 90.0  # what may take so long to come back, on a busy machine


class Proxy(servers.Proxy):
    """``did``: what was done to it, by the report's names."""

    def __init__(self, folder: Path, backend: Backend) -> None:
        self.did: Counter[str] = Counter()
        tiers = {
            name: {"model": name, "health_url": tier.health_url, "first_token_timeout": 20}
            for name, tier in backend.tiers.items()
        }
        config: dict[str, Any] = {
            "server": {"api_keys": ["*"]},
            "upstream": {"base_url": backend.url, "api_key_env": configs.KEY_VARIABLE},
            "tiers": tiers,
            "reliability": {
                "escalation": {"chain": list(tiers)},
                "memory_pressure": {"enabled": False},
                "token_budget": {"downgrade_tier": next(iter(tiers))},
            },
            "state": {"backend": "sqlite", "path": str(folder / "night.db")},
        }
        super().__init__(config, folder, **{configs.KEY_VARIABLE: backend.key})

    def change(self, **settings: Any) -> None:
        """Of ``tiers={}`` none can be used."""
        self.write({**self.config, **settings})

    def start(self) -> None:
        self.did["starts"] += 1
        super().start()

    async def counted(self, name: str) -> None:
        """Until the report has one more of that."""
        self.did[name] += 1
        async with asyncio.timeout(AWAY_SECONDS):
            while (await self.report())["process"].get(name, 0) < self.did[name]:  # noqa: ASYNC110
                await asyncio.sleep(0.5)

    async def report(self) -> Any:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False, timeout=10) as client:
            answer = await client.get("/mlx-stack/report", params={"since": "1h"})
            answer.raise_for_status()
            return answer.json()


async def gone_and_back(url: str) -> float:
    """For how many seconds nothing answers there, once it has gone."""
    gone = 0.0
    async with (
        asyncio.timeout(AWAY_SECONDS),
        httpx.AsyncClient(trust_env=False, timeout=5) as client,
    ):
        while True:
            try:
                await client.get(url)
                if gone:
                    return time.time() - gone
            except httpx.TransportError:
                gone = gone or time.time()
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def working(agents: list[Agent]) -> AsyncIterator[None]:
    """While the agents work; what they have asked for is waited for at the end."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for agent in agents:
            group.create_task(agent.work(stop))
        try:
            yield
        finally:
            stop.set()


async def night(proxy: Proxy, backend: Backend, agents: list[Agent], phase: float) -> float:
    """What happens, one after the other; for how many seconds LiteLLM was away."""
    async with working(agents):
        await _wait(phase, "quiet")
        weak = next(iter(backend.tiers))
        backend.kill(weak)
        await _wait(phase, f"the server of {weak} was killed")
        kill_child(int(backend.url.rpartition(":")[2]))
        away = await gone_and_back(f"{backend.url}/health/liveliness")
        proxy.did["down"] += 1
        await _wait(phase, f"LiteLLM was killed, and away for {away:.0f} s")
        proxy.change(observability={"log_level": "warning"})
        await proxy.counted("reloads")
        proxy.change(tiers={})
        await proxy.counted("refused_reloads")
        proxy.change(observability={"log_level": "warning"})
        await _wait(phase, "new settings, and some that can't be used")
        await asyncio.to_thread(proxy.end, signal.SIGKILL)
        proxy.did["kills"] += 1
        await asyncio.to_thread(proxy.start)
        await _wait(phase, "the proxy was killed with -9")
    return away


async def _wait(seconds: float, what: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {what}", flush=True)
    await asyncio.sleep(seconds)


async def _run(phase: float, folder: Path) -> int:
    async with asyncio.timeout(MOST_SECONDS), demo_backend(folder / "stack") as backend:
        proxy = Proxy(folder, backend)
        await asyncio.to_thread(proxy.start)
        try:
            agents = all_agents(proxy.url)
            away = await night(proxy, backend, agents, phase)
            report = await proxy.report()
        finally:
            await asyncio.to_thread(proxy.end, signal.SIGTERM)
    print()
    for line in screen(report):
        print(line)
    print(f"\n{'':<44} {'agents saw':>10} {'report':>10}")
    seen = {agent.name: account.counts(agent.seen) for agent in agents}
    rows = list(compare.rows(report, seen, proxy.did, away))
    for row in rows:
        print(row)
    wrong = [row for row in rows if not row.holds]
    lost = sum(agent.lost for agent in agents)
    print(f"\n{len(rows) - len(wrong)} of {len(rows)} figures agree; {lost} connections broke off")
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--phase", type=float, default=30.0, help="seconds; there are six")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="for the logs and the database")
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = args.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        servers.stop_with_us()
        return asyncio.run(_run(args.phase, folder))


if __name__ == "__main__":
    sys.exit(main())
