"""The tables, as Markdown; a client's two columns are of the tasks that both have done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from benchmarks import pages
from benchmarks.records import Json

Rows = dict[int, Json]  # by task
DIRECT, PROXIED = "directly", "through the proxy"
WAYS = (DIRECT, PROXIED)
MARKER = "clients-bench"

_LINES: dict[str, Callable[[list[Json]], str]] = {
    "tasks": lambda rows: str(len(rows)),
    "**done**": lambda rows: f"**{_sum(rows, 'done')}**",
    "ended with an error of the client's": lambda rows: str(sum(row["exit"] != 0 for row in rows)),
    "requests of the client": lambda rows: f"{_sum(rows, 'requests'):,}",
    "calls of the model": lambda rows: f"{_sum(rows, 'calls'):,}",
    "of these spoiled": lambda rows: str(_counted(rows, "spoiled").total()),
    "**broken replies that the client saw**": lambda rows: f"**{_counted(rows, 'flaws').total()}**",
    "tokens of prompts": lambda rows: f"{_sum(rows, 'prompt_tokens'):,}",
    "tokens written": lambda rows: f"{_sum(rows, 'written_tokens'):,}",
    "minutes": lambda rows: f"{_sum(rows, 'seconds') / 60:.1f}",
}


def whole(done: Mapping[str, Mapping[str, Rows]]) -> str:
    """`done`: by client and way. A client of which nothing is there is left out."""
    columns: dict[tuple[str, str], list[Json]] = {}
    for client, ways in done.items():
        both = sorted(set.intersection(*(set(ways[way]) for way in WAYS)))
        if both:
            columns |= {(client, way): [ways[way][task] for task in both] for way in WAYS}
    if not columns:
        return "No task has been done both ways yet."
    head = [f"{client}, {way}" for client, way in columns]
    lines = [[name, *map(tell, columns.values())] for name, tell in _LINES.items()]
    table = pages.table(["", *head], lines)
    broken = ["Broken replies that a client saw, by what was wrong:\n"]
    for title, rows in zip(head, columns.values(), strict=True):
        flaws = _counted(rows, "flaws").most_common()
        said = ", ".join(f"{kind} {count}" for kind, count in flaws)
        broken.append(f"- {title}: {said or 'none'}")
    return "\n\n".join([table, "\n".join(broken), _kinds(columns)])


def _kinds(columns: Mapping[tuple[str, str], list[Json]]) -> str:
    """Of each way of spoiling: how often it was played, and how many tasks it was the end of."""
    played = {key: _counted(rows, "spoiled") for key, rows in columns.items()}
    ended = {
        key: Counter(row["last"] for row in rows if not row["done"])
        for key, rows in columns.items()
    }

    def cell(key: tuple[str, str], kind: str) -> str:
        lost = f" ({ended[key][kind]} lost)" if ended[key][kind] else ""
        return f"{played[key][kind]}{lost}"

    kinds = sorted({kind for counts in [*played.values(), *ended.values()] for kind in counts})
    lines = [[kind or "a good reply", *(cell(key, kind) for key in columns)] for kind in kinds]
    head = ["spoiled replies (tasks that ended with one, not done)"]
    return pages.table([*head, *(f"{client}, {way}" for client, way in columns)], lines)


def _sum(rows: Iterable[Json], name: str) -> Any:
    return sum(row[name] for row in rows)


def _counted(rows: Iterable[Json], name: str) -> Counter[str]:
    return sum((Counter(row[name]) for row in rows), Counter[str]())
