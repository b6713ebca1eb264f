"""Do real agents get on with a model that spoils one reply in four, without the proxy and with it?

    python -m benchmarks.clients                    # three clients, twenty tasks, both ways
    python -m benchmarks.clients -n 3 --only codex
    python -m benchmarks.clients --report --write benchmarks/clients.md

Claude Code, Codex and opencode are installed from npm into `build/clients`. Each does the same
tasks twice, each time in an empty folder: client -> LiteLLM -> model, and client -> proxy ->
LiteLLM -> the same model with the same seed. Each task's result is written to disk at once: run the
same command again and it goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, pages, servers
from benchmarks.clients import judge, report, tasks
from benchmarks.clients.environment import Environment, find_node, installed, say
from benchmarks.clients.model import Model
from benchmarks.clients.report import DIRECT, WAYS, Rows
from benchmarks.clients.spoiled import CHARACTERS
from benchmarks.clients.stack import ScriptedStack
from benchmarks.clients.tasks import TASKS
from benchmarks.clients.toolboxes import CLIENTS
from benchmarks.records import PROXIED, ROOT, Json, Results, fingerprint
from tests.clients.__main__ import let_work

SEED = 7
SECONDS = 180  # for a task, however often its client asks
# The tiers' window, as clients are told it; all else are the defaults.
SETTINGS = {"context_window": 200_000}
# What decides about a result: after a change of it, older ones are of something else.
_OURS = [
    *(f"benchmarks/clients/{name}.py" for name in ("__main__", "judge", "model", "spoiled")),
    *(f"benchmarks/clients/{name}.py" for name in ("scripted", "stack", "tasks", "toolboxes")),
    *(
        "benchmarks/came.py",
        "benchmarks/agents/broken.py",
        "tests/clients/agents.py",
        "tests/clients/mistakes.py",
    ),
    "tests/faults/spoken.py",
    "app/mlx_stack_proxy/operator/local_stack/*.py",
]


class Benchmark:
    """`args`: as the command line has them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._results = Results(args.folder / "results.jsonl")
        self._keys = {(name, way): _key(name, way, args.seed) for name in args.only for way in WAYS}

    async def run(self) -> None:
        wanted = [(name, way) for name in self._args.only for way in WAYS]
        wanted = [one for one in wanted if self._missing(*one)]
        if not wanted:
            return
        with tempfile.TemporaryDirectory(prefix="bench-clients-") as folder:
            say("starting the scripted model servers and LiteLLM")
            async with ScriptedStack(Path(folder) / "stack", SETTINGS) as stack:
                for name, way in wanted:
                    await self._all_tasks(name, way, stack, Path(folder))

    async def _all_tasks(self, name: str, way: str, stack: ScriptedStack, folder: Path) -> None:
        done = 0
        missing = self._missing(name, way)
        for number in missing:
            row = await self._task(name, way, number, stack, folder)
            self._results.add(self._keys[name, way], number, row)
            done += row["done"]
            said = "done" if row["done"] else f"not done, last: {row['last'] or 'a good reply'}"
            say(f"{name}, {way}, {TASKS[number].name}: {said}, {row['seconds']:.0f} s")
            if self._args.show:
                say(row["said"])
        say(f"{name}, {way}: {done} of {len(missing)} done")

    async def _task(
        self, name: str, way: str, number: int, stack: ScriptedStack, folder: Path
    ) -> Json:
        task = TASKS[number]
        client, tools = CLIENTS[name]
        agent = replace(client, asked=task.asked, seconds=SECONDS)
        home = folder / f"{name}-{number:02}"
        model = Model(self._args.seed, number, tools, home, agent.is_task)
        begun = time.monotonic()
        ended, seen = await let_work(
            agent, home, model, stack, _environment(name), direct=way == DIRECT
        )
        seconds = time.monotonic() - begun
        is_done = await tasks.done(task, home)
        await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
        asked = [one for one in seen if one.path == agent.path]
        flaws = Counter(filter(None, map(judge.flaw, asked)))
        tally = model.tally
        return {
            "done": is_done,
            "exit": ended.code,
            "requests": len(asked),
            "calls": tally.calls,
            "prompt_tokens": tally.prompt_tokens,
            "written_tokens": tally.characters // CHARACTERS,
            "spoiled": dict(tally.spoiled),
            "last": tally.last,
            "flaws": dict(flaws),
            "seconds": round(seconds, 1),
            "said": ended.said[-500:],
        }

    def rows(self, name: str, way: str) -> Rows:
        """The results that are there of the tasks that are asked for."""
        return self._results.first(self._keys[name, way], self._args.tasks)

    def _missing(self, name: str, way: str) -> list[int]:
        return self._results.missing(self._keys[name, way], self._args.tasks)


def _key(name: str, way: str, seed: int) -> Json:
    patterns = _OURS if way == DIRECT else [*_OURS, *PROXIED]
    code = fingerprint([_version(name), way], patterns)
    return {"code": code, "client": name, "way": way, "seed": seed}


def _version(name: str) -> str:
    return _environment(name).version(CLIENTS[name][0].package)


def _environment(name: str) -> Environment:
    return installed(CLIENTS[name][0].package)


def main() -> int:
    parser = machine.options("benchmarks.clients", __doc__, write=True)
    parser.add_argument("--only", action="append", choices=CLIENTS, help="this one; repeatable")
    parser.add_argument("-n", "--tasks", type=int, default=len(TASKS), help="the first N tasks")
    parser.add_argument("--seed", type=int, default=SEED, help="of what is spoiled")
    parser.add_argument("--report", action="store_true", help="only print what is there")
    parser.add_argument("--show", action="store_true", help="what each client said at the end")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-clients")
    args = parser.parse_args()
    args.only = args.only or list(CLIENTS)
    if shutil.which("npm") is None:
        say("not run: this needs Node.js and npm")
        return 1
    find_node(False)
    benchmark = Benchmark(args)
    if not args.report and not servers.until_interrupted(benchmark.run()):
        return 130
    done = {
        f"{CLIENTS[name][0].title} {_version(name)}": {
            way: benchmark.rows(name, way) for way in WAYS
        }
        for name in args.only
    }
    command = machine.command("benchmarks.clients", sys.argv[1:])
    pages.publish(command, {report.MARKER: report.whole(done)}, args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
