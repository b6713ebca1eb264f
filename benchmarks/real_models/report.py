"""The tables of a run, with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from benchmarks import pages
from benchmarks.intervals import wilson
from benchmarks.records import Json

Rows = Mapping[str, Mapping[int, Json]]  # for each way, the results by number
MARKER, MARKER_SHORT = "real-models", "real-models-short"
_VALID = ("right", "wrong", "needless")
_WRONG = ("wrong", "needless")


def whole(kinds: Mapping[str, Rows], titles: Mapping[str, str]) -> str:
    """Return all tables; a kind without results has none."""
    tables = [
        ("## Single questions", _single(kinds["single"], titles)),
        ("## Agent tasks", _tasks(kinds["agent"], titles)),
        ("## ToolCallBench", _tasks(kinds["toolcallbench"], titles)),
    ]
    return "\n\n".join(f"{heading}\n\n{table}" for heading, table in tables if table)


def short(rows: Rows, titles: Mapping[str, str]) -> str:
    """Return the README's table of the single questions."""
    lines = []
    for way, found in rows.items():
        verdicts = Counter(row["verdict"] for row in found.values())
        counts = (len(found), sum(verdicts[verdict] for verdict in _VALID), verdicts["right"])
        lines += [[titles[way], *map(str, counts)]] if found else []
    return pages.table(("", "questions", "valid replies", "the right call"), lines)


_SINGLE = ("", "n", "valid", "right", "wrong calls", "calls as text", "no call where none was due",
           "errors", "attempts", "guided", "seconds")  # fmt: skip
_TASKS = ("", "n", "done", "ended on a call as text", "on an error", "by a limit", "seconds")


def _single(rows: Rows, titles: Mapping[str, str]) -> str:
    lines = []
    for way, found in [one for one in rows.items() if one[1]]:
        n, verdicts = len(found), Counter(row["verdict"] for row in found.values())
        prose = [row for row in found.values() if row["category"].endswith("irrelevance")]
        kept = sum(not row["tool_calls"] and row["verdict"] == "right" for row in prose)
        attempts = sum(row.get("attempts", 1) for row in found.values()) / n
        guided = sum("guided" in row.get("repairs", "").split(",") for row in found.values())
        shares = [_share(sum(verdicts[v] for v in _VALID), n), _share(verdicts["right"], n)]
        counts = (sum(verdicts[v] for v in _WRONG), verdicts["text_call"])
        ends = (f"{kept} of {len(prose)}", verdicts["error"], f"{attempts:.2f}", guided)
        cells = (titles[way], n, *shares, *counts, *ends, _median(found))
        lines.append([str(cell) for cell in cells])
    return pages.table(_SINGLE, lines) if lines else ""


def _tasks(rows: Rows, titles: Mapping[str, str]) -> str:
    lines = []
    for way, found in [one for one in rows.items() if one[1]]:
        n, done = len(found), sum(row["done"] for row in found.values())
        text = sum(
            row["end"] == "text_call" or row.get("text_call", False) for row in found.values()
        )
        errors = Counter(_status(row) for row in found.values() if row["end"].startswith("error"))
        said = ", ".join(f"{count} × {status}" for status, count in errors.items()) or "0"
        limits = sum(row["end"] in ("limit", "time") for row in found.values())
        cells = (titles[way], n, _share(done, n), text, said, limits, _median(found))
        lines.append([str(cell) for cell in cells])
    return pages.table(_TASKS, lines) if lines else ""


def _status(row: Json) -> str:
    found = [word for word in row.get("error", "").split() if word.isdecimal() and len(word) == 3]
    return row["end"].removeprefix("error").strip() or (found[0] if found else "error")


def _share(part: int, n: int) -> str:
    low, high = wilson(part, n)
    return f"{part} ({100 * part / n:.0f} %, {100 * low:.0f} to {100 * high:.0f})"


def _median(found: Mapping[int, Json]) -> str:
    seconds = sorted(row["seconds"] for row in found.values())
    return f"{seconds[len(seconds) // 2]:.0f}"
