"""When Claude Code compacts, for windows of several sizes: the table of benchmarks/clients.md.

python -m tests.clients.compaction 32768 49152 65536

The scripted model calls a command turn after turn that prints some 2,300 tokens, and says that the
prompt has a token for each four bytes. What is printed: the turns before the first compaction, and
whether Claude Code gave up in the end. With and without CLAUDE_CODE_SIMPLE.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.frameworks.scripted import Json, Say, Use, good_reply
from benchmarks.frameworks.stacks import ScriptedStack
from tests.clients.__main__ import SETTINGS, find_node, installed, let_work
from tests.clients.agents import CLAUDE_CODE, SAID
from tests.support.replies import data, usage_chunk
from tests.support.scripted_server import Call, Reply

TURNS = 14
ASKED_TO_COMPACT = "Respond with TEXT ONLY"  # Claude Code 2.1.332
WITHOUT = "sed /CLAUDE_CODE_SIMPLE/d"
CHANGES = {"": WITHOUT, "1": f"{WITHOUT} | sed '$a export CLAUDE_CODE_SIMPLE=1'"}


class Lister:
    """`before`: the calls it made until it was first asked for a summary."""

    def __init__(self) -> None:
        self.made = 0
        self.before: int | None = None

    def reply(self, call: Call) -> Reply:
        body = call.json()
        compacts = ASKED_TO_COMPACT in str(body["messages"][-1]["content"])
        if compacts and self.before is None:
            self.before = self.made
        turn: Say | Use = Say(SAID)
        if body.get("tools") and not compacts and self.made < TURNS:
            self.made += 1
            listing = f"seq {self.made}000 9999999 | head -1500"
            turn = Use("Bash", {"command": listing, "description": "numbers"})
        return _with_usage(good_reply(turn, body), body)


def _with_usage(reply: Reply, body: Json) -> Reply:
    """The same, with the tokens that a real server would count."""
    tokens = len(data(body)) // 4
    usage = {"prompt_tokens": tokens, "completion_tokens": 40, "total_tokens": tokens + 40}
    *chunks, _usage, done = reply.pieces
    return replace(reply, pieces=(*chunks, data(usage_chunk(usage)), done))


async def main(windows: list[str]) -> None:
    find_node(False)
    environment = installed(CLAUDE_CODE.package)
    with tempfile.TemporaryDirectory(prefix="compaction-") as name:
        folder = Path(name)
        async with ScriptedStack(folder / "stack", SETTINGS) as stack:
            for window in windows:
                for simple, change in CHANGES.items():
                    agent = replace(
                        CLAUDE_CODE,
                        edit=change,
                        variables={"MLX_STACK_TIERS__FAST__CONTEXT_WINDOW": window},
                    )
                    model = Lister()
                    home = folder / f"{window}-{simple}"
                    ended, _ = await let_work(agent, home, model, stack, environment)
                    end = "done" if SAID in ended.said else ended.said.strip().splitlines()[-1][:60]
                    mode = "simple" if simple else "full"
                    print(f"{window} {mode}: {model.before} turns, then: {end}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
