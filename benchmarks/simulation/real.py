"""The same agents in real time: the real proxy, on real sockets, before scripted upstreams.

The upstreams answer as :func:`world.reply_of` says, each call in its own time: nobody slows anybody
down. All else is as in the simulation's tables.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from benchmarks.simulation.simulate import Outcome, simulate
from benchmarks.simulation.world import APART, TWO_TIERS, Agent, Turn, World, reply_of, settings
from tests.shell.calling import calling
from tests.support.replies import litellm_error
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import Call, Delay, Reply, ScriptedServer, WhenWhole

SECONDS = 150.0
AGENTS = (4, 16)
TIERS = {name: replace(tier, speed_up=APART) for name, tier in TWO_TIERS.items()}
TOOL = {"name": "search", "parameters": {"type": "object", "required": ["query"]}}


def reply(arguments: str, seconds: float) -> Reply:
    whole = calling(arguments)
    return Reply(whole.status, whole.headers, (Delay(seconds), *whole.pieces), whole.framing)


def compare() -> None:
    """Print both, side by side."""
    print("| agents | | right/min | median | p95 | given up | served by standard |")
    print("|" + "---|" * 7)
    for agents in AGENTS:
        world = World(TIERS, agents, SECONDS, shared=False)
        rules = settings(TIERS)
        for name, found in (
            ("simulated, an hour", simulate(replace(world, seconds=3600.0), rules)),
            ("simulated, the same minutes", simulate(world, rules)),
            ("real", asyncio.run(really(world))),
        ):
            share = found.served["standard"] / max(1, found.right)
            print(
                f"| {agents} | {name} | {found.right_a_minute:.1f} | {found.took(0.5):.1f} s |"
                f" {found.took(0.95):.1f} s | {1 - found.share_right:.1%} | {share:.0%} |",
                flush=True,
            )


async def really(world: World) -> Outcome:
    """The same as :func:`simulate`, in as much time as it simulates."""
    turns: dict[str, Turn] = {}
    outcome = Outcome(world)
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
        return reply('{"query": "x"}' if what == "good" else '{"wrong": 1}', seconds)

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
