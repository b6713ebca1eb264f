"""The command ``launch``: start a client with the variables and flags that make it ask the proxy.

The client takes this process's place, so that signals and the exit code are its own. No file is
changed, and the key is in no command line.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys

from .. import CommandError
from .clients import ANY_KEY, CLIENTS
from .known import add_options, client_named, name_leftovers, proxy_for


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``launch``."""
    parser.usage = "%(prog)s [OPTIONS] NAME [-- ARGUMENTS]"
    parser.description = (
        "Start a client with the settings that it needs to use the running proxy. Its own files "
        "are not changed. Arguments after `--` go to the client: launch codex -- exec 'Hello'. "
        "`mlx-stack-proxy agents NAME` prints the settings."
    )
    names = ", ".join(row.name for row in CLIENTS if row.program)
    parser.add_argument("client", metavar="NAME", help=names)
    add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Become the client. Raises ``CommandError``."""
    client = client_named(args.client)
    if not client.program:
        hint = f"`mlx-stack-proxy agents {client.name}` prints what it needs"
        raise CommandError(f"{client.title} can't be started from here: {hint}")
    proxy = proxy_for(client, args, must_run=True)  # first: who can't use it needn't install it
    path = shutil.which(client.program)
    if path is None:
        raise CommandError(f"{client.title} isn't installed: {client.install}")
    name_leftovers(client, proxy)
    key = os.environ[proxy.key_variable] if proxy.key_variable else ANY_KEY
    variables = {**client.variables(proxy), **dict.fromkeys(client.key, key)}
    flags = [*client.flags(proxy), *client.launch_flags(proxy)]
    sys.stdout.flush()
    argv = [client.program, *flags, *args.words]
    os.execve(path, argv, {**os.environ, **variables})  # noqa: S606  # what the user asked for
