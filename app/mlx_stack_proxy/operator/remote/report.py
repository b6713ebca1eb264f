"""``mlx-stack-proxy report``: what happened in the last hours, on one screen of 80 columns.

The proxy writes the sentences (``/mlx-stack/report``); this module lays them out.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any, Final

from ...printable import printable, wrapped
from .client import Remote, set_remote_command, warned, with_zone

WIDTH: Final = 80
LABEL: Final = 10  # columns of a part's label
EVENING: Final = 20  # o'clock: a night begins then, and has twelve hours
DEFAULT: Final = "12h"

Json = dict[str, Any]  # the proxy's answer, or a part of it


def add_arguments(report: argparse.ArgumentParser) -> None:
    when = report.add_mutually_exclusive_group()
    when.add_argument(
        "--since",
        type=with_zone,
        default=DEFAULT,
        help="30m, 12h or 2d ago, or a time; default: 12h",
    )
    when.add_argument(
        "--night", action="store_true", help="from 8 in the evening to 8 in the morning, or now"
    )
    report.add_argument("--agent", metavar="NAME", help="only what this agent did")
    report.add_argument("--markdown", action="store_true", help="print Markdown")
    set_remote_command(report, run)


def run(remote: Remote, args: argparse.Namespace) -> None:
    since, until = night(time.time()) if args.night else (args.since, None)
    answer = warned(remote.ask("report", since=since, until=until, agent=args.agent))
    if args.json:
        print(json.dumps(answer, indent=2))
        return
    for line in markdown(answer) if args.markdown else screen(answer):
        print(printable(line))


def night(now: float) -> tuple[float, float]:
    """Return when the last night began, and when it ended (or ``now``), in epoch seconds."""
    today = time.localtime(now)
    days_back = 0 if today.tm_hour >= EVENING else 1
    start = time.mktime((*today[:2], today.tm_mday - days_back, EVENING, 0, 0, 0, 0, -1))
    return start, min(now, start + 12 * 3600)


def screen(report: Json) -> Iterator[str]:
    """Yield the report's lines. ``report``: the JSON of ``/mlx-stack/report``."""
    yield _title(report)
    for part in report["said"]:
        yield from _part(part["about"], part["lines"])
    yield from _part("advice", [line for item in report["advice"] for line in _advice(item)])


def _part(label: str, lines: list[str]) -> Iterator[str]:
    margin = " " * (LABEL + 1)
    for number, line in enumerate(lines):
        first = f"{label:<{LABEL}} " if not number else margin
        if line.startswith(" "):  # a command or a line for a file, to be copied: not wrapped
            yield f"{margin}{line}"
            continue
        yield from wrapped(line, WIDTH, first, f"{margin}  ")


def _advice(item: Json) -> list[str]:
    return [item["says"], f"  {item['setting'].rpartition('.')[0]}: {item['line']}"]


def markdown(report: Json) -> Iterator[str]:
    yield f"# {_title(report)}"
    for part in report["said"]:
        yield from ("", f"## {part['about'].capitalize()}", "")
        for line in part["lines"]:
            yield f"      {line.strip()}" if line.startswith(" ") else f"- {line}"
    if report["advice"]:
        yield from ("", "## Advice", "")
    for item in report["advice"]:
        yield f"- {item['says']} In `{item['setting'].rpartition('.')[0]}`: `{item['line']}`"


def _title(report: Json) -> str:
    start, end = time.localtime(report["since"]), time.localtime(report["until"])
    same_day = start[:3] == end[:3]
    until = time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", end)
    agent = f", {report['agent']}" if report["agent"] else ""
    return f"mlx-stack-proxy, {time.strftime('%Y-%m-%d %H:%M', start)} to {until}{agent}"
