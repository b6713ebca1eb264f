"""The same agents in real time: the real proxy, on real sockets, before scripted upstreams.

The upstreams answer as :func:`world.reply_of` says, either each call in its own time, or as the
simulation's servers do, which slow each other down on one machine. What the simulation doesn't play
is off in the proxy: loop detection, token budgets, memory pressure; its state is in memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

from benchmarks.simulation.simulate import Outcome, simulate
from benchmarks.simulation.world import (
    APART,
    TWO_TIERS,
    Agent,
    Machine,
    Server,
    Turn,
    World,
    reply_of,
    settings,
)
from tests.server.calling import calling
from tests.support.replies import litellm_error
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

APART_TIERS = {name: replace(tier, speed_up=APART) for name, tier in TWO_TIERS.items()}
# Where there are more agents than a machine carries, a turn takes minutes.
WORLDS = {
    "nobody slows anybody down": [
        World(APART_TIERS, agents, 150.0, shared=False) for agents in (4, 16)
    ],
    "both tiers on one machine": [World(TWO_TIERS, 8, 150.0), World(TWO_TIERS, 32, 300.0)],
}
TOOL = {"name": "search", "parameters": {"type": "object", "required": ["query"]}}


def reply(arguments: str, work: Callable[[], Awaitable[None]]) -> Reply:
    whole = calling(arguments)
    return Reply(whole.status, whole.headers, (work, *whole.pieces), whole.framing)


def compare(say: Callable[[str], None]) -> None:
    """Both, side by side, as lines of a table."""
    head = ("", "agents", "", "right/min", "median", "p95", "given up", "served by standard")
    say(f"| {' | '.join(head)} |")
    say("|" + "---|" * len(head))
    for title, worlds in WORLDS.items():
        for world in worlds:
            simulated = simulate(world, settings(world.tiers))
            for name, found in (("simulated", simulated), ("real", asyncio.run(really(world)))):
                share = found.served["standard"] / max(1, found.right)
                say(
                    f"| {title} | {world.agents} | {name} | {found.right_a_minute:.1f} |"
                    f" {found.took(0.5):.1f} s | {found.took(0.95):.1f} s |"
                    f" {1 - found.share_right:.1%} | {share:.0%} |"
                )


async def really(world: World) -> Outcome:
    """The same as :func:`simulate`, in as much time as it simulates."""
    turns: dict[str, Turn] = {}
    outcome = Outcome(world)
    machine = Machine(shared=world.shared)
    servers = {name: Server(tier, machine) for name, tier in world.tiers.items()}
    changes = {
        "tiers": {tier: {"model": tier} for tier in world.tiers},
        "reliability.escalation": {"chain": list(world.tiers)},
        "reliability.tool_validation.max_retries": 3,
        "reliability.loop_detection.enabled": False,
        "reliability.token_budget.enabled": False,
        "observability.log_level": "error",
    }

    def choose(call: Call) -> Reply:
        asked = call.json()
        turn = turns[asked["messages"][0]["content"]]
        what, seconds = reply_of(world.tiers[asked["model"]], turn, 0.0)
        if what == "error":
            return litellm_error(500, "litellm.InternalServerError: it failed")
        work = partial(servers[asked["model"]].work, seconds)
        return reply('{"query": "x"}' if what == "good" else '{"wrong": 1}', work)

    async with ScriptedServer() as upstream:
        upstream.models = tuple(world.tiers)
        upstream.always(WhenWhole(choose))
        async with running_proxy(upstream.url, changes) as proxy:
            agents = [
                asyncio.create_task(_live(Agent(world, number), proxy, turns, outcome))
                for number in range(world.agents)
            ]
            await asyncio.sleep(world.seconds)
            for agent in agents:
                agent.cancel()
            await asyncio.gather(*agents, return_exceptions=True)
    return outcome


async def _live(
    agent: Agent, proxy: RunningProxy, turns: dict[str, Turn], outcome: Outcome
) -> None:
    world = agent.world
    for number in range(1_000_000):
        await asyncio.sleep(agent.think())
        name = f"{agent.name}, turn {number}"
        turns[name] = agent.turn()
        body = {
            "model": "auto",
            "messages": [{"role": "user", "content": name}],
            "tools": [{"type": "function", "function": TOOL}],
        }
        began = time.monotonic()
        right = False
        for attempt in range(1 + world.patience):
            if attempt:
                await asyncio.sleep(world.pause)
            response = await proxy.client.post(
                "/v1/chat/completions",
                json=body,
                headers={"X-MLX-Stack-Session": agent.name},
                timeout=600,
            )
            if right := response.status_code == 200:
                outcome.served[response.headers["x-mlx-stack-tier"]] += 1
                break
        outcome.right += right
        outcome.given_up += not right
        outcome.seconds.append(time.monotonic() - began)
