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
from .client import Remote, set_remote_command, with_zone

WIDTH: Final = 80
LABEL: Final = 10  # columns of a part's label
EVENING: Final = 20  # o'clock: a night begins then, and has twelve hours
DEFAULT: Final = "12h"

Found = dict[str, Any]  # the proxy's answer, or a part of it


def add_arguments(report: argparse.ArgumentParser) -> None:
    when = report.add_mutually_exclusive_group()
    when.add_argument(
        "--since", type=with_zone, default=DEFAULT, help="30m, 12h, 2d ago; or a time; default: 12h"
    )
    when.add_argument(
        "--night", action="store_true", help="from 8 in the evening to 8 in the morning, or now"
    )
    report.add_argument("--agent", metavar="NAME", help="only what this agent did")
    report.add_argument("--markdown", action="store_true", help="as Markdown")
    set_remote_command(report, run)


def run(remote: Remote, args: argparse.Namespace) -> None:
    since, until = night(time.time()) if args.night else (args.since, None)
    found = remote.ask("report", since=since, until=until, agent=args.agent)
    if args.json:
        print(json.dumps(found, indent=2))
        return
    for line in markdown(found) if args.markdown else screen(found):
        print(printable(line))


def night(now: float) -> tuple[float, float]:
    """Return when the last night began, and when it ended (or ``now``), in epoch seconds."""
    today = time.localtime(now)
    days_back = 0 if today.tm_hour >= EVENING else 1
    begin = time.mktime((*today[:2], today.tm_mday - days_back, EVENING, 0, 0, 0, 0, -1))
    return begin, min(now, begin + 12 * 3600)


def screen(found: Found) -> Iterator[str]:
    """Yield the report's lines. ``found``: the JSON of ``/mlx-stack/report``."""
    yield _title(found)
    for part in found["said"]:
        yield from _part(part["about"], part["lines"])
    yield from _part("advice", [line for one in found["advice"] for line in _advice(one)])


def _part(label: str, lines: list[str]) -> Iterator[str]:
    margin = " " * (LABEL + 1)
    for number, line in enumerate(lines):
        first = f"{label:<{LABEL}} " if not number else margin
        if line.startswith(" "):  # a command or a line for a file, to be copied: not wrapped
            yield f"{margin}{line}"
            continue
        yield from wrapped(line, WIDTH, first, f"{margin}  ")


def _advice(one: Found) -> list[str]:
    return [one["says"], f"  {one['setting'].rpartition('.')[0]}: {one['line']}"]


def markdown(found: Found) -> Iterator[str]:
    yield f"# {_title(found)}"
    for part in found["said"]:
        yield from ("", f"## {part['about'].capitalize()}", "")
        for line in part["lines"]:
            yield f"      {line.strip()}" if line.startswith(" ") else f"- {line}"
    if found["advice"]:
        yield from ("", "## Advice", "")
    for one in found["advice"]:
        yield f"- {one['says']} In `{one['setting'].rpartition('.')[0]}`: `{one['line']}`"


def _title(found: Found) -> str:
    begin, end = time.localtime(found["since"]), time.localtime(found["until"])
    same_day = begin[:3] == end[:3]
    until = time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", end)
    whose = f", {found['agent']}" if found["agent"] else ""
    return f"mlx-stack-proxy, {time.strftime('%Y-%m-%d %H:%M', begin)} to {until}{whose}"
