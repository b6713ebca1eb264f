"""Does the proxy make a weak model reliable?

    python -m benchmarks.agents        # the demo tiers, started by itself
    python -m benchmarks.agents --base-url http://127.0.0.1:4000 --fast qwen3-4b --standard qwen3-8b

The same agent does the same tasks with the weak model alone, with the strong one alone, and with
the weak one through the proxy, which has the strong one behind it. With --base-url it is your own
LiteLLM, its key in LITELLM_MASTER_KEY, and the proxy is started in front of it. Each result is
written to disk at once: run the same command again and it goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random

import openai

from benchmarks import machine, pages, servers
from benchmarks.records import ROOT, Json, Results
from mlx_stack_proxy.operator.local_stack.supervisor import StartFailed

from . import agent, report, tasks
from .columns import COLUMNS, GROUPS, Part, keys
from .relay import Faults, Relay, killing
from .stack import Backend, demo_backend, proxy


class Benchmark:
    """One run over the parts that were asked for."""

    def __init__(self, args: argparse.Namespace, parts: list[Part]) -> None:
        self._args = args
        self._models = {"fast": args.fast, "standard": args.standard}
        self._results = Results(args.folder / "results.jsonl")
        key = keys([args.base_url or "demo", args.fast, args.standard])
        self._keys = {part: key(part) for part in parts}

    def done(self) -> dict[Part, dict[int, Json]]:
        return {
            part: self._results.first(key, self._args.tasks) for part, key in self._keys.items()
        }

    async def run(self) -> None:
        wanted = [part for part in self._keys if self._missing(part)]
        if not wanted:
            return
        async with self._backend() as backend:
            for part in wanted:
                await self._part(backend, part)

    def _missing(self, part: Part) -> list[int]:
        return self._results.missing(self._keys[part], self._args.tasks)

    @contextlib.asynccontextmanager
    async def _backend(self) -> AsyncIterator[Backend]:
        if self._args.base_url:
            key = os.environ.get("LITELLM_MASTER_KEY", "local")
            yield Backend(self._args.base_url.rstrip("/").removesuffix("/v1"), key)
        else:
            async with demo_backend(self._args.folder / f"stack-{os.getpid()}") as backend:
                yield backend

    async def _part(self, backend: Backend, part: Part) -> None:
        column = COLUMNS[part.column]
        faults = Faults(seed=part.seed) if part.faults else None
        async with contextlib.AsyncExitStack() as around:
            relay = await around.enter_async_context(Relay(backend.url, faults))
            url, model = relay.url, self._models[column.first]
            if column.proxied:
                folder = self._args.folder / f"proxy-{os.getpid()}"
                model = column.first
                started = proxy(backend, relay.url, self._models, folder, faults=part.faults)
                url = await around.enter_async_context(started)
            patience = agent.SHORT_TIMEOUT_SECONDS if part.faults else agent.TIMEOUT_SECONDS
            client = await around.enter_async_context(
                openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=backend.key, timeout=patience)
            )
            kill = partial(backend.kill, self._models["fast"])
            kills = part.faults and column.first == "fast"
            every, right = tasks.made(part.seed, self._args.tasks), 0
            missing = self._missing(part)
            for place, number in enumerate(missing, 1):
                relay.begin(number)
                seed = Random(f"{part.seed}:{number}").randrange(2**31)
                async with killing(relay, number if kills else 0, kill) as killed:
                    done = await agent.run(client, model, every[number], seed)
                    await relay.settled()
                attempts = [vars(one) for one in relay.attempts]
                calls = len(every[number].calls)
                row = {"calls": calls, **asdict(done), "attempts": attempts}
                if killed:
                    row["killed"] = True
                self._results.add(self._keys[part], number, row)
                right += done.right
                if place % 10 == 0 or place == len(missing):
                    print(f"{part.name}: {place} of {len(missing)}, {right} right", flush=True)


def _parts(args: argparse.Namespace) -> list[Part]:
    groups = args.groups.split(",") if args.groups else list(GROUPS)
    found = [part for group in groups for part in GROUPS[group]]
    if args.columns:
        found = [part for part in found if part.column in args.columns.split(",")]
    return found


def main() -> int:
    parser = machine.options("benchmarks.agents", __doc__, write=True)
    parser.add_argument("--base-url", help="your own LiteLLM (default: the demo tiers, started)")
    parser.add_argument("--fast", default="fast", help="its name of the weak model")
    parser.add_argument("--standard", default="standard", help="its name of the strong model")
    parser.add_argument("-n", "--tasks", type=int, default=200)
    parser.add_argument("--groups", help=f"some of {','.join(GROUPS)} (default: all)")
    parser.add_argument("--columns", help=f"some of {','.join(COLUMNS)} (default: all)")
    parser.add_argument("--fresh", action="store_true", help="forget the results that are there")
    parser.add_argument("--report", action="store_true", help="only print what is there")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-agents")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    if args.fresh:
        (args.folder / "results.jsonl").unlink(missing_ok=True)
    benchmark = Benchmark(args, _parts(args))
    try:
        if not args.report and not servers.until_interrupted(benchmark.run()):
            return 130
    except StartFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    command = machine.command("benchmarks.agents", sys.argv[1:])
    pages.publish(command, {report.MARKER: report.whole(benchmark.done())}, args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
