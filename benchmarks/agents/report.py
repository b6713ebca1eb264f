"""The tables, as Markdown; those of a table are of the tasks that all its columns have done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any

from benchmarks import pages
from benchmarks.intervals import Difference, difference, wilson

from .columns import COLUMNS, GROUPS, MORE_SEEDS, SEED, Part
from .records import Records

Json = dict[str, Any]
GOAL_SHARE, GOAL_SAVED = 0.5, 0.9
KILLED = "server killed"
MARKER = "agents"  # in the documents


@dataclass(frozen=True)
class Figures:
    """What one column came to, over its tasks."""

    tasks: int
    right: int
    ends: Counter[str]
    by_calls: dict[int, tuple[int, int]]
    replies: int
    flaws: Counter[str]
    by_fast: int
    tokens: Counter[str]
    loop_tokens: int
    seconds: float
    median_seconds: float
    faults: Counter[str]


def figures(rows: Iterable[Json]) -> Figures:
    rows = list(rows)
    replies = [reply for row in rows for reply in row["replies"]]
    attempts = [attempt for row in rows for attempt in row["attempts"]]
    tokens: Counter[str] = Counter()
    for attempt in attempts:
        tokens[attempt["model"]] += attempt["tokens"]
    by_calls = {}
    for calls in sorted({row["calls"] for row in rows}):
        some = [row["right"] for row in rows if row["calls"] == calls]
        by_calls[calls] = (sum(some), len(some))
    return Figures(
        len(rows),
        sum(row["right"] for row in rows),
        Counter(row["wrong"] for row in rows if row["wrong"]),
        by_calls,
        len(replies),
        Counter(reply["flaw"] for reply in replies if reply["flaw"]),
        sum(reply["tier"] == "fast" for reply in replies),
        tokens,
        sum(attempt["tokens"] for attempt in attempts if attempt["loop"]),
        sum(row["seconds"] for row in rows),
        median(row["seconds"] for row in rows) if rows else 0.0,
        Counter(attempt["fault"] for attempt in attempts if attempt["fault"])
        + Counter(KILLED for row in rows if row.get("killed")),
    )


def whole(records: Records, parts: Sequence[Part], tasks: int) -> str:
    """All tables for which there are results."""
    rows = {part: _first(records.read(part), tasks) for part in _known(parts)}
    found = []
    for title, some in _tables(parts):
        present = [part for part in some if rows.get(part)]
        if present:
            found += [f"### {title}", "", _table(present, _common(present, rows)), ""]
    found += _goals(rows)
    return "\n".join(found)


def _common(
    parts: Sequence[Part], rows: dict[Part, dict[int, Json]]
) -> dict[Part, dict[int, Json]]:
    """The rows of some parts, for the tasks that all of them have done."""
    tasks = set.intersection(*(set(rows[part]) for part in parts))
    kept = {part: {task: rows[part][task] for task in sorted(tasks)} for part in parts}
    return {**rows, **kept}


def _known(parts: Sequence[Part]) -> list[Part]:
    """The parts, and what they are compared with."""
    return list(dict.fromkeys([*parts, *(Part(key) for key in COLUMNS)]))


def _first(rows: dict[int, Json], tasks: int) -> dict[int, Json]:
    return {task: row for task, row in rows.items() if task < tasks}


def _tables(parts: Sequence[Part]) -> Iterable[tuple[str, list[Part]]]:
    yield f"Seed {SEED}", [part for part in parts if part in GROUPS["main"]]
    yield "With faults", [part for part in parts if part.faults]
    for seed in MORE_SEEDS:
        yield f"Seed {seed}", [part for part in parts if part.seed == seed]


def _table(parts: Sequence[Part], rows: dict[Part, dict[int, Json]]) -> str:
    done = {part: figures(rows[part].values()) for part in parts}
    head = ["", *(COLUMNS[part.column].title for part in parts)]
    lines: list[list[str]] = []

    def line(name: str, say: Callable[[Figures], str]) -> None:
        lines.append([name, *(say(done[part]) for part in parts)])

    line("tasks", lambda one: str(one.tasks))
    line("**right**", lambda one: f"**{one.right}** ({one.right / one.tasks:.1%})")
    line("95 % interval", lambda one: _range(wilson(one.right, one.tasks)))
    for against in "ba":
        said = [_against(part, against, rows) for part in parts]
        if any(said):
            lines.append([f"more than {COLUMNS[against].title}", *said])
    for calls in range(1, 7):
        of_so_many = (_of(done[part].by_calls, calls) for part in parts)
        lines.append([f"right of those with {calls}", *of_so_many])
    line("not right because of", lambda one: _counts(one.ends))
    line("replies (turns) a task", lambda one: f"{one.replies / one.tasks:.1f}")
    line("**broken replies that reached the agent**", lambda one: f"**{one.flaws.total()}**")
    line("of them", lambda one: _counts(one.flaws))
    line("replies served by fast", _served)
    line("tokens generated", lambda one: _tokens(one.tokens))
    line("tokens burnt in loops", lambda one: f"{one.loop_tokens:,}")
    line("seconds a task, median", lambda one: f"{one.median_seconds:.1f}")
    line("seconds in all", lambda one: f"{one.seconds:,.0f}")
    if any(one.faults for one in done.values()):
        line("faults thrown in", lambda one: _counts(one.faults))
    return pages.table(head, lines)


def _against(part: Part, other: str, rows: dict[Part, dict[int, Json]]) -> str:
    basis = rows.get(Part(other, part.seed, part.faults))
    if not COLUMNS[part.column].proxied or not basis:
        return ""
    common = sorted(rows[part].keys() & basis.keys())
    if not common:
        return ""
    return _words(
        difference(
            [rows[part][task]["right"] for task in common],
            [basis[task]["right"] for task in common],
        )
    )


def _words(one: Difference) -> str:
    said = f"{100 * one.share:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f}) points"
    return f"{said}; {one.gained} gained, {one.lost} lost, p {_p(one.p)}"


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.1%} to {ends[1]:.1%}"


def _of(by_calls: dict[int, tuple[int, int]], calls: int) -> str:
    right, count = by_calls.get(calls, (0, 0))
    return f"{right} of {count}" if count else ""


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in counts.most_common()) or "–"


def _served(one: Figures) -> str:
    return f"{one.by_fast / one.replies:.1%}" if one.by_fast and one.replies else "–"


def _tokens(tokens: Counter[str]) -> str:
    return ", ".join(f"{model} {number:,}" for model, number in sorted(tokens.items()))


def _goals(rows: dict[Part, dict[int, Json]]) -> list[str]:
    """Which goals are met: with each seed, with all of them together, and with faults."""
    seeds = {f"seed {seed}": [Part(key, seed) for key in COLUMNS] for seed in (SEED, *MORE_SEEDS)}
    runs = {**seeds, "with faults": list(GROUPS["faults"])}
    found: dict[str, list[list[Json]]] = {}
    for name, parts in runs.items():
        if all(rows.get(part) for part in parts):
            common = _common(parts, rows)
            found[name] = [list(common[part].values()) for part in parts]
    several = [found[name] for name in seeds if name in found]
    if len(several) > 1:
        found["all seeds"] = [list(chain(*columns)) for columns in zip(*several, strict=True)]
    lines = [[name, *_judged(columns)] for name, columns in found.items()]
    return ["### Goals", "", pages.table(_GOALS, lines)] if lines else []


_GOALS = (
    *("", "tasks", "right alone", "as many right as standard alone", "more than standard alone"),
    *("half of the replies by fast", "no broken reply reaches the agent"),
    "90 % fewer tokens burnt in loops than fast alone",
)


def _judged(columns: Sequence[Sequence[Json]]) -> list[str]:
    a, b, c = (figures(column) for column in columns)
    share = c.by_fast / c.replies if c.replies else 0.0
    saved = 1 - c.loop_tokens / a.loop_tokens if a.loop_tokens else 0.0
    _, strong, proxied = ([row["right"] for row in column] for column in columns)

    def said(value: str, is_met: bool) -> str:
        return f"{value}: {'met' if is_met else '**not met**'}"

    return [
        *(str(c.tasks), f"{a.right} ({a.right / a.tasks:.1%})"),
        said(f"{c.right} to {b.right}", c.right >= b.right),
        _words(difference(proxied, strong)),
        said(f"{share:.1%}", share >= GOAL_SHARE),
        said(f"{c.flaws.total()}", not c.flaws.total()),
        said(f"{saved:.1%}", saved >= GOAL_SAVED),
    ]
