"""What do real open models do with tools, directly and through the proxy?

    make real-models                                 # all of it; goes on where it was interrupted
    make real-models ARGS="--quick"                  # ten questions, four tasks of each kind
    make real-models ARGS="-n 40 --minutes 60"
    make real-models ARGS="--model mine=FILE.gguf"   # repeatable, weakest first; or an MLX folder
    make real-models ARGS="--report --write benchmarks/real-models.md README.md"  # of what is there

The models come in packages, with llama.cpp's server, into `build/real-models`. Each model answers
through LiteLLM, and the proxy stands before that: single questions, agent tasks, and the tasks of
ToolCallBench. Each result is written to disk at once: run the same command again and it goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from benchmarks import machine, pages, servers
from benchmarks.records import PROXIED, Json, Results, fingerprint

from . import agent, models, report, stack
from .models import Model
from .questions import questions, verdict
from .stack import Way
from .tasks import TASKS

Doer = Callable[[Way, int], Awaitable[Json | None]]
SEED = 7
_TOOLCALLBENCH = Path(__file__).with_name("toolcallbench_task.py")
_TASK_SECONDS = 1_200.0
TOOLCALLBENCH_TASKS = 20
# What decides about a result: after a change of it, older ones are of something else.
_OURS = [
    *(f"benchmarks/real_models/{name}.py" for name in ("agent", "llama_server", "questions")),
    *(f"benchmarks/real_models/{name}.py" for name in ("stack", "tasks", "toolcallbench_task")),
    "benchmarks/came.py",
]


@dataclass(frozen=True)
class Run:
    """``titles``: of the ways to ask, by name. ``counts``: how many of each kind are asked for."""

    titles: Mapping[str, str]
    counts: Mapping[str, int]
    keys: Mapping[tuple[str, str], Json]  # by kind and way
    results: Results

    def rows(self, kind: str) -> dict[str, dict[int, Json]]:
        """Return what is there of one kind: for each way, the results by number."""
        count = self.counts[kind]
        return {way: self.results.first(self.keys[kind, way], count) for way in self.titles}

    def missing(self, kind: str) -> list[tuple[int, str]]:
        """The numbers and ways that have no result yet; all ways of a number one after another."""
        rows = self.rows(kind)
        return [
            (number, way)
            for number in range(self.counts[kind])
            for way in rows
            if number not in rows[way] and not (kind == "toolcallbench" and way == "proxy:all")
        ]


def of_options(args: argparse.Namespace, chosen: Sequence[Model]) -> Run:
    titles = stack.titles(chosen)
    counts = {
        "single": min(args.questions, len(questions())),
        "agent": min(args.tasks, len(TASKS)),
        "toolcallbench": min(args.tasks, TOOLCALLBENCH_TASKS),
    }
    keys: dict[tuple[str, str], Json] = {}
    for way in titles:
        patterns = _OURS if way.startswith("direct") else [*_OURS, *PROXIED]
        code = fingerprint([*(model.path.name for model in chosen), way], patterns)
        keys |= {(kind, way): {"kind": kind, "way": way, "code": code} for kind in counts}
    return Run(titles, counts, keys, Results(args.folder / "results.jsonl"))


async def do(args: argparse.Namespace, run: Run, chosen: Sequence[Model], python: Path) -> None:
    """Do what is missing, until the time is over."""
    deadline = time.monotonic() + args.minutes * 60
    wanted = [kind for kind in run.counts if run.missing(kind)]
    if not wanted:
        return
    async with (
        stack.running(chosen, python, args.folder / "run", args.threads) as ways,
        httpx.AsyncClient(timeout=agent.ASK_SECONDS) as http,
    ):
        doers: dict[str, Doer] = {
            "single": partial(_question, http),
            "agent": lambda way, number: agent.play(http, way, TASKS[number], SEED),
            "toolcallbench": partial(_toolcallbench, python),
        }
        for position, kind in enumerate(wanted):
            left = deadline - time.monotonic()
            until = time.monotonic() + left / (len(wanted) - position)  # of what is left
            for number, way in run.missing(kind):
                if time.monotonic() > until:
                    break
                row = await doers[kind](ways[way], number)
                if row is None:
                    _say(f"{kind} {number}, {way}: could not be run")
                    continue
                end = "done" if row.get("done") else f"not done, {row.get('end')}"
                said = row.get("verdict") or end
                _say(f"{kind} {number}, {way}: {said}, {row['seconds']:.0f} s")
                run.results.add(run.keys[kind, way], number, row)


async def _question(http: httpx.AsyncClient, way: Way, number: int) -> Json:
    question, session = questions()[number], f"question-{number}-{time.time()}"
    asked = {"messages": question.messages, "tools": question.tools}
    reply = await agent.ask(http, way, session, SEED + number, **asked)
    about = {"name": question.name, "category": question.kind}
    return {**about, **reply, "verdict": verdict(question, reply)}


async def _toolcallbench(python: Path, way: Way, number: int) -> Json | None:
    """Return the result of one task; None if the task could not be run at all."""
    command = [str(python), str(_TOOLCALLBENCH), way.url, way.model, str(number), way.key]
    began = time.monotonic()
    row: Json
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, error = await asyncio.wait_for(process.communicate(), _TASK_SECONDS)
        row = json.loads(out)
    except TimeoutError:
        process.kill()
        await process.wait()
        row = {"done": False, "end": "time", "text_call": False}
    except ValueError:
        _say(error.decode("utf-8", "replace")[-300:])
        return None
    return row | {"seconds": round(time.monotonic() - began, 1)}


def _say(text: str) -> None:
    print(text, flush=True)


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = machine.options("benchmarks.real_models", __doc__, write=True, results="real-models")
    parser.add_argument(
        "--model",
        action="append",
        help="NAME=FILE.gguf, or NAME=FOLDER for mlx-lm, in place of the packages",
    )
    parser.add_argument("--quick", action="store_true", help="10 questions, 4 tasks of each kind")
    parser.add_argument("-n", "--questions", type=int, default=100, help="single questions")
    parser.add_argument("--tasks", type=int, default=20, help="agent tasks, and ToolCallBench's")
    parser.add_argument("--minutes", type=float, default=240, help="end after so long")
    parser.add_argument("--threads", type=int, default=1, help="of each model server")
    args = parser.parse_args(argv)
    if args.quick:
        args.questions, args.tasks = 10, 4
    return args


def main() -> int:
    args = arguments()
    args.folder.mkdir(parents=True, exist_ok=True)
    chosen = models.given(args.model) if args.model else models.packaged(args.folder)
    if not questions():
        _say("no single questions: they need ../shared/corpora/trajectories")
    run = of_options(args, chosen)
    if not args.report:
        if not args.model:
            models.fetch(args.folder, chosen)
        if not servers.until_interrupted(do(args, run, chosen, models.environment(args.folder))):
            return 130
    kinds = {kind: run.rows(kind) for kind in run.counts}
    tables = {report.MARKER: report.whole(kinds, run.titles)}
    short = {report.MARKER_SHORT: report.short(kinds["single"], run.titles)}
    pages.publish("benchmarks.real_models", tables, args.write, plain=short)
    return 0


if __name__ == "__main__":
    sys.exit(main())
