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
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from random import Random

import openai

from benchmarks import machine, pages, servers
from benchmarks.records import Json, Results
from mlx_stack_proxy.operator.local_stack.supervisor import StartFailed

from . import agent, report, tasks
from .relay import Faults, Relay, killing
from .report import COLUMNS, GROUPS, Part, keys
from .stack import Backend, demo_backend, proxy


async def run(args: argparse.Namespace, of: Mapping[Part, Json], results: Results) -> None:
    """Do what is missing. ``of``: the key of each part's results."""
    missing = {part: results.missing(key, args.tasks) for part, key in of.items()}
    if any(missing.values()):
        async with backend(args) as there:
            for part, numbers in missing.items():
                if numbers:
                    add = partial(results.add, of[part])
                    await play(args, there, part, numbers, add)


@contextlib.asynccontextmanager
async def backend(args: argparse.Namespace) -> AsyncIterator[Backend]:
    if args.base_url:
        key = os.environ.get("LITELLM_MASTER_KEY", "local")
        yield Backend(args.base_url.rstrip("/").removesuffix("/v1"), key)
    else:
        async with demo_backend(args.folder / f"stack-{os.getpid()}") as started:
            yield started


async def play(
    args: argparse.Namespace,
    there: Backend,
    part: Part,
    numbers: Sequence[int],
    add: Callable[[int, Json], None],
) -> None:
    """Do these tasks of a part. ``add``: takes each one's number and result."""
    column, models = COLUMNS[part.column], {"fast": args.fast, "standard": args.standard}
    async with contextlib.AsyncExitStack() as around:
        faults = Faults(seed=part.seed) if part.faults else None
        relay = await around.enter_async_context(Relay(there.url, faults))
        url, model = relay.url, models[column.first]
        if column.proxied:
            folder, model = args.folder / f"proxy-{os.getpid()}", column.first
            started = proxy(there, relay.url, models, folder, faults=part.faults)
            url = await around.enter_async_context(started)
        patience = agent.SHORT_TIMEOUT_SECONDS if part.faults else agent.TIMEOUT_SECONDS
        client = await around.enter_async_context(
            openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=there.key, timeout=patience)
        )
        kill = partial(there.kill, models["fast"])
        kills = part.faults and column.first == "fast"
        every, right = tasks.made(part.seed, args.tasks), 0
        for place, number in enumerate(numbers, 1):
            relay.begin(number)
            seed = Random(f"{part.seed}:{number}").randrange(2**31)
            async with killing(relay, number if kills else 0, kill) as killed:
                done = await agent.run(client, model, every[number], seed)
                await relay.settled()
            row = {"calls": len(every[number].calls), **done}
            row["attempts"] = [vars(one) for one in relay.attempts]
            add(number, {**row, "killed": True} if killed else row)
            right += done["right"]
            if place % 10 == 0 or place == len(numbers):
                print(f"{part.name}: {place} of {len(numbers)}, {right} right", flush=True)


def main() -> int:
    parser = machine.options("benchmarks.agents", __doc__, write=True, results="bench-agents")
    parser.add_argument("--base-url", help="your own LiteLLM (default: the demo tiers, started)")
    parser.add_argument("--fast", default="fast", help="its name of the weak model")
    parser.add_argument("--standard", default="standard", help="its name of the strong model")
    parser.add_argument("-n", "--tasks", type=int, default=200)
    parser.add_argument("--groups", help=f"some of {','.join(GROUPS)} (default: all)")
    parser.add_argument("--columns", help=f"some of {','.join(COLUMNS)} (default: all)")
    parser.add_argument("--fresh", action="store_true", help="forget the results that are there")
    args = parser.parse_args()
    args.folder = args.folder.resolve()
    if args.fresh:
        (args.folder / "results.jsonl").unlink(missing_ok=True)
    columns = args.columns.split(",") if args.columns else COLUMNS
    groups = args.groups.split(",") if args.groups else GROUPS
    key = keys([args.base_url or "demo", args.fast, args.standard])
    parts = [part for group in groups for part in GROUPS[group] if part.column in columns]
    of, results = {part: key(part) for part in parts}, Results(args.folder / "results.jsonl")
    try:
        if not args.report and not servers.until_interrupted(run(args, of, results)):
            return 130
    except StartFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    done = {part: results.first(one, args.tasks) for part, one in of.items()}
    pages.publish("benchmarks.agents", {report.MARKER: report.whole(done)}, args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
