"""`make frameworks`: the commands of docs/agents.md, run as printed, with the real frameworks.

python -m benchmarks.frameworks
python -m benchmarks.frameworks --only crewai --fresh

Each framework gets an environment of its own under build/frameworks, by the page's own lines
(`--fresh`: anew, with what is newest today). Its script then runs three times: on the demo tiers
where they can follow its prompts, and on scripted model servers, well and with faults. A tap
between framework and proxy sees what was asked and what came back.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.frameworks.catalogue import FRAMEWORKS, Framework
from benchmarks.frameworks.environment import ENVIRONMENTS, Environment
from benchmarks.frameworks.page import EXAMPLES, sections
from benchmarks.frameworks.report import Run, table
from benchmarks.frameworks.scripted import Model
from benchmarks.frameworks.stacks import DemoStack, ScriptedStack
from benchmarks.frameworks.tap import Tap
from tests.support.ports import free_port

MODES = ("demo", "scripted", "faults")
# A session's name for all that is built on OpenAI's own library.
NAMED = {"OPENAI_CUSTOM_HEADERS": "X-MLX-Stack-Session: a-run-of-frameworks"}
ADDRESS = "127.0.0.1:4100"  # as the page prints it


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Runner:
    def __init__(self, folder: Path, port: int, fresh: bool, shows: bool) -> None:
        self._folder = folder
        self._port = port
        self._fresh = fresh
        self._shows = shows
        self._page = sections()
        self._preamble = self._page["Before you start"].run

    def installed(self, one: Framework) -> Environment:
        environment = Environment(ENVIRONMENTS / one.folder)
        if self._fresh or not environment.is_installed:
            say(f"{one.title}: installing")
            environment.install(self._page[one.title].install)
        return environment

    async def run(
        self, one: Framework, mode: str, url: str, environment: Environment, model: Model | None
    ) -> Run:
        home = self._folder / f"{one.folder}-{mode}"
        home.mkdir()
        shutil.copytree(EXAMPLES, home / "examples")
        script = f"{self._preamble}\n{self._page[one.title].run}"
        script = script.replace(ADDRESS, f"127.0.0.1:{self._port}")
        async with Tap(self._port, url) as tap:
            ended = await environment.run(
                script, home, NAMED if mode == "faults" else {}, one.seconds
            )
        done = ended.code == 0 and one.right(ended.said, home)
        run = Run(one, environment.version(one.package), mode, tap.seen, done, model)
        say(f"{one.title}, {mode}: {run.verdict}")
        if self._shows or run.verdict != "right":
            say(f"--- exit code {ended.code}\n{ended.said}\n--- asked")
            say("\n".join(map(str, run.requests())))
        return run


async def main(
    frameworks: Sequence[Framework], modes: Sequence[str], args: argparse.Namespace
) -> int:
    runs: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="frameworks-") as name:
        folder = Path(name)
        runner = Runner(folder, args.port or free_port(), args.fresh, args.show)
        environments = [(one, runner.installed(one)) for one in frameworks]
        if "demo" in modes and any(one.demo for one in frameworks):
            say("starting the demo tiers")
            async with DemoStack(folder / "demo") as demo:
                for one, environment in environments:
                    if one.demo:
                        runs.append(await runner.run(one, "demo", demo.url, environment, None))
        if "scripted" in modes or "faults" in modes:
            say("starting the scripted model servers and LiteLLM")
            async with ScriptedStack(folder / "scripted") as scripted:
                for one, environment in environments:
                    for mode in modes:
                        if mode == "demo":
                            continue
                        model = Model(one.turns, one.results, faults=mode == "faults")
                        scripted.play(model)
                        runs.append(await runner.run(one, mode, scripted.url, environment, model))
    print(table(runs))
    return 0 if all(run.verdict == "right" for run in runs) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folders = [one.folder for one in FRAMEWORKS]
    parser.add_argument("--only", action="append", choices=folders, help="this one; repeatable")
    parser.add_argument("--mode", action="append", choices=MODES, help="only this; repeatable")
    parser.add_argument("--fresh", action="store_true", help="install anew")
    parser.add_argument("--port", type=int, help="where frameworks ask (default: any free one)")
    parser.add_argument("--show", action="store_true", help="what each said and asked")
    given = parser.parse_args()
    chosen = [one for one in FRAMEWORKS if not given.only or one.folder in given.only]
    sys.exit(asyncio.run(main(chosen, given.mode or MODES, given)))
