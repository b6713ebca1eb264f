"""The ways of asking that are compared, and the tables of their results, as Markdown.

The figures of a table are of the tasks that all its columns have done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import median

from benchmarks import pages
from benchmarks.intervals import difference, wilson
from benchmarks.records import PROXIED, Json, fingerprint

SEED = 7
MORE_SEEDS = (8, 9, 10)
# What decides about a result: after a change of it, older ones are of something else.
_OURS = [
    *(f"benchmarks/agents/{name}.py" for name in ("agent", "broken", "relay", "stack", "tasks")),
    "benchmarks/came.py",
    "app/mlx_stack_proxy/operator/local_stack/*.py",  # how LiteLLM and the servers start
    *("deploy/local/demo_tiers/*.py", "deploy/local/models/*/*.safetensors"),
]


@dataclass(frozen=True)
class Column:
    """``first``: the tier that the agent names. Without a proxy LiteLLM is asked."""

    title: str
    first: str = "fast"
    proxied: bool = False


COLUMNS = {
    "a": Column("fast alone"),
    "b": Column("standard alone", "standard"),
    "c": Column("fast through the proxy", proxied=True),
}


@dataclass(frozen=True)
class Part:
    """One column with one seed. Parts with faults have their own results."""

    column: str
    seed: int = SEED
    faults: bool = False

    @property
    def name(self) -> str:
        return f"{self.column} seed {self.seed}{' with faults' if self.faults else ''}"


GROUPS = {
    "main": [Part(key) for key in COLUMNS],
    "faults": [Part(key, faults=True) for key in COLUMNS],
    "seeds": [Part(key, seed) for seed in MORE_SEEDS for key in COLUMNS],
}


def keys(about: Iterable[str]) -> Callable[[Part], Json]:
    """Return the key of a part's results. ``about``: the server and its models."""
    about = list(about)
    codes = {
        key: fingerprint([*about, column.first], [*_OURS, *(PROXIED if column.proxied else ())])
        for key, column in COLUMNS.items()
    }
    return lambda part: {"code": codes[part.column], **vars(part)}


Rows = Sequence[Json]
Done = Mapping[Part, Mapping[int, Json]]  # the results of each part, by task
GOAL_SHARE, GOAL_SAVED = 0.5, 0.9
MARKER = "agents"  # in the documents


def whole(done: Done) -> str:
    """All tables for which there are results."""
    tables = {
        f"Seed {SEED}": GROUPS["main"],
        "With faults": GROUPS["faults"],
        **{f"Seed {seed}": [Part(key, seed) for key in COLUMNS] for seed in MORE_SEEDS},
    }
    found = []
    for title, parts in tables.items():
        if present := [part for part in parts if done.get(part)]:
            found.append(f"### {title}\n\n{_table(_common(present, done))}")
    if goals := _goals(done):
        found.append(f"### Goals\n\n{goals}")
    return "\n\n".join(found)


def _common(parts: Sequence[Part], done: Done) -> dict[Part, list[Json]]:
    """The rows of some parts, for the tasks that all of them have done."""
    tasks = sorted(set.intersection(*(set(done[part]) for part in parts)))
    return {part: [done[part][task] for task in tasks] for part in parts}


# What some rows come to


def _right(rows: Rows) -> list[bool]:
    return [row["right"] for row in rows]


def _all(rows: Rows, what: str) -> list[Json]:
    """The ``replies`` or the ``attempts`` of all rows."""
    return [one for row in rows for one in row[what]]


def _flaws(rows: Rows) -> Counter[str]:
    return Counter(reply["flaw"] for reply in _all(rows, "replies") if reply["flaw"])


def _by_fast(rows: Rows) -> float:
    """The share of the replies that the first tier has served."""
    replies = _all(rows, "replies")
    return sum(reply["tier"] == "fast" for reply in replies) / len(replies) if replies else 0.0


def _burnt(rows: Rows) -> int:
    return sum(attempt["tokens"] for attempt in _all(rows, "attempts") if attempt["loop"])


def _faults(rows: Rows) -> str:
    counts = Counter(one["fault"] for one in _all(rows, "attempts") if one["fault"])
    counts.update(["server killed"] * sum(bool(row.get("killed")) for row in rows))
    return _counts(counts) if counts.total() else ""


def _tokens(rows: Rows) -> str:
    tokens: Counter[str] = Counter()
    for attempt in _all(rows, "attempts"):
        tokens[attempt["model"]] += attempt["tokens"]
    return ", ".join(f"{model} {number:,}" for model, number in sorted(tokens.items()))


def _of_calls(rows: Rows, calls: int) -> str:
    some = [row for row in rows if row["calls"] == calls]
    return f"{sum(_right(some))} of {len(some)}" if some else ""


def _share(rows: Rows) -> str:
    return f"{sum(_right(rows))} ({sum(_right(rows)) / len(rows):.1%})"


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in counts.most_common()) or "–"


LINES: dict[str, Callable[[Rows], str]] = {
    "tasks": lambda rows: str(len(rows)),
    "**right**": lambda rows: "**{}** {}".format(*_share(rows).split(" ")),
    "95 % interval": lambda rows: "{:.1%} to {:.1%}".format(*wilson(sum(_right(rows)), len(rows))),
    **{f"right of those with {calls}": partial(_of_calls, calls=calls) for calls in range(1, 7)},
    "not right because of": lambda rows: _counts(
        Counter(row["wrong"] for row in rows if row["wrong"])
    ),
    "replies (turns) a task": lambda rows: f"{len(_all(rows, 'replies')) / len(rows):.1f}",
    "**broken replies that reached the agent**": lambda rows: f"**{_flaws(rows).total()}**",
    "of them": lambda rows: _counts(_flaws(rows)),
    "replies served by fast": lambda rows: f"{_by_fast(rows):.1%}" if _by_fast(rows) else "–",
    "tokens generated": _tokens,
    "tokens burnt in loops": lambda rows: f"{_burnt(rows):,}",
    "seconds a task, median": lambda rows: f"{median(row['seconds'] for row in rows):.1f}",
    "seconds in all": lambda rows: f"{sum(row['seconds'] for row in rows):,.0f}",
    "faults thrown in": _faults,
}


def _table(rows: Mapping[Part, Rows]) -> str:
    lines = [[name, *map(tell, rows.values())] for name, tell in LINES.items()]
    for against in "ab":
        of = next((one for part, one in rows.items() if part.column == against), None)
        said = [
            _more(one, of) if COLUMNS[part.column].proxied and of is not None else ""
            for part, one in rows.items()
        ]
        lines.insert(3, [f"more than {COLUMNS[against].title}", *said])
    head = ["", *(COLUMNS[part.column].title for part in rows)]
    return pages.table(head, [line for line in lines if any(line[1:])])


def _more(rows: Rows, of: Rows) -> str:
    one = difference(_right(rows), _right(of))
    said = f"{100 * one.share:+.1f} ({100 * one.low:+.1f} to {100 * one.high:+.1f}) points"
    chance = "< 0.001" if one.p < 0.001 else f"{one.p:.3f}"
    return f"{said}; {one.gained} gained, {one.lost} lost, p {chance}"


# The goals

_GOALS = (
    *("", "tasks", "right alone", "as many right as standard alone", "more than standard alone"),
    *("half of the replies by fast", "no broken reply reaches the agent"),
    "90 % fewer tokens burnt in loops than fast alone",
)


def _goals(done: Done) -> str:
    """Which goals are met: with each seed, with all of them together, and with faults."""
    seeds = {f"seed {seed}": [Part(key, seed) for key in COLUMNS] for seed in (SEED, *MORE_SEEDS)}
    found = {
        name: list(_common(parts, done).values())
        for name, parts in {**seeds, "with faults": GROUPS["faults"]}.items()
        if all(done.get(part) for part in parts)
    }
    several = [found[name] for name in seeds if name in found]
    if len(several) > 1:
        found["all seeds"] = [list(chain(*columns)) for columns in zip(*several, strict=True)]
    lines = [[name, *_judged(*columns)] for name, columns in found.items()]
    return pages.table(_GOALS, lines) if lines else ""


def _judged(alone: Rows, strong: Rows, proxied: Rows) -> list[str]:
    right, of_strong, flaws = sum(_right(proxied)), sum(_right(strong)), _flaws(proxied).total()
    saved = 1 - _burnt(proxied) / _burnt(alone) if _burnt(alone) else 0.0

    def said(value: str, is_met: bool) -> str:
        return f"{value}: {'met' if is_met else '**not met**'}"

    return [
        *(str(len(proxied)), _share(alone)),
        said(f"{right} to {of_strong}", right >= of_strong),
        _more(proxied, strong),
        said(f"{_by_fast(proxied):.1%}", _by_fast(proxied) >= GOAL_SHARE),
        said(f"{flaws}", not flaws),
        said(f"{saved:.1%}", saved >= GOAL_SAVED),
    ]
