"""The command ``agents``: list the clients, or print what ``launch`` would give one of them."""

from __future__ import annotations

import argparse
import shlex
import sys

from .clients import ANY_KEY, CLIENTS, Client, Setup
from .known import add_options, client_named, name_leftovers, proxy_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agents``."""
    parser.description = (
        "Print what a client needs to use the running proxy, ready to paste. Without a name, list "
        "the known clients."
    )
    parser.add_argument("client", nargs="?", metavar="NAME", help="for example claude-code")
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print. Raises ``CommandError``."""
    if args.client is None:
        for row in CLIENTS:
            how = f"mlx-stack-proxy launch {row.name}" if row.program else row.place or row.title
            print(f"{row.name:<12} {row.protocol:<17} {how}")
        return 0
    client = client_named(args.client)
    proxy = proxy_for(client, args, must_run=False)
    _print(client, proxy)
    windows = ", ".join(f"{name} {window}" for name, window in proxy.windows.items())
    _say(f"# Windows in tokens: {windows}. {client.says}".rstrip())
    if proxy.key_variable:
        _say(f"# The key is the value of {proxy.key_variable}, which the client's shell needs.")
    name_leftovers(client, proxy)
    return 0


def _print(client: Client, proxy: Setup) -> None:
    _say(f"# {client.title}: {client.place or 'in a shell'}")
    if client.pasted is not None:
        print(client.pasted(proxy), end="")
        return
    for name, value in client.variables(proxy).items():
        print(f"export {name}={shlex.quote(value)}")
    for name in client.key:
        key = f'"${{{proxy.key_variable}:-{ANY_KEY}}}"' if proxy.key_variable else ANY_KEY
        print(f"export {name}={key}")
    if flags := client.flags(proxy):  # in pairs
        pairs = zip(flags[::2], flags[1::2], strict=True)
        print(" \\\n  ".join([client.program, *map(shlex.join, pairs)]))
    elif client.program:
        _say(f"# Then: {client.program}")


def _say(text: str) -> None:
    """Print to standard error: standard output holds only the lines to paste."""
    print(text, file=sys.stderr)
