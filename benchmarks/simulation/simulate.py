"""Agents, the proxy's rules and two servers, for as long as is asked, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from benchmarks.simulation import virtual_time
from benchmarks.simulation.world import Agent, Machine, Server, Turn, World, reply_of
from mlx_stack_proxy.driver.decisions import after_waiting
from mlx_stack_proxy.driver.next_step import next_step
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.outcome import Outcome as Ended
from mlx_stack_proxy.engine.request import Request, Route
from mlx_stack_proxy.engine.session_id import SessionId
from mlx_stack_proxy.engine.steps import Deliver, Move, Retry
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.engine.verdicts import (
    CallFailure,
    Failure,
    InvalidToolCall,
    Verdict,
    reason_of,
)
from mlx_stack_proxy.escalation import ladder
from mlx_stack_proxy.escalation.breaker import Breakers
from mlx_stack_proxy.escalation.tier_queue import QueueTimeout, TierQueues
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.state.store import Sticky

_BAD = InvalidToolCall((CallFailure("tool", "schema", "it is not what the schema says"),))
_REQUEST = Request({"messages": []}, "auto", stream=True, include_usage=True)


@dataclass
class Outcome:
    """``right``: turns that an agent could go on with; ``given_up``: those it could not.

    ``seconds``: what each of all of them took. ``served``: right turns by tier. ``errors``: what
    clients were told. ``attempts``: upstream calls by tier. ``degraded``: seconds by tier.
    """

    world: World
    right: int = 0
    given_up: int = 0
    seconds: list[float] = field(default_factory=list)
    served: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    busy: dict[str, float] = field(default_factory=dict)
    degraded: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def right_a_minute(self) -> float:
        return self.right / self.world.seconds * 60

    @property
    def share_right(self) -> float:
        return self.right / max(1, self.right + self.given_up)

    def took(self, share: float) -> float:
        """The seconds within which this share of the turns was over."""
        found = sorted(self.seconds)
        return found[min(len(found) - 1, int(share * len(found)))] if found else 0.0


def simulate(world: World, settings: Settings) -> Outcome:
    """Raises what the rules raise."""
    return virtual_time.run(_Run(world, settings).run())


class _Run:
    def __init__(self, world: World, settings: Settings) -> None:
        self._world = world
        self._settings = settings
        self._queues = TierQueues(settings.tiers)
        machine = Machine(shared=world.shared)
        self._servers = {name: Server(tier, machine) for name, tier in world.tiers.items()}
        self._breakers = Breakers(settings.reliability.escalation.degrade)
        self._sticky: dict[str, Sticky] = {}
        self._outcome = Outcome(world)

    async def run(self) -> Outcome:
        self._clock = asyncio.get_running_loop().time
        agents = [
            asyncio.create_task(self._live(Agent(self._world, number)))
            for number in range(self._world.agents)
        ]
        await asyncio.sleep(self._world.seconds)
        for agent in agents:
            agent.cancel()
        await asyncio.gather(*agents, return_exceptions=True)
        for agent in agents:
            if not agent.cancelled():
                agent.result()  # what went wrong
        self._outcome.busy = {name: server.busy for name, server in self._servers.items()}
        return self._outcome

    async def _live(self, agent: Agent) -> None:
        while True:
            await asyncio.sleep(agent.think())
            turn = agent.turn()
            began = self._clock()
            right = False
            for attempt in range(1 + self._world.patience):
                if attempt:
                    await asyncio.sleep(self._world.pause)
                if right := await self._exchange(agent, turn):
                    break
            self._outcome.right += right
            self._outcome.given_up += not right
            self._outcome.seconds.append(self._clock() - began)

    # As the runner does it

    def _view(self) -> TierView:
        passed_over = self._breakers.passed_over(self._clock())
        return TierView(passed_over, proven=self._breakers.proven())

    async def _exchange(self, agent: Agent, turn: Turn) -> bool:
        settings = self._settings
        chain = settings.reliability.escalation.chain
        now = self._clock()
        session = SessionId("simulated", agent.name, agent.name)
        request = _REQUEST.asked_by(session=session, route=Route(chain), started=now)
        exchange = Exchange(request)
        entry = self._sticky.get(agent.name)
        sticky = entry.tier if entry is not None and entry.until > now else None
        exchange.start = ladder.start(exchange, settings, self._view(), sticky)
        while True:
            calls = self._outcome.attempts.total()
            began = self._clock()
            verdict = await self._attempt(exchange, turn)
            exchange.outcomes.append(
                Ended(
                    exchange.tier,
                    verdict,
                    reason_of(verdict),
                    called=self._outcome.attempts.total() > calls,
                    seconds=self._clock() - began,
                )
            )
            step = next_step(exchange, settings, self._view(), self._clock())
            exchange.steps.append(step)
            if isinstance(step, Retry):
                await asyncio.sleep(step.after)
            elif not isinstance(step, Move):
                break
        if not isinstance(step, Deliver):
            self._outcome.errors[step.error.type if hasattr(step, "error") else "passed_on"] += 1
            return False
        self._outcome.served[exchange.tier] += 1
        seconds = settings.reliability.escalation.sticky_seconds
        if exchange.is_sticky and seconds:
            self._sticky[agent.name] = Sticky(exchange.tier, self._clock() + seconds)
        return True

    async def _attempt(self, exchange: Exchange, turn: Turn) -> Verdict | None:
        tier = exchange.tier
        queue = self._queues[tier]
        assert queue is not None
        try:
            ticket = await queue.enter(exchange.session.hash)
        except QueueTimeout as error:
            return Failure(error.reason, str(error), retry_after=error.seconds)
        try:
            failure = after_waiting(exchange, self._settings, self._view(), self._clock())
            if failure is not None:
                return failure
            return await self._call(exchange, tier, turn)
        finally:
            queue.leave(ticket)

    async def _call(self, exchange: Exchange, tier: str, turn: Turn) -> Verdict | None:
        began = self._clock()
        call = self._breakers.begin(tier, began)
        try:
            self._outcome.attempts[tier] += 1
            what, seconds = reply_of(self._world.tiers[tier], turn, began)
            if what == "stall":
                await asyncio.sleep(seconds)
            else:
                await self._servers[tier].work(seconds)
            verdict: Verdict | None = None
            if what == "stall":
                verdict = Failure("timeout", "it said nothing")
            elif what == "error":
                verdict = Failure("server_error", "it failed", 500)
            elif what == "bad":
                verdict = _BAD
            now = self._clock()
            if not isinstance(verdict, Failure):
                self._breakers.succeeded(tier, now)
            elif self._breakers.failed(call, now):
                self._outcome.degraded[tier] += self._breakers[tier].cooldown
            return verdict
        finally:
            self._breakers.end(call)
