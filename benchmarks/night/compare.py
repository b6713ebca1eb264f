"""The report beside the script's own account, number by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

EXACT = ("requests", "turns", "right_at_once", "repaired", "found_in_text", "attempts")
PUT_RIGHT = ("confirmed", "retried_right", "escalated_right")
AT_LEAST = ("tokens_in", "tokens_out")  # what failed attempts used, no client sees
PROCESS = ("starts", "kills", "reloads", "refused_reloads")
SECONDS = 5.0  # by which an outage may look longer or shorter from outside


@dataclass(frozen=True)
class Row:
    what: str
    seen: float
    told: float
    holds: bool

    def __str__(self) -> str:
        mark = "ok" if self.holds else "WRONG"
        return f"{self.what:<44} {self.seen:>10,.0f} {self.told:>10,.0f}  {mark}"


def rows(
    report: Mapping[str, Any],
    agents: Mapping[str, Mapping[str, int]],
    process: Mapping[str, int],
    outage_seconds: float,
) -> Iterator[Row]:
    """``agents``, ``process``: what the script saw of each agent, and did to the processes."""
    for agent, seen in agents.items():
        yield from of_agent(report, agent, seen)
        for name in AT_LEAST:
            yield _tokens(agent, name, seen, report["by_agent"].get(agent, {}))
    yield _exact("agents", len(agents), len(report["by_agent"]))
    total = sum(seen["requests"] for seen in agents.values())
    yield _exact("all: requests", total, report["totals"].get("requests", 0))
    for name in PROCESS:
        yield _exact(f"process: {name}", process[name], report["process"].get(name, 0))
    down = [
        one["counts"].get("down", 0) for one in report["hours"] if not one["agent"] + one["tier"]
    ]
    yield _exact("LiteLLM: down", process["down"], sum(down))
    litellm = [one for one in report["outages"] if one["what"] == "litellm"]
    yield _exact("outages of LiteLLM", 1, len(litellm))
    told_seconds = sum(one["seconds"] for one in litellm)
    close = abs(told_seconds - outage_seconds) <= SECONDS
    yield Row("outages of LiteLLM, seconds", outage_seconds, told_seconds, close)
    yield _exact("all: requests, by what they came to", total, sum(report["parts"].values()))
    of_hours = sum(one["counts"].get("requests", 0) for one in report["hours"])
    yield _exact("all: requests, by the hours' rows", total, of_hours)


def of_agent(report: Mapping[str, Any], agent: str, seen: Mapping[str, int]) -> Iterator[Row]:
    told = report["by_agent"].get(agent, {})
    for name in EXACT:
        yield _exact(f"{agent}: {name}", seen[name], told.get(name, 0))
    # Of errors, the report tells those of the client's own making apart.
    errors = told.get("errors", 0) + told.get("client_errors", 0)
    yield _exact(f"{agent}: errors", seen["errors"], errors)
    put_right = sum(told.get(name, 0) for name in PUT_RIGHT)
    yield _exact(f"{agent}: put right by asking again", seen["put_right"], put_right)


def _tokens(agent: str, name: str, seen: Mapping[str, int], told: Mapping[str, float]) -> Row:
    told_tokens = told.get(name, 0)
    alone = seen["attempts"] == seen["requests"] and not seen["errors"]
    holds = told_tokens == seen[name] if alone else told_tokens >= seen[name]
    return Row(f"{agent}: {name}{'' if alone else ', at least'}", seen[name], told_tokens, holds)


def _exact(what: str, seen: float, told: float) -> Row:
    return Row(what, seen, told, seen == told)
