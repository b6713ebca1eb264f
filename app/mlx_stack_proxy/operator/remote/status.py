"""``mlx-stack-proxy status``: show a running proxy on one screen of 80 columns."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections import defaultdict

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...printable import printable, printable_in, without_credentials
from .client import Json, NoAnswer, Refused, Remote, on_configuration, set_remote_command

PIPED = 120  # columns, where the output is not a terminal
BAR = 20  # characters of a budget's bar
NAME = 24  # characters of a budget's name, at most
_STATES = {"ok": "green", "degraded": "bold red", "normal": "green", "warning": "yellow"}


def add_status(status: argparse.ArgumentParser) -> None:
    status.add_argument(
        *("--watch", "-w"),
        metavar="SECONDS",
        nargs="?",
        type=float,
        const=2.0,
        help="redraw until Ctrl-C; default: every 2 s",
    )
    set_remote_command(status, run)


def run(remote: Remote, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(remote.ask("status"), indent=2))
        return
    # PIPED is wide enough that nothing is cut in a pipe.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED)
    if args.watch is None:
        console.print(screen(remote.ask("status"), remote.url, time.time()))
        return
    live = Live(console=console, screen=True, auto_refresh=False) if console.is_terminal else None
    with live or contextlib.nullcontext():
        while True:
            try:
                shown: Group | Text = screen(remote.ask("status"), remote.url, time.time())
            except Refused:
                raise
            except NoAnswer as error:  # it may come back
                text = without_credentials(f"{time.strftime('%H:%M:%S')} {error}")
                shown = Text(printable(text), style="bold red")
            if live is not None:
                live.update(shown, refresh=True)
            else:
                console.print(shown, "")
                sys.stdout.flush()
            time.sleep(max(args.watch, 0.1))


def screen(status: Json, url: str, now: float) -> Group:
    """Return the screen. ``status``: the whole status; ``now``: seconds since the epoch."""
    status, url = printable_in(status), printable(without_credentials(url))
    return Group(_head(status, url, now), Text(), _tiers(status, now), Text(), _totals(status))


def _head(status: Json, url: str, now: float) -> Text:
    line = Text(style="bold")
    sentence, refused = on_configuration(status["configuration"])
    if sentence:  # first: it may explain all else
        line.append(f"{sentence}\n", style="bold red" if refused else "yellow")
    since = "stopping" if status["stopping"] else f"up {_span(now - status['started'])}"
    line.append(f"mlx-stack-proxy {status['version']} at {url}, {since}")
    sessions = "?" if status["sessions"] is None else number(status["sessions"])
    plural = "" if status["sessions"] == 1 else "s"
    line.append(f"\n{status['running']} running, {sessions} session{plural}", style="not bold")
    if (memory := status.get("memory_pressure")) is not None:
        level = str(memory["level"])
        causes = [memory.get("cause"), "sustained" if memory.get("sustained") else None]
        because = ", ".join(cause for cause in causes if cause and level != "normal")
        text = f"{level} ({because})" if because else level
        line.append(", memory ", style="not bold")
        line.append(text, style=f"not bold {_STATES.get(level, 'bold red')}")
    for name, state in (("LiteLLM", status["litellm"]), ("store", status["store"])):
        if state != "ok":
            line.append(f"\n{name}: {state}", style="bold red")
    return line


def _tiers(status: Json, now: float) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("tier", max_width=12, no_wrap=True, overflow="ellipsis")
    table.add_column("state", no_wrap=True)
    for name in ("calls", "queue", "tok/s", "attempts", "failed", "retries", "moved"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, tier in status["tiers"].items():
        calls = f"{tier['in_flight']}/{tier['max_concurrency']}"
        tokens = tier["tokens_per_second"]
        rate = number(tokens) if tokens >= 1000 else f"{tokens:.1f}" if tokens else "-"
        day = (status["day"] or {}).get("by_tier", {}).get(name, {})
        counts = [number(day.get(key, 0)) for key in ("attempts", "failed", "retries", "left")]
        waiting = number(tier["waiting"])
        table.add_row(name, _state(tier, now), calls, waiting, rate, *counts)
    return table


def _state(tier: Json, now: float) -> Text:
    state = str(tier["state"])
    seconds = round((tier["degraded_until"] or 0) - now)
    label = f"down {_span(seconds)}" if seconds > 0 else "probing" if state == "degraded" else state
    return Text(label, style=_STATES.get(state, "bold red"))


_TOTALS = (
    ("24 hours", "{requests}, {turns} delivered, {retries}, {left} moved up"),
    ("tool calls", "{invalid_calls} invalid, {repairs} repaired, {calls_found} found in text"),
    ("loops", "{loops_told} warned, {loops_broken} broken, {loops_cut} shortened"),
    ("tokens", "{tokens_in} in, {tokens_out} out, {tokens_saved} saved at most"),
)
_NOUNS = (
    ("requests", "request", "requests"),
    ("retries", "retry", "retries"),
    ("loops_cut", "reply", "replies"),
)


def _totals(status: Json) -> Table:
    day = status["day"]
    counts: Json = day["totals"] if day else {}
    texts = defaultdict(lambda: "0" if day else "?", {k: number(n) for k, n in counts.items()})
    for name, singular, plural in _NOUNS:
        texts[name] = f"{texts[name]} {singular if counts.get(name) == 1 else plural}"
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(style="dim", max_width=NAME, no_wrap=True, overflow="ellipsis")
    table.add_column()
    for name, text in _TOTALS:
        table.add_row(name, text.format_map(texts))
    for budget in status["budgets"]:
        table.add_row(f"budget {budget['scope']}", _bar(budget))
    return table


def _bar(budget: Json) -> Text:
    share = budget["used"] / budget["limit"]
    filled = min(BAR, round(share * BAR))
    style = "bold red" if share >= 1 else "yellow" if share >= 0.8 else "green"
    text = Text("#" * filled, style=style)
    text.append("." * (BAR - filled), style="dim")
    label = f" {share:.0%}  {number(budget['used'])} of {number(budget['limit'])} in 60 min"
    return text.append(label, style="default")


def number(value: float) -> str:
    """Return a number in at most five characters: 99999, 123k, 1.23M."""
    if value < 100_000:
        return f"{value:.0f}"
    unit, size = ("k", 1e3) if value < 1e6 else ("M", 1e6) if value < 1e9 else ("G", 1e9)
    scaled = value / size
    return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{unit}"


def _span(seconds: float) -> str:
    """Return a duration in its two largest units: 3d 4h."""
    remaining, parts = max(0, int(seconds)), []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        count, remaining = divmod(remaining, size)
        parts += [f"{count}{unit}"] if count else []
    return " ".join(parts[:2]) or "0s"
