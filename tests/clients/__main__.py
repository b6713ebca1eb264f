"""`make clients`: real agents through proxy and LiteLLM, with a model that makes mistakes.

python -m tests.clients
python -m tests.clients --only claude-code --mistake "an unknown tool" --show
python -m tests.clients --short
python -m tests.clients --write benchmarks/clients.md

Each agent is installed from npm into `build/clients` (`--fresh`: anew), is started by
`mlx-stack-proxy launch`, or set up as `agents` prints, and gets a task that it does with its own
tools. It needs no account. The model is scripted. For every mistake within one reply the agent has
to end its task, to be given the calls that it is given without the mistake, and no error, and to
ask exactly as often. A loop across turns has to end, and to cost no repeat of the agent's. What
came of it is printed as the table of benchmarks/clients.md. Each run's result is written to disk at
once, so the same command continues an interrupted run; a result counts only for the code and the
client's version that it was made with.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import machine, pages
from benchmarks.clients.environment import (
    ENVIRONMENTS,
    Ended,
    Environment,
    find_node,
    installed,
    say,
)
from benchmarks.clients.scripted import Plays
from benchmarks.clients.stack import ScriptedStack
from benchmarks.clients.tap import Seen, Tap
from benchmarks.records import Json, Results, fingerprint
from mlx_stack_proxy.operator.agents.command import client_named
from tests.clients.agents import AGENTS, CLAUDE_CODE, CODEX, PROTOCOLS, SAID, Agent, calls
from tests.clients.mistakes import LOOP, MISTAKES, NONE, SHORT, Model
from tests.support.ports import free_port

RESULTS = ENVIRONMENTS / "results.jsonl"
# What decides about a result: after a change of it, older ones are of something else.
DECIDES = ["app/**/*.py", "app/**/*.lua", "tests/clients/*.py", "benchmarks/clients/*.py"]
# A silent model is left after this; what an agent asks may be long in being written.
SETTINGS = {
    "first_token_timeout": 5.0,
    "tool_silence_timeout": 5.0,
    "context_window": 200_000,
}
MOST_LAPS = 12  # docs/loops.md: identical calls are broken sooner
FAILED = (b"event: error", b"event: response.failed")
PROGRAM = f"{shlex.quote(sys.executable)} -m mlx_stack_proxy"


@dataclass(frozen=True)
class Run:
    """What one run came to. `asked`: the agent's requests of its task, in their order."""

    agent: Agent
    mistake: str
    home: Path
    ended: Ended
    asked: list[Seen]
    played: int

    @property
    def given(self) -> list[list[str]]:
        """The calls that the agent has been given, wherever it ran."""
        made = calls(self.asked[-1].body) if self.asked else []
        return [[name, arguments.replace(str(self.home), "HOME")] for name, arguments in made]

    def row(self, without: Json | None) -> Json:
        """Its result; `without`: that of the run in which no mistake was made, if it isn't this."""
        row = {"requests": len(self.asked), "given": self.given, "date": machine.about()["date"]}
        return {**row, "wrong": list(self._wrong(without or row))}

    def _wrong(self, without: Json) -> Iterator[str]:
        """What is not as it should be."""
        if any(end in one.reply for one in self.asked for end in FAILED):
            yield "an error in a stream"
        if self.mistake == LOOP:
            yield from self._loop_wrong()
            return
        if self.ended.code != 0 or SAID not in self.ended.said:
            yield "the task did not end"
        yield from (f"status {one.status}" for one in self.asked if one.status != 200)
        if len(self.given) != 3 or self.given != without["given"]:
            yield "given other calls"
        if len(self.asked) != without["requests"]:
            yield f"{len(self.asked)} requests"
        if self.mistake != NONE and not self.played:
            yield "no mistake was made"

    def _loop_wrong(self) -> Iterator[str]:
        refused = [one.status for one in self.asked if one.status != 200]
        if len(refused) != 1:
            yield f"refused with {refused or 'nothing'}"
        if len(self.asked) > MOST_LAPS:
            yield f"{len(self.asked)} laps"


def script(agent: Agent) -> str:
    """What a user does: lets `mlx-stack-proxy launch` start it, or pastes what `agents` prints."""
    client = client_named(agent.client)
    start = agent.start.format(asked=shlex.quote(agent.asked))
    if client.program and not agent.edit:
        arguments = start.partition(" ")[2]
        return f"{PROGRAM} launch {client.name} --model {agent.model} -- {arguments}"
    printed = f"{PROGRAM} agents {client.name} --model {agent.model} | {agent.edit or 'cat'}"
    if client.pasted is None:
        return f'eval "$({printed})"\n{start}'
    return f"mkdir -p {client.place.rpartition('/')[0]}\n{printed} > {client.place}\n{start}"


async def let_work(
    agent: Agent,
    home: Path,
    model: Plays,
    stack: ScriptedStack,
    environment: Environment,
    *,
    direct: bool = False,
) -> tuple[Ended, list[Seen]]:
    """Let the agent do its task in this folder; how that ended, and all its requests.

    `direct`: LiteLLM is asked, without the proxy.
    """
    await asyncio.to_thread(home.mkdir)
    stack.play(model)
    port = free_port()
    variables = {"MLX_STACK_CONFIG": str(stack.config), "MLX_STACK_SERVER__PORT": str(port)}
    to = (stack.litellm.url, stack.litellm.key) if direct else (stack.url, "")
    async with Tap(port, *to, operator=stack.url) as tap:
        ended = await environment.run(script(agent), home, variables, agent.seconds)
    return ended, tap.seen


async def run(
    agent: Agent, mistake: str, stack: ScriptedStack, environment: Environment, folder: Path
) -> Run:
    home = folder / f"{agent.name}-{list(MISTAKES).index(mistake)}"
    model = Model(agent.turns(home), mistake, agent.is_task)
    ended, seen = await let_work(agent, home, model, stack, environment)
    asked = [one for one in seen if one.path == agent.path and agent.is_task(one.body)]
    return Run(agent, mistake, home, ended, asked, model.played)


class Runs:
    """An agent's runs, of which some may be on disk. `shows`: what it said in each."""

    def __init__(self, agent: Agent, results: Results, shows: bool) -> None:
        self.agent = agent
        self._environment = installed(agent.package)
        self._results = results
        self._shows = shows
        self._version = self._environment.version(agent.package)
        self._key = {"agent": agent.name, "code": fingerprint([self._version], DECIDES)}

    @property
    def rows(self) -> dict[str, Json]:
        """The results that are there, by mistake."""
        return self._results.read(self._key)

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those to be run: the one without a mistake is first, and always."""
        rows = self.rows
        return [name for name in dict.fromkeys([NONE, *names]) if name not in rows]

    async def run(self, names: Sequence[str], stack: ScriptedStack, folder: Path) -> None:
        say(f"{self.agent.title}, {PROTOCOLS[self.agent.path]}")
        for mistake in self.missing(names):
            one = await run(self.agent, mistake, stack, self._environment, folder)
            row = one.row(self.rows.get(NONE))
            self._results.add(self._key, mistake, row)
            wrong = row["wrong"]
            say(f"  {mistake}: {row['requests']} requests: {'; '.join(wrong) or 'right'}")
            if wrong:
                say(f"  given {row['given']}")
            if self._shows or wrong:
                say(one.ended.said[-2000:])

    def told(self, names: Sequence[str]) -> list[str]:
        """The row of the table."""
        rows = self.rows
        hidden = [name for name in names if name not in (NONE, LOOP)]
        right = sum(not rows[name]["wrong"] for name in hidden)
        laps = f"refused after {rows[LOOP]['requests'] - 1}" if LOOP in names else ""
        wrongs = [f"{name}: {rows[name]['wrong'][0]}" for name in names if rows[name]["wrong"]]
        return [
            *(self.agent.title, self._version, PROTOCOLS[self.agent.path]),
            *(str(rows[NONE]["requests"]), f"{right} of {len(hidden)}", laps),
            "; ".join(wrongs) or "right",
        ]


HEAD = (
    *("client", "version", "protocol", "requests", "mistakes it never saw"),
    *("the same call for ever", ""),
)


def publish(args: argparse.Namespace, runs: Sequence[Runs], names: Sequence[str]) -> None:
    """The table of benchmarks/clients.md, with the dates of the runs: some may be older."""
    dates = sorted(one.rows[name]["date"] for one in runs for name in names)
    table = pages.table(HEAD, [one.told(names) for one in runs])
    of_runs = " to ".join(sorted({dates[0], dates[-1]}))
    pages.publish("tests.clients", {"clients": table}, args.write, {"runs": of_runs})


async def main(args: argparse.Namespace) -> int:
    if shutil.which("npm") is None:
        say("not run: this needs Node.js and npm")
        return 1
    default = [CLAUDE_CODE, CODEX] if args.short else AGENTS
    chosen = [one for one in AGENTS if one.name in args.only] if args.only else default
    names = args.mistake or (SHORT if args.short else list(MISTAKES))
    find_node(args.fresh)
    for package in {one.package for one in chosen}:
        installed(package, args.fresh)
    if args.fresh:
        RESULTS.unlink(missing_ok=True)
    runs = [Runs(one, Results(RESULTS), args.show) for one in chosen]
    wanted = [one for one in runs if one.missing(names)]
    if wanted:
        with tempfile.TemporaryDirectory(prefix="clients-") as name:
            folder = Path(name)
            say("starting the scripted model servers and LiteLLM")
            async with ScriptedStack(folder / "stack", SETTINGS) as stack:
                for one in wanted:
                    await one.run(names, stack, folder)
    publish(args, runs, names)
    return 0 if all(not one.rows[name]["wrong"] for one in runs for name in names) else 1


if __name__ == "__main__":
    parser = machine.options("tests.clients", __doc__, write=True)
    folders = [one.name for one in AGENTS]
    parser.add_argument("--only", action="append", choices=folders, help="this one; repeatable")
    parser.add_argument("--mistake", action="append", choices=MISTAKES, help="only it; repeatable")
    parser.add_argument("--short", action="store_true", help="two agents, a few mistakes, for CI")
    parser.add_argument("--fresh", action="store_true", help="install anew, forget the results")
    parser.add_argument("--show", action="store_true", help="what each said")
    try:
        sys.exit(asyncio.run(main(parser.parse_args())))
    except KeyboardInterrupt:
        say("Stopped; the same command goes on from here.")
        sys.exit(130)
