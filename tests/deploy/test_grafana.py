"""The dashboard and the alert rules ask for metrics and labels that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.telemetry.test_metrics import all_metrics, registered

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text("utf-8"))
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]
PROMETHEUS = {"instance", "job", "le"}  # labels of its own
MADE = {"from_tier"}  # by label_replace
OURS = r"(?:mlx_stack|process)_\w+"


def panels() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", ())


QUERIES = [
    *((panel["title"], one["expr"]) for panel in panels() for one in panel.get("targets", ())),
    *((rule["alert"], rule["expr"]) for rule in RULES),
]


def known() -> dict[str, set[str]]:
    """The labels of each series that can be asked for."""
    found = {"up": {"job"}}
    for name, (kind, labels) in registered(all_metrics()).items():
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {name + end: labels for end in ends}
    return found


KNOWN = known()


@pytest.mark.parametrize(("title", "query"), QUERIES, ids=[title for title, _ in QUERIES])
def test_a_query_asks_for_what_there_is(title: str, query: str) -> None:
    names = set(re.findall(rf"\b({OURS}|up(?=\{{))", query))
    assert names and names <= set(KNOWN)
    labels = set().union(*(KNOWN[name] for name in names)) | PROMETHEUS | MADE
    grouped = re.findall(r"\b(?:by|without|on|ignoring) \(([^)]*)\)", query)
    asked = {one.strip() for group in grouped for one in group.split(",")}
    for name, matchers in re.findall(r"(\w+)\{([^}]*)\}", query):
        matched = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert matched <= KNOWN[name] | PROMETHEUS, name
        asked |= matched
    assert asked <= labels
    assert query.count("(") == query.count(")") and query.count("{") == query.count("}")


def test_counters_are_only_asked_for_their_growth() -> None:
    for title, query in QUERIES:
        for name in re.findall(r"\b(\w+_(?:total|bucket|sum|count))\b", query):
            assert re.search(rf"(rate|increase)\({name}\b", query), title


def test_legends_name_labels_that_the_query_keeps() -> None:
    for panel in panels():
        for one in panel.get("targets", ()):
            wanted = set(re.findall(r"\{\{(\w+)\}\}", one["legendFormat"]))
            kept = {
                label.strip()
                for group in re.findall(r"by \(([^)]*)\)", one["expr"])
                for label in group.split(",")
            }
            assert wanted <= kept, panel["title"]


def test_every_metric_is_on_the_dashboard() -> None:
    shown = " ".join(query for _, query in QUERIES)
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in KNOWN} - {"up"}
    assert {name for name in names if name not in shown} == set()


def test_panels_lie_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in panels()}) == len(list(panels()))


def test_rules_say_what_they_mean() -> None:
    for rule in RULES:
        assert rule["annotations"]["summary"] and rule["labels"]["severity"]
        words = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        labels = set().union(*(KNOWN[n] for n in re.findall(rf"{OURS}|\bup\b", rule["expr"])))
        assert words <= labels | PROMETHEUS | MADE, rule["alert"]
