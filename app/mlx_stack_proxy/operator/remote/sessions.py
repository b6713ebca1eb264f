"""``mlx-stack-proxy sessions``: list a running proxy's sessions, show one, reset one or all."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from urllib.parse import quote

from .client import Json, NoAnswer, Remote, set_remote_command, show, warned
from .events import moment

_HEAD = ["session", "agent", "turns", "used", "limit", "tier", "last seen", "last request"]


def add_sessions(sessions: argparse.ArgumentParser) -> None:
    sessions.add_argument("session", nargs="?", help="a hash, its beginning, or a client's name")
    sessions.add_argument("--delete", action="store_true", help="reset the session")
    sessions.add_argument("--all", action="store_true", help="with --delete: reset all sessions")
    sessions.add_argument("--agent", metavar="NAME", help="only sessions of this agent")
    sessions.add_argument("--limit", type=int, default=20, help="how many; default: 20")
    sessions.add_argument("--offset", type=int, default=0, help="how many to skip")
    set_remote_command(sessions, run)


def run(remote: Remote, args: argparse.Namespace) -> None:
    if args.session is None and args.delete != args.all:
        raise NoAnswer("--delete needs a session or --all, and --all needs --delete")
    if args.session is None and not args.delete:
        query = {"limit": args.limit, "offset": args.offset, "agent": args.agent}
        answer = warned(remote.ask("sessions", **query))
        show(answer, args, _table(answer))
        return
    path = "sessions" if args.session is None else f"sessions/{quote(args.session, safe='')}"
    print(json.dumps(remote.ask(path, "DELETE" if args.delete else "GET"), indent=2))


def _table(answer: Json) -> Iterator[str]:
    rows = [_HEAD]
    for session in answer["sessions"]:
        counts = [str(session[name]) for name in ("turns", "used", "limit")]
        last = [moment(session["last_seen"]), session.get("request_id") or "-"]
        who = session.get("agent") or "-"
        rows.append([session["session"][:12], who, *counts, session["tier"], *last])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()
    yield f"{len(answer['sessions'])} of {answer['total']}"
