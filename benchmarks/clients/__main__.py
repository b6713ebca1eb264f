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
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from benchmarks import machine, pages, servers
from benchmarks.clients import report, tasks
from benchmarks.clients.environment import find_node, installed, say
from benchmarks.clients.model import Model
from benchmarks.clients.report import DIRECT, WAYS
from benchmarks.clients.spoiled import CHARACTERS
from benchmarks.clients.stack import ScriptedStack
from benchmarks.clients.tasks import TASKS
from benchmarks.clients.toolboxes import CLIENTS
from benchmarks.records import PROXIED, Json, Results, fingerprint
from tests.clients.__main__ import let_work

SEED = 7
SECONDS = 180  # for a task, however often its client asks
# The tiers' window, as clients are told it; all else are the defaults.
SETTINGS = {"context_window": 200_000}
# What decides about a result: after a change of it, older ones are of something else.
_OURS = [
    *(f"benchmarks/clients/{name}.py" for name in ("__main__", "model", "spoiled", "tap")),
    *(f"benchmarks/clients/{name}.py" for name in ("scripted", "stack", "tasks", "toolboxes")),
    *("benchmarks/came.py", "benchmarks/agents/broken.py", "tests/faults/spoken.py"),
    *("tests/clients/agents.py", "tests/clients/mistakes.py"),
    "app/mlx_stack_proxy/operator/local_stack/*.py",
]
Column = tuple[str, str]  # a client's name, and the way


async def run(args: argparse.Namespace, keys: Mapping[Column, Json], results: Results) -> None:
    """Do what is missing. `keys`: of each client's results, both ways."""
    missing = {column: results.missing(key, args.tasks) for column, key in keys.items()}
    if not any(missing.values()):
        return
    with tempfile.TemporaryDirectory(prefix="bench-clients-") as folder:
        say("starting the scripted model servers and LiteLLM")
        async with ScriptedStack(Path(folder) / "stack", SETTINGS) as stack:
            for (name, way), numbers in missing.items():
                done = 0
                for number in numbers:
                    row = await do((name, way), args.seed, number, stack, Path(folder))
                    results.add(keys[name, way], number, row)
                    done += row["done"]
                    last = f"not done, last: {row['last'] or 'a good reply'}"
                    said = f"{'done' if row['done'] else last}, {row['seconds']:.0f} s"
                    say(f"{name}, {way}, {TASKS[number].name}: {said}")
                    if args.show:
                        say(row["said"])
                if numbers:
                    say(f"{name}, {way}: {done} of {len(numbers)} done")


async def do(column: Column, seed: int, number: int, stack: ScriptedStack, folder: Path) -> Json:
    """Have a client do a task one way; its result."""
    (name, way), task = column, TASKS[number]
    client, tools = CLIENTS[name]
    agent = replace(client, asked=task.asked, seconds=SECONDS)
    home = folder / f"{name}-{number:02}"
    model = Model(seed, number, tools, home, agent.is_task)
    begun = time.monotonic()
    environment = installed(client.package)
    ended, seen = await let_work(agent, home, model, stack, environment, direct=way == DIRECT)
    seconds = time.monotonic() - begun
    is_done = await tasks.done(task, home)
    await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)
    asked = [one for one in seen if one.path == agent.path]
    return {
        "done": is_done,
        "exit": ended.code,
        "requests": len(asked),
        "calls": model.calls,
        "prompt_tokens": model.prompt_tokens,
        "written_tokens": model.characters // CHARACTERS,
        "spoiled": dict(model.spoiled),
        "last": model.last,
        "flaws": dict(Counter(filter(None, (one.flaw() for one in asked)))),
        "seconds": round(seconds, 1),
        "said": ended.said[-500:],
    }


def version(name: str) -> str:
    package = CLIENTS[name][0].package
    return installed(package).version(package)


def key(name: str, way: str, seed: int) -> Json:
    patterns = _OURS if way == DIRECT else [*_OURS, *PROXIED]
    code = fingerprint([version(name), way], patterns)
    return {"code": code, "client": name, "way": way, "seed": seed}


def main() -> int:
    parser = machine.options("benchmarks.clients", __doc__, write=True, results="bench-clients")
    parser.add_argument("--only", action="append", choices=CLIENTS, help="this one; repeatable")
    parser.add_argument("-n", "--tasks", type=int, default=len(TASKS), help="the first N tasks")
    parser.add_argument("--seed", type=int, default=SEED, help="of what is spoiled")
    parser.add_argument("--show", action="store_true", help="what each client said at the end")
    args = parser.parse_args()
    if shutil.which("npm") is None:
        say("not run: this needs Node.js and npm")
        return 1
    find_node(False)
    names = args.only or list(CLIENTS)
    keys = {(name, way): key(name, way, args.seed) for name in names for way in WAYS}
    results = Results(args.folder / "results.jsonl")
    if not args.report and not servers.until_interrupted(run(args, keys, results)):
        return 130
    done = {
        f"{CLIENTS[name][0].title} {version(name)}": {
            way: results.first(keys[name, way], args.tasks) for way in WAYS
        }
        for name in names
    }
    pages.publish("benchmarks.clients", {report.MARKER: report.whole(done)}, args.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
