"""The tables of a run, with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from benchmarks import pages
from benchmarks.intervals import wilson
from benchmarks.records import Json

Rows = Mapping[str, Mapping[int, Json]]  # for each way, the results by number
MARKER, MARKER_SHORT = "real-models", "real-models-short"
_VALID = ("right", "wrong", "needless")
_WRONG = ("wrong", "needless")


def whole(kinds: Mapping[str, Rows], titles: Mapping[str, str]) -> str:
    """Return all tables; a kind without results has none."""
    tables = (
        ("## Single questions", _SINGLE, _lines(kinds["single"], titles, _single)),
        ("## Agent tasks", _TASKS, _lines(kinds["agent"], titles, _tasks)),
        ("## ToolCallBench", _TASKS, _lines(kinds["toolcallbench"], titles, _tasks)),
    )
    return "\n\n".join(
        f"{heading}\n\n{pages.table(head, lines)}" for heading, head, lines in tables if lines
    )


def short(rows: Rows, titles: Mapping[str, str]) -> str:
    """Return the README's table of the single questions."""

    def cells(found: list[Json]) -> tuple[int, int]:
        verdicts = Counter(row["verdict"] for row in found)
        return sum(verdicts[verdict] for verdict in _VALID), verdicts["right"]

    head = ("", "questions", "valid replies", "the right call")
    return pages.table(head, _lines(rows, titles, cells))


_SINGLE = ("", "n", "valid", "right", "wrong calls", "calls as text", "no call where none was due",
           "errors", "attempts", "guided", "seconds")  # fmt: skip
_TASKS = ("", "n", "done", "ended on a call as text", "on an error", "by a limit", "seconds")


def _lines(
    rows: Rows, titles: Mapping[str, str], cells: Callable[[list[Json]], Sequence[object]]
) -> list[list[str]]:
    """A line for each way that has results: its title, how many there are, and its cells."""
    return [
        [titles[way], str(len(found)), *map(str, cells([*found.values()]))]
        for way, found in rows.items()
        if found
    ]


def _single(found: list[Json]) -> Sequence[object]:
    n, verdicts = len(found), Counter(row["verdict"] for row in found)
    prose = [row for row in found if row["category"].endswith("irrelevance")]
    kept = sum(not row["tool_calls"] and row["verdict"] == "right" for row in prose)
    attempts = sum(row.get("attempts", 1) for row in found) / n
    guided = sum("guided" in row.get("repairs", "").split(",") for row in found)
    shares = [_share(sum(verdicts[v] for v in _VALID), n), _share(verdicts["right"], n)]
    counts = (sum(verdicts[v] for v in _WRONG), verdicts["text_call"])
    ends = (f"{kept} of {len(prose)}", verdicts["error"], f"{attempts:.2f}", guided)
    return [*shares, *counts, *ends, _median(found)]


def _tasks(found: list[Json]) -> Sequence[object]:
    n, done = len(found), sum(row["done"] for row in found)
    text = sum(row["end"] == "text_call" or row.get("text_call", False) for row in found)
    errors = Counter(_status(row) for row in found if row["end"].startswith("error"))
    said = ", ".join(f"{count} × {status}" for status, count in errors.items()) or "0"
    limits = sum(row["end"] in ("limit", "time") for row in found)
    return [_share(done, n), text, said, limits, _median(found)]


def _status(row: Json) -> str:
    found = [word for word in row.get("error", "").split() if word.isdecimal() and len(word) == 3]
    return row["end"].removeprefix("error").strip() or (found[0] if found else "error")


def _share(part: int, n: int) -> str:
    low, high = wilson(part, n)
    return f"{part} ({100 * part / n:.0f} %, {100 * low:.0f} to {100 * high:.0f})"


def _median(found: list[Json]) -> str:
    seconds = sorted(row["seconds"] for row in found)
    return f"{seconds[len(seconds) // 2]:.0f}"
