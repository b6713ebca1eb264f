"""``mlx-stack-proxy events`` and ``sessions``: list what a running proxy did, and for whom."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import deque
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import quote

import httpx

from ...printable import printable
from .. import print_error
from .client import Json, NoAnswer, Refused, Remote, set_remote_command, show, warned, with_zone

PATIENCE = 45.0  # seconds of silence in a stream; the proxy sends three keepalives in that time
RETRY_SECONDS = 1.0  # before a stream that has ended is opened again
MAX_EVENT = 4 * 1024 * 1024  # bytes
PAGE = 1000  # the most events in one answer
_HEAD = ["session", "agent", "turns", "used", "limit", "tier", "last seen", "last request"]


def add_events(events: argparse.ArgumentParser) -> None:
    add = events.add_argument
    add("--kind", help="e.g. escalated, loop_break")
    add("--session", help="a hash, its beginning, or a client's name")
    add("--agent", metavar="NAME", help="only events of this agent")
    add("--request", metavar="ID", help="an X-MLX-Stack-Request-Id")
    text = "30m, 12h or 2d ago, or a time such as 2026-11-22T08:00"
    add("--since", type=with_zone, help=text)
    amount = events.add_mutually_exclusive_group()
    amount.add_argument("--limit", type=int, default=50, help="how many of the newest; default: 50")
    amount.add_argument("--all", action="store_true", help="all stored events")
    add("--follow", "-f", action="store_true", help="follow new events until Ctrl-C")
    set_remote_command(events, list_events)


def list_events(remote: Remote, args: argparse.Namespace) -> None:
    names = ("kind", "session", "agent", "since", "limit")
    query = {**{name: getattr(args, name) for name in names}, "request_id": args.request}
    if args.follow:
        for event in follow(remote, query):
            _show(event, args.json)
            sys.stdout.flush()
        return
    events, total = newest(remote, query, sys.maxsize if args.all else args.limit)
    for event in events:
        _show(event, args.json)
    if len(events) < total:
        print(f"{len(events)} of {total} shown; --all shows the rest", file=sys.stderr)


def newest(remote: Remote, query: Json, limit: int) -> tuple[Collection[Json], int]:
    """Return the newest ``limit`` events of a query, oldest first, and the count of all matches.

    Asks page by page if one answer can't hold them. Raises :class:`NoAnswer`.
    """
    answer = warned(remote.ask("events", **{**query, "limit": min(limit, PAGE)}))
    if limit <= PAGE or answer["total"] <= PAGE:
        return answer["events"], answer["total"]
    events: deque[Json] = deque(maxlen=min(limit, answer["total"]))
    after = 0
    while page := remote.ask("events", **{**query, "limit": PAGE, "after": after})["events"]:
        events.extend(page)
        after = page[-1]["number"]
    return events, answer["total"]


def follow(remote: Remote, query: Json) -> Iterator[Json]:
    """Yield events as they happen, forever; a lost connection is opened again.

    Raises :class:`NoAnswer` if the proxy refuses, or can't be reached the first time.
    """
    headers = {"Accept": "text/event-stream"}
    connected = lost = False
    while True:
        why = "it ended the stream"
        try:
            with remote.open("events", query, headers=headers, patience=PATIENCE) as stream:
                if lost:
                    print("the proxy is back", file=sys.stderr)
                connected, lost = True, False
                for event in events_in(stream):
                    headers["Last-Event-ID"] = str(event["number"])
                    yield event
        except NoAnswer as error:
            if isinstance(error, Refused) or not connected:  # the proxy would refuse again
                raise
            why = str(error)
        if not lost:
            print_error(f"waiting for the proxy: {why}")
            lost = True
        time.sleep(RETRY_SECONDS)


def events_in(stream: httpx.Response) -> Iterator[Json]:
    """Yield the events of a stream. (httpx's own lines also end at a U+2028 within a string.)

    Raises :class:`Refused` if it is no stream of a proxy's events.
    """
    partial_line = b""
    for piece in stream.iter_raw():
        *lines, partial_line = (partial_line + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                try:
                    yield json.loads(line[6:])
                except (ValueError, RecursionError) as error:
                    raise Refused(f"an event that can't be read: {error}") from None
        if len(partial_line) > MAX_EVENT:
            raise Refused(f"an event of more than {MAX_EVENT:,} bytes: no proxy sends this")


def moment(seconds: float) -> str:
    """Return a time (seconds since the epoch) as local date and time of day."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _show(event: Json, as_json: bool) -> None:
    if as_json:
        print(json.dumps(event))
        return
    on_screen, when = sys.stdout.isatty(), moment(event["time"])
    if on_screen:  # the time of today, or the day
        when = when[11:] if when[:10] == moment(time.time())[:10] else when[5:16]
    origin = ""
    if event["session"]:  # who asked: the agent and the request, by which `why` finds it
        request = event.get("request_id") or event["session"][:12]
        origin = f"{event['tier']:<8} {event.get('agent') or '-'} {request} "
    line = printable(f"{when} {event['kind']:<18} {origin}{_detail(event)}".rstrip())
    width = shutil.get_terminal_size().columns
    print(line if len(line) <= width or not on_screen else f"{line[: width - 1]}…")


def _detail(event: Json) -> str:
    """Return an event's detail on one line; ``--json`` shows all of it."""
    detail = dict(event.get("detail") or {})
    why = {"escalated": "reason", "pressure_changed": "cause"}.get(event["kind"], "")
    if {"from", "to", why} <= detail.keys():
        return f"{detail['from']} > {detail['to']}, {detail[why]}"
    if event["kind"] == "exhausted":
        detail["attempts"] = len(detail.get("attempts") or ())
    detail.pop("pattern", None)  # a digest means nothing to a reader
    if detail.get("action") in ("warning", "circuit_break"):  # the event's kind says as much
        del detail["action"]
    parts = [f"{k}={_short(value)}" for k, value in detail.items() if value not in (None, "", [])]
    return " ".join(parts)


def _short(value: Any) -> str:
    match value:
        case float():
            return f"{value:g}"
        case bool():
            return "yes" if value else "no"
        case list():
            return ",".join(map(str, value))
    return str(value)


def add_sessions(sessions: argparse.ArgumentParser) -> None:
    add = sessions.add_argument
    add("session", nargs="?", help="a hash, its beginning, or a client's name")
    add("--delete", action="store_true", help="reset the session")
    add("--all", action="store_true", help="with --delete: reset all sessions")
    add("--agent", metavar="NAME", help="only sessions of this agent")
    add("--limit", type=int, default=20, help="number of sessions; default: 20")
    add("--offset", type=int, default=0, help="number of sessions to skip")
    set_remote_command(sessions, list_sessions)


def list_sessions(remote: Remote, args: argparse.Namespace) -> None:
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
