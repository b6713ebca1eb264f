"""``mlx-stack-proxy why``: tell one exchange of a running proxy in a paragraph.

The proxy writes the sentences (``/mlx-stack/exchanges/ID``); this module lays them out.
"""

from __future__ import annotations

import argparse
import json
from urllib.parse import quote

from ...printable import printable, wrapped
from .client import Remote, set_remote_command
from .report import WIDTH


def add_arguments(why: argparse.ArgumentParser) -> None:
    why.add_argument(
        "request",
        nargs="?",
        default="last",
        metavar="ID",
        help="an X-MLX-Stack-Request-Id; default: last, the newest that went wrong at first",
    )
    why.add_argument("--agent", metavar="NAME", help="the newest of this agent")
    set_remote_command(why, run)


def run(remote: Remote, args: argparse.Namespace) -> None:
    answer = remote.ask(f"exchanges/{quote(args.request, safe='')}", agent=args.agent)
    if args.json:
        print(json.dumps(answer, indent=2))
        return
    print(printable(f"{answer['request_id']}  {answer['agent'] or ''}".rstrip()))
    for line in wrapped(printable(answer["why"]), WIDTH):
        print(line)
