"""The metrics (docs/observability.md). Labels are bounded: no session, path or free text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

import prometheus_client
import psutil
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.registry import Collector

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


class Metrics:
    """One process's metrics, in their own registry."""

    def __init__(self, queues: ReadQueues, degraded: ReadDegraded, pressure: ReadPressure) -> None:
        self.registry = CollectorRegistry()
        self._metrics: dict[str, Any] = {}
        for make, rows in ((Counter, _COUNTERS), (prometheus_client.Gauge, _GAUGES)):
            for name, (text, *labels) in rows.items():
                metric = make(f"mlx_stack_{name}", text, labels, registry=self.registry)
                self._metrics[name] = metric
        for name, (bounds, text, *labels) in _HISTOGRAMS.items():
            self._metrics[name] = Histogram(
                f"mlx_stack_{name}", text, labels, buckets=bounds, registry=self.registry
            )
        self._agents: set[str] = set()
        self.registry.register(_Readings(queues, degraded, pressure))

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to a counter; ``labels``: the values of all its labels, in their order."""
        self._of(name, labels).inc(by)

    def observe(self, name: str, seconds: float, *labels: str) -> None:
        """Add an observation to a histogram."""
        self._of(name, labels).observe(seconds)

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        self._of(name, labels).set(value)

    def _of(self, name: str, labels: tuple[str, ...]) -> Any:
        metric = self._metrics[name]
        return metric.labels(*labels) if labels else metric

    def count_agent(self, agent: str, outcome: str) -> None:
        """Count an ended exchange for its agent; for ``other`` if there are too many agents."""
        self.count("agent_requests", bounded(agent, self._agents), outcome)

    def render(self, *, agents: bool) -> bytes:
        """Return the metrics as Prometheus text.

        ``agents``: include those with agents' names, which not everybody may see.
        """
        hidden = () if agents else ("mlx_stack_agent_requests",)
        return generate_latest(SimpleNamespace(collect=lambda: self._families(hidden)))

    def _families(self, hidden: Collection[str]) -> Iterator[Metric]:
        """Yield the registry's metrics, without the samples that tell when a counter was made."""
        for family in self.registry.collect():
            if family.name in hidden:
                continue
            family.samples = [
                sample for sample in family.samples if not sample.name.endswith("_created")
            ]
            yield family


class _Readings(Collector):
    """Metrics that are read for each scrape, so that no request has to keep them up to date.

    The process's CPU, memory and files have the names that Prometheus' libraries share. The Python
    library's own collector reads /proc, which macOS doesn't have.
    """

    def __init__(self, queues: ReadQueues, degraded: ReadDegraded, pressure: ReadPressure) -> None:
        self._queues = queues
        self._degraded = degraded
        self._pressure = pressure
        self._process = psutil.Process()

    def collect(self) -> Iterator[Metric]:
        queues = list(self._queues())
        running = {tier: number for tier, number, _ in queues}
        waiting = {tier: number for tier, _, number in queues}
        yield _by_tier("in_flight", "Upstream calls running", running)
        yield _by_tier("queue_depth", "Requests waiting", waiting)
        yield _by_tier("tier_degraded", "1: the breaker has taken the tier out", self._degraded())
        if (level := self._pressure()) is not None:
            text = "Memory pressure: 0 normal, 1 warning, 2 critical"
            yield Gauge("mlx_stack_memory_pressure", text, level)
        yield Gauge("mlx_stack_tasks", "Tasks of the event loop", _tasks())
        process = self._process
        with process.oneshot():
            cpu = process.cpu_times()
            yield CounterMetricFamily(
                "process_cpu_seconds", "Processor time used", cpu.user + cpu.system
            )
            memory = process.memory_info().rss
            yield Gauge("process_resident_memory_bytes", "Memory in use", memory)
            yield Gauge("process_open_fds", "Open files and connections", process.num_fds())
            yield Gauge("process_threads", "Threads", process.num_threads())
            yield Gauge("process_start_time_seconds", "When it began", process.create_time())


def _by_tier(name: str, text: str, values: Mapping[str, float]) -> Gauge:
    family = Gauge(f"mlx_stack_{name}", text, labels=["tier"])
    for tier, value in values.items():
        family.add_metric([tier], value)
    return family


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # no loop runs in this thread
        return 0
