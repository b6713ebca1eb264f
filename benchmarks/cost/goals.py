"""The goals, each judged from the figures by itself. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import growth, recorded
from .contestants import FRAME, HTTPX, LITELLM, PORTKEY, PROXY
from .samples import Samples, Spread

UPSTREAM = "upstream"  # asked without anything in between
LINEAR = 1.3  # what still counts as linear: about that of an exponent of 1.15


@dataclass(frozen=True)
class Goal:
    """`values`: one a round; their median is held against `limit`, in `unit`."""

    text: str
    limit: float
    unit: str
    values: tuple[float, ...]
    strict: bool = False  # below the limit, not at it

    @property
    def spread(self) -> Spread:
        return Spread.of(self.values)

    @property
    def met(self) -> bool:
        return self._within(self.spread.middle)

    @property
    def verdict(self) -> str:
        """`met` or `not met`, and in how many rounds where they don't agree."""
        within = sum(self._within(value) for value in self.values)
        word = "met" if self.met else "**not met**"
        if within in (0, len(self.values)):
            return word
        return f"{word} (within it in {within} of {len(self.values)} rounds)"

    def _within(self, value: float) -> bool:
        return value < self.limit if self.strict else value <= self.limit


def judge(samples: Samples) -> list[Goal]:
    """Those whose figures are there."""
    goals = [*_ratios(samples), *_others(samples), *_growing(samples)]
    return [goal for goal in goals if goal.values]


def _ratios(samples: Samples) -> list[Goal]:
    def against(text: str, other: str, kind: str, limit: float, who: str = PROXY) -> Goal:
        values = samples.ratios(who, other, f"cpu.{kind}")
        return Goal(text, limit, "×", tuple(values), strict=other == PORTKEY)

    relay = f"the {HTTPX}'s CPU"
    return [
        against(f"plain request: {relay}", HTTPX, "plain", 2.2),
        against(f"plain request, streamed: {relay}", HTTPX, "stream", 2.1),
        against(f"streamed chunk: {relay}", HTTPX, "chunk", 1.5),
        against(f"chunk of a tool call: {relay}", HTTPX, "call-chunk", 1.5),
        against("plain request: Portkey's CPU", PORTKEY, "plain", 1),
        against("plain request, streamed: Portkey's CPU", PORTKEY, "stream", 1),
        against("plain request: LiteLLM's CPU", LITELLM, "plain", 1 / 14),
        against("plain request, streamed: LiteLLM's CPU", LITELLM, "stream", 1 / 14),
        against(f"{FRAME}, plain request: {relay}", HTTPX, "plain", 1.6, FRAME),
        against(f"{FRAME}, streamed chunk: {relay}", HTTPX, "chunk", 1.6, FRAME),
        Goal(
            f"plain request, one at a time: the {HTTPX}'s wall time",
            2.5,
            "×",
            tuple(samples.ratios(PROXY, HTTPX, "wall.plain")),
        ),
        *_of_dialects(samples),
    ]


def _of_dialects(samples: Samples) -> list[Goal]:
    """What agents' turns cost in their own dialects."""

    def beside(kind: str, other: str) -> tuple[float, ...]:
        mine = samples.by_round(PROXY, f"cpu.{kind}")
        yardstick = samples.by_round(PROXY, f"cpu.{other}")
        return tuple(mine[turn] / yardstick[turn] for turn in mine if turn in yardstick)

    goals = []
    for kind, agent in (("claude", recorded.CLAUDE), ("codex", recorded.CODEX)):
        first = f"{agent.title}'s first turn"
        peer = tuple(samples.ratios(PROXY, LITELLM, f"cpu.{kind}"))
        second = f"{agent.title}'s second turn: a plain request's, streamed"
        goals += [
            Goal(f"{first}: the same as a chat completion", 1.5, "×", beside(kind, f"{kind}.chat")),
            Goal(f"{first}: LiteLLM's own translation", 0.1, "×", peer),
            Goal(second, 1.25, "×", beside(f"{kind}.second", "stream")),
        ]
    return goals


def _others(samples: Samples) -> list[Goal]:
    def scaled(values: Sequence[float], factor: float) -> tuple[float, ...]:
        return tuple(value * factor for value in values)

    history = samples.differences(PROXY, "cpu.seen", "cpu.plain")
    first = samples.added(PROXY, UPSTREAM, "first.100", 0.99)
    memory = samples.values(PROXY, "rss.more")
    return [
        Goal("400 messages, all but 2 seen: CPU more than plain", 1, "ms", scaled(history, 1e3)),
        Goal("first text, p99 added at 100 streams", 3, "ms", scaled(first, 1e3)),
        Goal("1,000 open streams: memory more", 50, "MB", scaled(memory, 1e-6)),
    ]


def curve(samples: Samples, axis: growth.Axis) -> dict[int, float]:
    """The least CPU seconds of all rounds at each x that was measured.

    What else a machine does only ever adds to a time: the least is what says how it grows.
    """
    found = {x: samples.spread(PROXY, axis.figure(x)) for x in axis.xs}
    return {x: spread.low for x, spread in found.items() if spread}


def steepening(points: dict[int, float]) -> float | None:
    """The slope of the upper half of a curve, in slopes of its lower half: 1 where it is linear.

    The part of a cost that is always there falls out. None without a lower half that grows.
    """
    xs = sorted(points)
    if len(xs) < 3:
        return None
    first, middle, last = xs[0], xs[len(xs) // 2], xs[-1]
    lower = (points[middle] - points[first]) / (middle - first)
    upper = (points[last] - points[middle]) / (last - middle)
    return upper / lower if lower > 0 else None


def _growing(samples: Samples) -> list[Goal]:
    goals = []
    for axis in growth.AXES:
        found = steepening(curve(samples, axis))
        text = f"{axis.label}, all new: slope above the middle beside below it"
        goals.append(Goal(text, LINEAR, "×", () if found is None else (found,)))
    return goals
