"""What is assumed of agents and model servers, and the servers themselves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mlx_stack_proxy.settings import Settings

# Tokens a second of all replies together, with 1, 2, 4 and 8 at once, by those of one alone:
# mlx-lm 0.32 with a model of 1M parameters gave 295, 494, 510 and 645.
BATCHED = (1.0, 1.67, 1.70, 1.73, 1.84, 1.95, 2.07, 2.19)
APART = tuple(float(n) for n in range(1, 257))  # nobody slows anybody down


@dataclass(frozen=True)
class Tier:
    """A model server. ``seconds``: what a reply takes on average, alone.

    ``bad_easy``, ``bad_hard``: the share of replies with a call that can't be delivered, for a turn
    that is easy and one that is hard. ``errors``: the share of calls that end in a server error.
    ``outages``: (start, end) of times in which no call succeeds, in seconds. ``stalls``: of those
    in which a call gets no answer at all.
    """

    seconds: float
    bad_easy: float
    bad_hard: float
    errors: float = 0.0
    outages: tuple[tuple[float, float], ...] = ()
    stalls: tuple[tuple[float, float], ...] = ()
    speed_up: tuple[float, ...] = BATCHED


@dataclass(frozen=True)
class World:
    """``agents`` that each think (run a tool) for ``think`` seconds, ask, and go on.

    ``hard``: the share of turns that are hard; ``run``: how many of them follow each other on
    average. ``patience``: how often an agent asks the same once more when it gets an error, after
    ``pause`` seconds, before it gives the turn up. ``shared``: the
    tiers are on one machine, and halve its speed where both have something to do.
    """

    tiers: dict[str, Tier]
    agents: int
    seconds: float
    think: float = 5.0
    hard: float = 0.1
    run: float = 3.0
    patience: int = 2
    pause: float = 2.0
    seed: int = 1
    shared: bool = True


# A small model of some 60 tokens/s and one of some 20, replies of 150 tokens, short prompts.
FAST = Tier(seconds=2.5, bad_easy=0.15, bad_hard=0.9, errors=0.005)
STANDARD = Tier(seconds=7.5, bad_easy=0.03, bad_hard=0.15, errors=0.005)
TWO_TIERS = {"fast": FAST, "standard": STANDARD}
# Seconds after which a silent server is given up: with a `health_url` it is asked after so many.
SILENCE = 20.0


def settings(
    tiers: Iterable[str], changes: dict[str, Any] | None = None, **escalation: Any
) -> Settings:
    """The defaults, with these tiers. ``changes``: settings of every tier."""
    given: dict[str, Any] = {
        "tiers": {name: {"model": name, **(changes or {})} for name in tiers},
        "reliability": {
            "escalation": {"chain": list(tiers), **escalation},
            "token_budget": {"enabled": False},
            "memory_pressure": {"enabled": False},
        },
        "state": {"backend": "memory"},
    }
    return Settings(**given)


class Turn:
    """One turn of an agent: whether it is hard, and the chances of whatever is asked for it."""

    def __init__(self, hard: bool, seed: str) -> None:
        self.hard = hard
        self.random = random.Random(seed)


@dataclass
class Agent:
    """An agent's turns, the same whoever serves them."""

    world: World
    number: int
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = f"agent-{self.number}"
        self._random = random.Random(f"{self.world.seed}:{self.number}")
        self._count = itertools.count()
        self._hard = self._random.random() < self.world.hard

    def think(self) -> float:
        return self._random.expovariate(1 / self.world.think)

    def turn(self) -> Turn:
        world = self.world
        ends = 1 / world.run
        begins = ends * world.hard / (1 - world.hard)  # so that the share is what it should be
        chance = self._random.random()
        self._hard = chance >= ends if self._hard else chance < begins
        return Turn(self._hard, f"{self.world.seed}:{self.number}:{next(self._count)}")


def reply_of(tier: Tier, turn: Turn, now: float) -> tuple[str, float]:
    """What a call comes to (``good``, ``bad``, ``error``, ``stall``), and the seconds, alone."""
    if any(start <= now < end for start, end in tier.outages):
        return "error", 0.05
    if any(start <= now < end for start, end in tier.stalls):
        return "stall", SILENCE
    seconds = turn.random.gammavariate(2.0, tier.seconds / 2)
    chance = turn.random.random()
    if chance < tier.errors:
        return "error", seconds * turn.random.random()
    bad = tier.bad_hard if turn.hard else tier.bad_easy
    return ("bad" if turn.random.random() < bad else "good"), seconds


class Machine:
    """What the servers on it divide between them: all of its speed goes to those that work."""

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        self.servers: list[Server] = []

    def share(self) -> float:
        working = sum(server.works for server in self.servers)
        return 1 / working if self.shared and working else 1.0

    def settle(self) -> None:
        """Something begins or has ended: all that goes on has gone on at its speed until now."""
        now = asyncio.get_running_loop().time()
        for server in self.servers:
            server.catch_up(now)

    def go_on(self) -> None:
        for server in self.servers:
            server.set_timer()


class Server:
    """Works on all that it is given at once; the more there is, the slower each goes."""

    def __init__(self, tier: Tier, machine: Machine) -> None:
        self._machine = machine
        machine.servers.append(self)
        self._speed_up = tier.speed_up
        self._done: list[tuple[float, int, asyncio.Future[None]]] = []  # by what is worked by then
        self._numbers = itertools.count()
        self._worked = 0.0  # seconds' worth that each of them has had
        self._at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.busy = 0.0  # seconds with anything to do

    @property
    def works(self) -> bool:
        return bool(self._done)

    async def work(self, seconds: float) -> None:
        """Return when so many seconds' worth, of a server that is alone, have been done."""
        self._machine.settle()
        done = asyncio.get_running_loop().create_future()
        heapq.heappush(self._done, (self._worked + seconds, next(self._numbers), done))
        self._machine.go_on()
        await done

    def _rate(self) -> float:
        count = len(self._done)
        together = self._speed_up[min(count, len(self._speed_up)) - 1]
        return together / count * self._machine.share() if count else 0.0

    def catch_up(self, now: float) -> None:
        if self._done:
            self.busy += now - self._at
            self._worked += (now - self._at) * self._rate()
        self._at = now

    def set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._done:
            wait = max(0.0, self._done[0][0] - self._worked) / self._rate()
            self._timer = asyncio.get_running_loop().call_later(wait, self._finish)

    def _finish(self) -> None:
        self._machine.settle()
        self._worked = max(self._worked, self._done[0][0])  # no less for the rounding
        while self._done and self._done[0][0] <= self._worked:
            done = heapq.heappop(self._done)[2]
            if not done.done():  # nobody waits for it any more
                done.set_result(None)
        self._machine.go_on()
