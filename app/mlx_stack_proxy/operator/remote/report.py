"""``mlx-stack-proxy report`` and ``why``: what happened in the last hours, or to one exchange.

The proxy writes the sentences (``/mlx-stack/report``, ``/mlx-stack/exchanges/ID``); this module
lays them out in 80 columns.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from ...printable import printable, wrapped
from .. import WIDTH
from .client import Json, Remote, set_remote_command, show, warned, with_zone

LABEL: Final = 10  # columns of a part's label
EVENING: Final = 20  # o'clock: a night begins then, and has twelve hours


def add_report(parser: argparse.ArgumentParser) -> None:
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--since", type=with_zone, default="12h", help="30m, 12h or 2d ago, or a time; default: 12h"
    )
    when.add_argument("--night", action="store_true", help="from 20:00 to 08:00, or until now")
    parser.add_argument("--agent", metavar="NAME", help="only figures of this agent")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    set_remote_command(parser, report)


def add_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "request",
        nargs="?",
        default="last",
        metavar="ID",
        help="an X-MLX-Stack-Request-Id; default: last, the newest not right at once",
    )
    parser.add_argument("--agent", metavar="NAME", help="the newest of this agent")
    set_remote_command(parser, why)


def report(remote: Remote, args: argparse.Namespace) -> None:
    since, until = night(time.time()) if args.night else (args.since, None)
    answer = warned(remote.ask("report", since=since, until=until, agent=args.agent))
    show(answer, args, markdown(answer) if args.markdown else screen(answer))


def why(remote: Remote, args: argparse.Namespace) -> None:
    answer = remote.ask(f"exchanges/{quote(args.request, safe='')}", agent=args.agent)
    head = f"{answer['request_id']}  {answer['agent'] or ''}".rstrip()
    show(answer, args, [head, *wrapped(printable(answer["why"]), WIDTH)])


def night(now: float) -> tuple[float, float]:
    """Return when the last night began, and when it ended (or ``now``), in epoch seconds."""
    today = time.localtime(now)
    days_back = 0 if today.tm_hour >= EVENING else 1
    start = time.mktime((*today[:2], today.tm_mday - days_back, EVENING, 0, 0, 0, 0, -1))
    return start, min(now, start + 12 * 3600)


def screen(report: Json) -> Iterator[str]:
    """Yield the report's lines. ``report``: the JSON of ``/mlx-stack/report``."""
    yield _title(report)
    parts = [(part["about"], part["lines"]) for part in report["said"]]
    for item in report["advice"]:
        parts.append(("advice", [item["says"], f"  {_section(item)}: {item['line']}"]))
    margin, last = " " * (LABEL + 1), ""
    for label, lines in parts:
        for line in lines:
            first, last = margin if label == last else f"{label:<{LABEL}} ", label
            if line.startswith(" "):  # a command or a line for a file, to be copied: not wrapped
                yield f"{margin}{line}"
            else:
                yield from wrapped(line, WIDTH, first, f"{margin}  ")


def markdown(report: Json) -> Iterator[str]:
    yield f"# {_title(report)}"
    for part in report["said"]:
        yield from ("", f"## {part['about'].capitalize()}", "")
        for line in part["lines"]:
            yield f"      {line.strip()}" if line.startswith(" ") else f"- {line}"
    if report["advice"]:
        yield from ("", "## Advice", "")
    for item in report["advice"]:
        yield f"- {item['says']} In `{_section(item)}`: `{item['line']}`"


def _section(advice: Json) -> str:
    return str(advice["setting"].rpartition(".")[0])


def _title(report: Json) -> str:
    start, end = time.localtime(report["since"]), time.localtime(report["until"])
    same_day = start[:3] == end[:3]
    until = time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", end)
    agent = f", {report['agent']}" if report["agent"] else ""
    return f"mlx-stack-proxy, {time.strftime('%Y-%m-%d %H:%M', start)} to {until}{agent}"
