"""``mlx-stack-proxy sessions``: list a running proxy's sessions, show one, reset one or all."""

from __future__ import annotations

import argparse
import json
from typing import Any
from urllib.parse import quote

from ...printable import printable
from .client import NoAnswer, Remote, set_remote_command, warned
from .events import moment


def add_arguments(sessions: argparse.ArgumentParser) -> None:
    sessions.add_argument("session", nargs="?", help="a hash, its beginning, or a client's name")
    sessions.add_argument("--delete", action="store_true", help="reset the session")
    sessions.add_argument("--all", action="store_true", help="with --delete: reset all sessions")
    sessions.add_argument("--agent", metavar="NAME", help="only sessions of this agent")
    sessions.add_argument("--limit", type=int, default=20, help="how many; default: 20")
    sessions.add_argument("--offset", type=int, default=0, help="how many to skip")
    set_remote_command(sessions, run)


def run(remote: Remote, args: argparse.Namespace) -> None:
    if args.session is not None:
        method = "DELETE" if args.delete else "GET"
        answer = remote.ask(f"sessions/{quote(args.session, safe='')}", method)
    elif args.delete and args.all:
        answer = remote.ask("sessions", "DELETE")
    elif args.delete or args.all:
        raise NoAnswer("--delete needs a session or --all, and --all needs --delete")
    else:
        answer = warned(
            remote.ask("sessions", limit=args.limit, offset=args.offset, agent=args.agent)
        )
    if args.json or args.session is not None or args.delete:
        print(json.dumps(answer, indent=2))
        return
    rows = [["session", "agent", "turns", "used", "limit", "tier", "last seen", "last request"]]
    rows += [_row(session) for session in answer["sessions"]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(printable(line.rstrip()))
    print(f"{len(answer['sessions'])} of {answer['total']}")


def _row(session: dict[str, Any]) -> list[str]:
    counts = [str(session["turns"]), str(session["used"]), str(session["limit"])]
    when, who = moment(session["last_seen"]), session.get("agent") or "-"
    request = session.get("request_id") or "-"
    return [session["session"][:12], who, *counts, session["tier"], when, request]
