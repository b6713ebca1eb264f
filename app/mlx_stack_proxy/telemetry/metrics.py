"""What is counted (docs/observability.md). Labels are bounded: no session, path or free text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import SimpleNamespace

import prometheus_client
import psutil
from prometheus_client import CollectorRegistry, Gauge, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ..state.hourly import bounded

# Reads the queues: (tier, upstream calls running, requests waiting) of each.
ReadQueues = Callable[[], Iterable[tuple[str, int, int]]]
# Tells the memory pressure: 0 normal, 1 warning, 2 critical; None where nothing tells it.
ReadPressure = Callable[[], int | None]
# Tells of each tier whether its breaker has taken it out.
ReadDegraded = Callable[[], Mapping[str, bool]]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OTHER = "other"  # the tier label of models that pass through

# Local models take from a fraction of a second to many minutes.
_SECONDS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 600)
_OVERHEAD = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)


class Counter:
    """The library's. ``names``: of its labels; without any it is there from the start, at 0."""

    def __init__(
        self, name: str, text: str, names: tuple[str, ...], registry: CollectorRegistry
    ) -> None:
        self.names = names
        self._counter = prometheus_client.Counter(name, text, names, registry=registry)

    def inc(self, *labels: str, by: float = 1) -> None:
        """``labels``: values, in the order of the names."""
        (self._counter.labels(*labels) if labels else self._counter).inc(by)

    @property
    def values(self) -> dict[tuple[str, ...], float]:
        """By the labels' values."""
        (family,) = self._counter.collect()
        return {
            tuple(sample.labels[name] for name in self.names): sample.value
            for sample in family.samples
            if not sample.name.endswith("_created")
        }


class Histogram:
    """The library's. ``bounds``: of the buckets, ascending, without the infinite one."""

    def __init__(
        self,
        name: str,
        text: str,
        names: tuple[str, ...],
        bounds: tuple[float, ...],
        registry: CollectorRegistry,
    ) -> None:
        self._histogram = prometheus_client.Histogram(
            name, text, names, buckets=bounds, registry=registry
        )

    def observe(self, value: float, *labels: str) -> None:
        (self._histogram.labels(*labels) if labels else self._histogram).observe(value)


class Metrics:
    """One process's metrics, in a registry of their own."""

    def __init__(self, queues: ReadQueues, degraded: ReadDegraded) -> None:
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Exchanges ended", "tier", "outcome")
        self.agent_requests = self._counter(
            "agent_requests", "Exchanges ended, by who asked", "agent", "outcome"
        )
        self._agents: set[str] = set()
        self.attempts = self._counter("attempts", "Upstream calls ended", "tier", "result")
        self.retries = self._counter("retries", "Same-tier retries", "tier", "reason")
        self.escalations = self._counter(
            "escalations", "Moves to another tier", "from_tier", "to_tier", "reason"
        )
        self.tool_call_failures = self._counter(
            "tool_call_failures", "Tool calls that could not be delivered", "tier", "kind"
        )
        self.tool_call_repairs = self._counter(
            "tool_call_repairs", "Rules that repaired a delivered tool call", "kind"
        )
        self.rescued_tool_calls = self._counter(
            "rescued_tool_calls", "Calls written as text, made real", "format"
        )
        self.unchecked_tool_calls = self._counter(
            "unchecked_tool_calls", "Calls and replies taken as they are: checking costs too much"
        )
        self.loops = self._counter("loops", "Loops noticed, by what was done", "detector", "action")
        self.judge_questions = self._counter(
            "judge_questions", "Questions to the judge of loops, by what came of them", "result"
        )
        self.truncations = self._counter("truncations", "Replies cut short by us", "kind")
        self.tokens_saved = self._counter("tokens_saved", "Tokens that a cut reply did not cost")
        self.tokens = self._counter("tokens", "Tokens counted", "tier", "direction")
        self.stage_faults = self._counter("stage_faults", "Faults in our own stages", "stage")
        self.store_errors = self._counter("store_errors", "Failed calls of the session store")
        self.passthrough = self._counter("passthrough", "Requests passed through", "status")
        self.refused = self._counter(
            "refused", "Requests answered with an error before they were an exchange", "status"
        )
        self._add_times()
        self.sessions = self.gauge("sessions", "Sessions in the store")
        self.registry.register(_TierCollector(queues, degraded))
        self.registry.register(_ProcessCollector())

    def _add_times(self) -> None:
        self.overhead = self._histogram(
            "overhead_seconds",
            "From the whole request to its first upstream call, the tier's queue left out",
            _OVERHEAD,
        )
        self.first_token = self._histogram(
            "first_token_seconds", "Time to the first byte of an attempt's body", _SECONDS, "tier"
        )
        self.request = self._histogram(
            "request_seconds", "Duration of an exchange", _SECONDS, "tier"
        )

    def watch_pressure(self, read: ReadPressure) -> None:
        """Show the memory pressure."""
        self.registry.register(_PressureCollector(read))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"mlx_stack_{name}", text, labels, self.registry)

    def _histogram(
        self, name: str, text: str, bounds: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"mlx_stack_{name}", text, labels, bounds, self.registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"mlx_stack_{name}", text, labels, registry=self.registry)

    def count_agent(self, agent: str, outcome: str) -> None:
        """An exchange has ended. Further agents than many are one."""
        self.agent_requests.inc(bounded(agent, self._agents), outcome)

    def total(self, counter: Counter) -> float:
        """The sum over all its labels."""
        return sum(counter.values.values())

    def render(self, *, agents: bool) -> bytes:
        """The Prometheus text format. ``agents``: with their names, which are not for all."""
        hidden = () if agents else ("mlx_stack_agent_requests",)
        return generate_latest(SimpleNamespace(collect=lambda: self._shown(hidden)))

    def _shown(self, hidden: Collection[str]) -> Iterator[Metric]:
        """What the registry has, without the time at which each counter was made."""
        for family in self.registry.collect():
            if family.name in hidden:
                continue
            family.samples = [one for one in family.samples if not one.name.endswith("_created")]
            yield family


class _TierCollector(Collector):
    """Reads the tiers' state when asked, so that a request has nothing to keep up to date."""

    def __init__(self, queues: ReadQueues, degraded: ReadDegraded) -> None:
        self._queues = queues
        self._degraded = degraded

    def collect(self) -> list[GaugeMetricFamily]:
        in_flight = GaugeMetricFamily(
            "mlx_stack_in_flight", "Upstream calls running", labels=["tier"]
        )
        depth = GaugeMetricFamily("mlx_stack_queue_depth", "Requests waiting", labels=["tier"])
        for tier, running, waiting in self._queues():
            in_flight.add_metric([tier], running)
            depth.add_metric([tier], waiting)
        degraded = GaugeMetricFamily(
            "mlx_stack_tier_degraded", "1: the breaker has taken the tier out", labels=["tier"]
        )
        for tier, is_degraded in self._degraded().items():
            degraded.add_metric([tier], is_degraded)
        return [in_flight, depth, degraded]


class _PressureCollector(Collector):
    """One figure, absent while nothing tells it."""

    def __init__(self, read: ReadPressure) -> None:
        self._read = read

    def collect(self) -> list[GaugeMetricFamily]:
        level = self._read()
        if level is None:
            return []
        text = "Memory pressure: 0 normal, 1 warning, 2 critical"
        return [GaugeMetricFamily("mlx_stack_memory_pressure", text, value=level)]


class _ProcessCollector(Collector):
    """What this process takes of its machine, under the names that Prometheus' libraries share.

    The library's own collector reads /proc, which macOS doesn't have.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()

    def collect(self) -> list[CounterMetricFamily | GaugeMetricFamily]:
        process = self._process
        with process.oneshot():
            cpu = process.cpu_times()
            return [
                CounterMetricFamily(
                    "process_cpu_seconds", "Processor time used", value=cpu.user + cpu.system
                ),
                GaugeMetricFamily(
                    "process_resident_memory_bytes",
                    "Memory in use",
                    value=process.memory_info().rss,
                ),
                GaugeMetricFamily(
                    "process_open_fds", "Open files and connections", value=process.num_fds()
                ),
                GaugeMetricFamily("process_threads", "Threads", value=process.num_threads()),
                GaugeMetricFamily(
                    "process_start_time_seconds", "When it began", value=process.create_time()
                ),
                GaugeMetricFamily("mlx_stack_tasks", "Tasks of the event loop", value=_tasks()),
            ]


def _tasks() -> int:
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:  # no loop runs in this thread
        return 0
