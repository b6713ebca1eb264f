"""Prometheus' own promtool reads the alert rules, and every query of the dashboard."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from tests.conftest import require_program
from tests.deploy.test_grafana import FOLDER, QUERIES

# What Grafana puts in: its own variables, by a value that each could have.
GRAFANA = {
    "$__rate_interval": "1m",
    "$__interval": "1m",
    "$__range": "1h",
}


def promtool(file: Path) -> tuple[int, str]:
    done = subprocess.run(
        [require_program("promtool"), "check", "rules", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def rules_of(queries: list[str], file: Path) -> Path:
    """Each query as a recording rule: promtool reads rules."""
    rules = [{"record": f"query:{number}", "expr": one} for number, one in enumerate(queries)]
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    return file


def plain(query: str) -> str:
    for name, value in GRAFANA.items():
        query = query.replace(name, value)
    return query


def test_the_alert_rules() -> None:
    code, said = promtool(FOLDER / "alerts.yaml")
    assert code == 0, said


def test_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    queries = [plain(query) for _, query in QUERIES]
    code, said = promtool(rules_of(queries, tmp_path / "queries.yaml"))
    assert code == 0, said
    assert f"{len(queries)} rules found" in said


def test_a_broken_query_would_be_seen(tmp_path: Path) -> None:
    code, said = promtool(rules_of(["sum(rate(up[1m])"], tmp_path / "queries.yaml"))
    assert code != 0, said
