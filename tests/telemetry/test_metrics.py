"""The registry against docs/observability.md, both ways."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.main import build_services
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.telemetry.metrics import Metrics
from tests.support.forced_memory import ForcedMemory
from tests.support.running_proxy import proxy_config

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "observability.md").read_text("utf-8")
TABLE = re.compile(r"^\| (counter|histogram|gauge) \|.*\n((?:\|.*\n)+)", re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)` \|([^|]*)\|", re.MULTILINE)


def all_metrics() -> Metrics:
    """Those of a proxy in which nothing is missing."""
    settings = Settings(**proxy_config("http://127.0.0.1:9"))
    return build_services(settings, memory=ForcedMemory().probe).metrics


@pytest.fixture
def metrics() -> Metrics:
    return all_metrics()


def registered(metrics: Metrics) -> dict[str, tuple[str, set[str]]]:
    """Each metric's type and labels, by its name in a query."""
    found: dict[str, tuple[str, set[str]]] = {}
    for collector in metrics.registry._collector_to_names:
        for family in collector.collect():
            name = family.name + ("_total" if family.type == "counter" else "")
            # Labels that have no value yet are in no sample.
            given: Any = getattr(collector, "_labelnames", getattr(family, "_labelnames", None))
            if given is None:
                given = [label for sample in family.samples for label in sample.labels]
            found[name] = (family.type, set(given))
    return found


def documented() -> dict[str, tuple[str, set[str]]]:
    return {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for kind, rows in TABLE.findall(PAGE)
        for name, labels in ROW.findall(rows)
    }


def test_every_metric_is_documented_and_every_documented_one_is_there(metrics: Metrics) -> None:
    assert registered(metrics) == documented()


def test_a_part_that_may_fail_begins_at_zero() -> None:
    """`increase()` doesn't see a first fault that comes with its series, and no alert would."""
    observed = {"observability.capture_failures": True}
    settings = Settings(**proxy_config("http://127.0.0.1:9", observed))
    text = build_services(settings).metrics.render(agents=False).decode()
    found = re.findall(r'mlx_stack_stage_faults_total\{stage="(\w+)"\} (\S+)', text)
    stages = ("loop_detection", "tool_validation", "budget", "escalation")
    parts = (*stages, "books", "text_hold", "capture")
    assert dict(found) == dict.fromkeys(parts, "0.0")


def test_further_agents_than_a_hundred_are_one(metrics: Metrics) -> None:
    for number in [*range(103), 0]:
        metrics.count_agent(f"agent-{number}", "ok")
    text = metrics.render(agents=True).decode()
    found = dict(re.findall(r'agent_requests_total\{agent="([\w-]+)",outcome="ok"\} (\S+)', text))
    assert len(found) == 101
    assert (found["agent-0"], found["agent-99"], found["other"]) == ("2.0", "1.0", "3.0")


def test_the_time_at_which_a_counter_was_made_is_not_told(metrics: Metrics) -> None:
    metrics.count("requests", "fast", "ok", by=2)
    metrics.count_agent("codex", "ok")
    assert "_created" not in metrics.render(agents=True).decode()
