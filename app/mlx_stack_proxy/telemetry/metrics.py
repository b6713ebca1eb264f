"""The metrics (docs/observability.md). Labels are bounded: no session, path or free text.

Each request adds to a dozen numbers, so they are kept in plain dictionaries; the library of
Prometheus writes them down at a scrape. CPU, memory and files of the process have the names that
Prometheus' libraries share; the Python one reads them from /proc, which macOS doesn't have.
"""

from __future__ import annotations

import asyncio
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from types import SimpleNamespace
from typing import Any, Final

import psutil
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily as Histogram
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from ..state.hourly import bounded

# Reads the queues: (tier, upstream calls running, requests waiting) for each tier.
ReadQueues = Callable[[], Iterable[tuple[str, int, int]]]
# Reads the memory pressure: 0 normal, 1 warning, 2 critical; None if it can't be read.
ReadPressure = Callable[[], int | None]
# Reads for each tier whether its breaker has taken it out.
ReadDegraded = Callable[[], Mapping[str, bool]]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"  # the tier label of models that pass through

# Local models take from a fraction of a second to many minutes.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 600)
_OVERHEAD = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)

# By name, to which `mlx_stack_` is added: a histogram's bounds; the text; the labels.
_COUNTERS: Final[Mapping[str, tuple[str, ...]]] = {
    "requests": ("Exchanges ended", "tier", "outcome"),
    "agent_requests": ("Exchanges ended, by who asked", "agent", "outcome"),
    "passthrough": ("Requests passed through", "status"),
    "refused": ("Requests answered with an error before they were an exchange", "status"),
    "attempts": ("Upstream calls ended", "tier", "result"),
    "retries": ("Same-tier retries", "tier", "reason"),
    "escalations": ("Moves to another tier", "from_tier", "to_tier", "reason"),
    "tool_call_failures": ("Tool calls that could not be delivered", "tier", "kind"),
    "tool_call_repairs": ("Rules that repaired a delivered tool call", "kind"),
    "rescued_tool_calls": ("Calls written as text, made real", "format"),
    "guided_attempts": ("Attempts with a schema for the reply", "tier", "result"),
    "unchecked_tool_calls": ("Calls and replies taken as they are: checking costs too much",),
    "loops": ("Loops noticed, by what was done", "detector", "action"),
    "loop_questions": ("Questions to the next tier about a repetition, by answer", "answer"),
    "judge_questions": ("Questions to the judge of loops, by what came of them", "result"),
    "truncations": ("Replies cut short by us", "tier", "kind"),
    "cut_prompts": ("Prompts cut by their server", "tier"),
    "tokens_saved": ("Tokens that a cut reply did not cost",),
    "tokens": ("Tokens counted", "tier", "direction"),
    "stage_faults": ("Faults in our own stages", "stage"),
    "store_errors": ("Failed calls of the session store",),
}
_GAUGES: Final[Mapping[str, tuple[str, ...]]] = {
    "sessions": ("Sessions in the store",),
    "budget_used_tokens": ("Used of a budget", "scope"),
    "budget_limit_tokens": ("An hourly budget", "scope"),
}
_HISTOGRAMS: Final[Mapping[str, tuple[Any, ...]]] = {
    "overhead_seconds": (
        _OVERHEAD,
        "From the whole request to its first upstream call, the tier's queue left out",
    ),
    "first_token_seconds": (_SECONDS, "Time to the first byte of an attempt's body", "tier"),
    "request_seconds": (_SECONDS, "Duration of an exchange", "tier"),
}


_PREFIX: Final = "mlx_stack_"
_AGENTS: Final = "agent_requests"  # which has agents' names, and not everybody may see those


class Metrics(Collector):
    """One process's metrics."""

    def __init__(self, queues: ReadQueues, degraded: ReadDegraded, pressure: ReadPressure) -> None:
        self._queues, self._degraded, self._pressure = queues, degraded, pressure
        self._process = psutil.Process()
        self._agents: set[str] = set()
        # By name and the values of all labels. A metric without labels begins at 0.
        self._numbers: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for name, (_, *labels) in [*_COUNTERS.items(), *_GAUGES.items()]:
            if not labels:
                self._numbers[name,] = 0.0
        # Of histograms: the observations up to each bound, those beyond the last, and their sum.
        self._observed: dict[tuple[str, ...], list[float]] = {}
        for name, (bounds, _, *labels) in _HISTOGRAMS.items():
            if not labels:
                self._observed[name,] = [0.0] * (len(bounds) + 2)
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter; ``labels``: the values of all its labels, in their order."""
        self._numbers[name, *labels] += by

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add an observation to a histogram."""
        bounds = _HISTOGRAMS[name][0]
        row = self._observed.get((name, *labels))
        if row is None:
            row = self._observed[name, *labels] = [0.0] * (len(bounds) + 2)
        row[bisect_left(bounds, seconds)] += 1
        row[-1] += seconds

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._numbers[name, *labels] = value

    def count_agent(self, agent: str, outcome: str) -> None:
        """Count an ended exchange for its agent; for ``other`` if there are too many agents."""
        self._numbers[_AGENTS, bounded(agent, self._agents), outcome] += 1

    def render(self, *, agents: bool) -> bytes:
        """Return the metrics as Prometheus text.

        ``agents``: include those with agents' names, which not everybody may see.
        """
        families = (one for one in self.collect() if agents or one.name != _PREFIX + _AGENTS)
        return generate_latest(SimpleNamespace(collect=lambda: families))

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Any] = {}
        for make, rows in ((Counter, _COUNTERS), (Gauge, _GAUGES)):
            for name, (text, *labels) in rows.items():
                families[name] = make(_PREFIX + name, text, labels=labels)
        for name, (_, text, *labels) in _HISTOGRAMS.items():
            families[name] = Histogram(_PREFIX + name, text, labels=labels)
        for (name, *values), number in list(self._numbers.items()):  # a thread may add one
            families[name].add_metric(values, number)
        for (name, *values), (*numbers, total) in self._observed.items():
            bounds = map(floatToGoString, (*_HISTOGRAMS[name][0], math.inf))
            buckets = list(zip(bounds, accumulate(numbers), strict=True))
            families[name].add_metric(values, buckets, total)
        yield from families.values()
        yield from self._readings()

    def _readings(self) -> Iterator[Metric]:
        """Yield what is read for each scrape, so that no request has to keep it up to date."""
        degraded = "1: the breaker has taken the tier out"
        in_flight = Gauge("mlx_stack_in_flight", "Upstream calls running", labels=["tier"])
        queue_depth = Gauge("mlx_stack_queue_depth", "Requests waiting", labels=["tier"])
        tier_degraded = Gauge("mlx_stack_tier_degraded", degraded, labels=["tier"])
        for tier, running, waiting in self._queues():
            in_flight.add_metric([tier], running)
            queue_depth.add_metric([tier], waiting)
        for tier, is_degraded in self._degraded().items():
            tier_degraded.add_metric([tier], is_degraded)
        yield from (in_flight, queue_depth, tier_degraded)
        if (level := self._pressure()) is not None:
            text = "Memory pressure: 0 normal, 1 warning, 2 critical"
            yield Gauge("mlx_stack_memory_pressure", text, level)
        yield Gauge("mlx_stack_tasks", "Tasks of the event loop", _tasks())
        process = self._process
        with process.oneshot():
            cpu = process.cpu_times()
            yield Counter("process_cpu_seconds", "Processor time used", cpu.user + cpu.system)
            memory = process.memory_info().rss
            yield Gauge("process_resident_memory_bytes", "Memory in use", memory)
            yield Gauge("process_open_fds", "Open files and connections", process.num_fds())
            yield Gauge("process_threads", "Threads", process.num_threads())
            yield Gauge("process_start_time_seconds", "When it began", process.create_time())


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # no loop runs in this thread
        return 0
