"""The table that `make bench` prints, with the goals beside the figures."""

from __future__ import annotations

import statistics
from typing import Any

from tests.bench.figures import LONG, SHORT, Rounds
from tests.bench.servers import PROXY_CONFIG, STREAM_LIMIT

YARDSTICK = "httpx relay"
STRICTER = "transport relay"  # shown beside the goal: httpx without its client
RATIO_GOAL = 1.7  # set for the frame; what the stages cost beside it is for each to judge
PROXIES = {
    "its frame": "no stage decides, nothing is kept",
    "this proxy": "everything on, as it comes: all stages, counts on the disk",
}
MEMORY_GOAL_MB = 60

# figure, what it says, unit, factor from the base unit, whether a ratio means anything, goal
ROWS: list[tuple[str, str, str, float, bool, bool]] = [
    ("cpu_request", "CPU, request, not streamed", "ms", 1e3, True, True),
    ("cpu_request_paced", f"… its {SHORT} pieces 1 ms apart", "ms", 1e3, True, False),
    ("cpu_stream", f"CPU, streamed request, {SHORT} pieces", "ms", 1e3, True, True),
    ("cpu_chunk", f"CPU, a streamed chunk ({SHORT} to {LONG})", "µs", 1e6, True, True),
    ("requests_per_second", "requests/s, 16 connections", "", 1, True, False),
    ("first_text_p50", "first text, p50", "ms", 1e3, False, False),
    ("first_text_p99", "first text, p99", "ms", 1e3, False, False),
    ("chunks_per_read", "chunks a read, as they came out", "", 1, False, False),
]


def heading(about: dict[str, Any]) -> str:
    lines = [f"{key:>12}  {value}" for key, value in about.items()]
    lines.append(
        f"{'settings':>12}  max_concurrency and max_connections {STREAM_LIMIT}, chain fast"
    )
    assert PROXY_CONFIG["tiers"]["fast"]["max_concurrency"] == STREAM_LIMIT
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(values: list[float], factor: float = 1) -> str:
    scaled = [value * factor for value in values]
    middle = statistics.median(scaled)
    return f"{number(middle)} ({number(min(scaled))}–{number(max(scaled))})"


def ratios(rounds: Rounds, yardstick: Rounds, figure: str) -> list[float]:
    """Round by round, so that noise common to a round falls out."""
    pairs = zip(rounds.values.get(figure, []), yardstick.values.get(figure, []), strict=False)
    return [mine / theirs for mine, theirs in pairs if theirs > 0]


def grid(rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def memory_rows(names: list[str], memory: dict[str, dict[str, float]]) -> list[list[str]]:
    rows = []
    for key, label in (
        ("rss_1", "RSS, 1 open stream (MB)"),
        ("rss_growth", "RSS more, at 1,000 streams (MB)"),
    ):
        row = [label]
        for name in names:
            found = memory.get(name)
            text = number(found[key] / 1e6) if found else "–"
            if found and key == "rss_growth" and found["streams"] != 1000:
                text += f" (at {found['streams']:.0f})"
            row.append(text)
        rows.append(row)
    return rows


def verdicts(rounds: dict[str, Rounds], memory: dict[str, dict[str, float]]) -> list[str]:
    yardstick = rounds.get(YARDSTICK)
    lines = []
    for name, about in PROXIES.items():
        proxy = rounds.get(name)
        if not proxy or not yardstick:
            continue
        lines.append(f" {name} ({about}):")
        for figure, label, _, _, _, goal in ROWS:
            found = ratios(proxy, yardstick, figure)
            if goal and found:
                met = "met" if statistics.median(found) <= RATIO_GOAL else "NOT MET"
                lines.append(f"  {label}: {spread(found)} ×, goal ≤ {RATIO_GOAL} ×: {met}")
                least = min(proxy.values[figure]) / min(yardstick.values[figure])
                lines.append(f"    the least of each, as the least disturbed: {least:.2f} ×")
                if STRICTER in rounds:
                    stricter = spread(ratios(proxy, rounds[STRICTER], figure))
                    lines.append(f"    beside the {STRICTER}: {stricter} ×")
    if "this proxy" in memory:
        growth = memory["this proxy"]["rss_growth"] / 1e6
        met = "met" if growth <= MEMORY_GOAL_MB else "NOT MET"
        many = memory["this proxy"]["streams"]
        lines.append(f"  {many:.0f} streams: {growth:.0f} MB, goal ≤ {MEMORY_GOAL_MB} MB: {met}")
    return lines


def table(rounds: dict[str, Rounds], memory: dict[str, dict[str, float]], direct: Rounds) -> str:
    names = list(rounds)
    rows = [["median (min–max) of the rounds", *names]]
    for figure, label, unit, factor, has_ratio, _ in ROWS:
        title = f"{label} ({unit})" if unit else label
        cells = [spread(rounds[name].values[figure], factor) for name in names]
        rows.append([title, *cells])
        if has_ratio and YARDSTICK in rounds:
            found = [ratios(rounds[name], rounds[YARDSTICK], figure) for name in names]
            rows.append([f"  × {YARDSTICK}", *(spread(each) if each else "–" for each in found)])
        if figure.startswith("first_text"):
            base = direct.median(figure) or 0
            added = [number(((rounds[name].median(figure) or 0) - base) * 1e3) for name in names]
            rows.append([f"  added to {number(base * 1e3)} ms without any", *added])
    rows += memory_rows(names, memory)
    goals = verdicts(rounds, memory)
    return "\n".join([grid(rows), "", *(["Goals:", *goals] if goals else [])])


def as_json(
    about: dict[str, Any],
    rounds: dict[str, Rounds],
    memory: dict[str, dict[str, float]],
    direct: Rounds,
) -> dict[str, Any]:
    return {
        "about": about,
        "rounds": {name: found.values for name, found in rounds.items()},
        "memory": memory,
        "direct": direct.values,
    }
