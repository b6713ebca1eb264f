"""`make clients`: real agents through proxy and LiteLLM, with a model that makes mistakes.

python -m tests.clients
python -m tests.clients --only claude-code --mistake "an unknown tool" --show

Each agent is installed from npm into `build/clients` (`--fresh`: anew) and gets a task that it does
with its own tools. It needs no account: the key is a dummy. The model is scripted. For every
mistake within one reply the agent has to end its task, to see no bad call and no error, and to ask
exactly as often as without. A loop across turns has to end, and to cost no repeat of the agent's.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.clients.agents import AGENTS, SAID, Agent
from tests.clients.mistakes import LOOP, MISTAKES, Model
from tests.frameworks.environment import Ended, Environment
from tests.frameworks.page import REPOSITORY
from tests.frameworks.stacks import ScriptedStack
from tests.frameworks.tap import Seen, Tap
from tests.support.ports import free_port

ENVIRONMENTS = REPOSITORY / "build" / "clients"
# A silent model is left after this; what an agent asks may be long in being written.
SETTINGS = {
    "first_token_timeout": 5.0,
    "tool_silence_timeout": 5.0,
    "context_window": 200_000,
}
MOST_LAPS = 12  # docs/loops.md: identical calls are broken sooner
FAILED = (b"event: error", b"event: response.failed")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Run:
    """What one run came to. `asked`: the agent's requests of its task, in their order."""

    agent: Agent
    mistake: str
    ended: Ended
    asked: list[Seen]
    played: int

    def wrong(self, without: Run | None) -> Iterator[str]:
        """What is not as it should be; `without`: the run in which no mistake was made."""
        errors = [one for one in self.asked if any(end in one.reply for end in FAILED)]
        yield from (f"an error in a stream: {bytes(one.reply[-400:])!r}" for one in errors)
        if self.mistake == LOOP:
            yield from self._loop_wrong()
            return
        if self.ended.code != 0 or SAID not in self.ended.said:
            yield f"the task did not end: {self.ended.said[-300:]}"
        yield from (f"status {one.status}" for one in self.asked if one.status != 200)
        if any(self.agent.failed(one.body) for one in self.asked):
            yield "it saw a bad call"
        if without is not None and len(self.asked) != len(without.asked):
            yield f"{len(self.asked)} requests, and {len(without.asked)} without"
        if MISTAKES[self.mistake] is not None and not self.played:
            yield "no mistake was made"

    def _loop_wrong(self) -> Iterator[str]:
        refused = [one.status for one in self.asked if one.status != 200]
        if len(refused) != 1:
            yield f"refused with {refused or 'nothing'}"
        if len(self.asked) > MOST_LAPS:
            yield f"{len(self.asked)} laps"


async def run(
    agent: Agent, mistake: str, stack: ScriptedStack, environment: Environment, folder: Path
) -> Run:
    home = folder / f"{agent.folder}-{list(MISTAKES).index(mistake)}"
    home.mkdir()
    model = Model(agent.turns(home), mistake)
    stack.play(model)
    port = free_port()
    variables = agent.variables(f"http://127.0.0.1:{port}")
    async with Tap(port, stack.url) as tap:
        ended = await environment.run(agent.command, home, variables, agent.seconds)
    asked = [one for one in tap.seen if one.path == agent.path and one.body.get("tools")]
    return Run(agent, mistake, ended, asked, model.played)


def installed(agent: Agent, fresh: bool) -> Environment:
    environment = Environment(ENVIRONMENTS / agent.folder)
    if fresh or not environment.is_installed:
        say(f"{agent.title}: installing")
        environment.install(agent.install)
    return environment


async def main(args: argparse.Namespace) -> int:
    chosen = [one for one in AGENTS if not args.only or one.folder in args.only]
    names = [name for name in MISTAKES if not args.mistake or name in (*args.mistake, "none")]
    environments = [(one, installed(one, args.fresh)) for one in chosen]
    right = True
    with tempfile.TemporaryDirectory(prefix="clients-") as name:
        folder = Path(name)
        say("starting the scripted model servers and LiteLLM")
        async with ScriptedStack(folder / "stack", SETTINGS) as stack:
            for agent, environment in environments:
                without, lines = None, []
                for mistake in names:
                    one = await run(agent, mistake, stack, environment, folder)
                    wrong = list(one.wrong(without))
                    right = right and not wrong
                    without = without or one
                    verdict = "; ".join(wrong) or "right"
                    say(f"{agent.title}, {mistake}: {verdict}")
                    if args.show or wrong:
                        say(one.ended.said[-2000:])
                    lines.append(f"| {mistake} | {one.played} | {len(one.asked)} | {verdict} |")
                version = environment.version(agent.package)
                print(f"{agent.title} {version}, {datetime.now(UTC):%Y-%m-%d}\n")
                print("| mistake | made | requests | |\n|---|---|---|---|")
                print("\n".join(lines), end="\n\n")
    return 0 if right else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folders = [one.folder for one in AGENTS]
    parser.add_argument("--only", action="append", choices=folders, help="this one; repeatable")
    parser.add_argument("--mistake", action="append", choices=MISTAKES, help="only it; repeatable")
    parser.add_argument("--fresh", action="store_true", help="install anew")
    parser.add_argument("--show", action="store_true", help="what each said")
    sys.exit(asyncio.run(main(parser.parse_args())))
