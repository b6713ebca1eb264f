"""``mlx-stack-proxy status``, ``report``, ``sessions`` and ``events``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from ...local_address import local_url
from ...printable import printable
from ...settings_source import load
from . import events, report
from .client import NoAnswer, Remote


def add_commands(commands: Any) -> None:
    """The commands' arguments."""
    look = commands.add_parser("status", help="a running proxy and its tiers, on one screen")
    look.add_argument(
        *("--watch", "-w"),
        metavar="SECONDS",
        nargs="?",
        type=float,
        const=2.0,
        help="redraw until Ctrl-C, every 2 s if nothing else is said",
    )
    look.set_defaults(run=_with(_status))
    told = commands.add_parser("report", help="what happened in the last hours, in a few sentences")
    report.add_arguments(told)
    told.set_defaults(run=_with(report.run))
    sessions = commands.add_parser("sessions", help="a running proxy's sessions, by last use")
    sessions.add_argument("session", nargs="?", help="a hash, its beginning, or a client's name")
    sessions.add_argument("--delete", action="store_true", help="reset that session")
    sessions.add_argument("--limit", type=int, default=20)
    sessions.add_argument("--offset", type=int, default=0)
    sessions.set_defaults(run=_with(_sessions))
    kept = commands.add_parser("events", help="what a running proxy did, oldest first")
    events.add_arguments(kept)
    kept.set_defaults(run=_with(events.run))
    for command in (look, told, sessions, kept):
        command.add_argument("--url", help="default: server.host and port of the configuration")
        command.add_argument("--config", metavar="FILE")
        command.add_argument("--json", action="store_true", help="as JSON")


def _with(run: Any) -> Any:
    def command(args: argparse.Namespace) -> int:
        settings = load(args.config)
        remote = Remote(args.url or local_url(settings), settings.server.admin_key)
        try:
            run(remote, args)
        except NoAnswer as error:
            print(error, file=sys.stderr)
            return 1
        return 0

    return command


def _status(remote: Remote, args: argparse.Namespace) -> None:
    from . import status

    status.run(remote, args)


def _sessions(remote: Remote, args: argparse.Namespace) -> None:
    if args.session is not None:
        method = "DELETE" if args.delete else "GET"
        _print_json(remote.ask(f"sessions/{quote(args.session, safe='')}", method))
        return
    if args.delete:
        raise NoAnswer("--delete needs a session")
    found = remote.ask("sessions", limit=args.limit, offset=args.offset)
    if args.json:
        _print_json(found)
        return
    rows = [["session", "turns", "used", "limit", "tier", "last seen"]]
    for one in found["sessions"]:
        seen = events.moment(one["last_seen"])
        counts = [str(one["turns"]), str(one["used"]), str(one["limit"])]
        rows.append([one["session"][:12], *counts, one["tier"], seen])
    _print_table(rows)
    print(f"{len(found['sessions'])} of {found['total']}")


def _print_json(found: Any) -> None:
    print(json.dumps(found, indent=2))


def _print_table(rows: Iterable[list[str]]) -> None:
    whole = list(rows)
    widths = [max(len(row[column]) for row in whole) for column in range(len(whole[0]))]
    for row in whole:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(printable(line.rstrip()))
