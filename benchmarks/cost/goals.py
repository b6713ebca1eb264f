"""The goals, each judged from the figures by itself. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from . import recorded
from .contestants import FRAME, HTTPX, LITELLM, PORTKEY, PROXY
from .measure import AXES, Axis
from .samples import Samples, Spread, spread_of

UPSTREAM = "upstream"  # asked without anything in between
LINEAR = 1.3  # what still counts as linear: about that of an exponent of 1.15


@dataclass(frozen=True)
class Goal:
    """`values`: one a round; their median is held against `limit`, in `unit`."""

    text: str
    limit: float
    unit: str
    values: Sequence[float]
    strict: bool = False  # below the limit, not at it

    @property
    def spread(self) -> Spread:
        return spread_of(self.values)

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
    return [goal for goal in goals(samples) if goal.values]


def goals(samples: Samples) -> Iterator[Goal]:
    def times(text: str, other: str, kind: str, limit: float, who: str = PROXY) -> Goal:
        values = samples.ratios(who, other, f"cpu.{kind}")
        return Goal(text, limit, "×", values, strict=other == PORTKEY)

    relay, streamed = f"the {HTTPX}'s CPU", "plain request, streamed"
    yield times(f"plain request: {relay}", HTTPX, "plain", 2.2)
    yield times(f"{streamed}: {relay}", HTTPX, "stream", 2.1)
    yield times(f"streamed chunk: {relay}", HTTPX, "chunk", 1.5)
    yield times(f"chunk of a tool call: {relay}", HTTPX, "call-chunk", 1.5)
    for other, limit in ((PORTKEY, 1), (LITELLM, 1 / 14)):
        yield times(f"plain request: {other}'s CPU", other, "plain", limit)
        yield times(f"{streamed}: {other}'s CPU", other, "stream", limit)
    yield times(f"{FRAME}, plain request: {relay}", HTTPX, "plain", 1.6, FRAME)
    yield times(f"{FRAME}, streamed chunk: {relay}", HTTPX, "chunk", 1.6, FRAME)
    wall = samples.ratios(PROXY, HTTPX, "wall.plain")
    yield Goal(f"plain request, one at a time: the {HTTPX}'s wall time", 2.5, "×", wall)
    for kind, agent in (("claude", recorded.CLAUDE), ("codex", recorded.CODEX)):
        first, second = f"{agent.title}'s first turn", f"{agent.title}'s second turn"
        chat = samples.ratios(PROXY, PROXY, f"cpu.{kind}", f"cpu.{kind}.chat")
        yield Goal(f"{first}: the same as a chat completion", 1.5, "×", chat)
        yield times(f"{first}: LiteLLM's own translation", LITELLM, kind, 0.1)
        plain = samples.ratios(PROXY, PROXY, f"cpu.{kind}.second", "cpu.stream")
        yield Goal(f"{second}: a plain request's, streamed", 1.25, "×", plain)
    history = [1e3 * value for value in samples.differences(PROXY, "cpu.seen", "cpu.plain")]
    yield Goal("400 messages, all but 2 seen: CPU more than plain", 1, "ms", history)
    added = [1e3 * value for value in samples.added(PROXY, UPSTREAM, "first.100", 0.99)]
    yield Goal("first text, p99 added at 100 streams", 3, "ms", added)
    memory = [1e-6 * value for value in samples.values(PROXY, "rss.more")]
    yield Goal("1,000 open streams: memory more", 50, "MB", memory)
    for axis in AXES:
        found = steepening(curve(samples, axis))
        text = f"{axis.label}, all new: slope above the middle beside below it"
        yield Goal(text, LINEAR, "×", () if found is None else (found,))


def curve(samples: Samples, axis: Axis) -> dict[int, float]:
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
