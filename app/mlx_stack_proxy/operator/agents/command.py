"""The commands ``launch`` and ``agents``: start a client that asks the proxy, or print how to.

A launched client takes this process's place, so that signals and the exit code are its own. No file
is changed, and the key is in no command line.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from typing import Any

from ... import __version__
from ...escalation.tiers import AUTO
from ...server.status import for_clients
from ...setting_types import unknown_name
from ...settings import Settings
from ...settings_source import CLIENT_KEY_VARIABLE, SettingsError, from_mapping
from .. import CommandError, print_error
from ..local_stack.run_directory import KEY_VARIABLE, take_key
from ..remote.client import Found, NoAnswer, Remote, add_url, remote_of
from .clients import ANY_KEY, CLIENTS, Client, Setup, setup


def add_launch(parser: argparse.ArgumentParser) -> None:
    parser.usage = "%(prog)s [OPTIONS] NAME [-- ARGUMENTS]"
    parser.description = (
        "Start a client with the settings that it needs to use the running proxy. Its own files "
        "are not changed. Arguments after `--` go to the client: launch codex -- exec 'Hello'. "
        "`mlx-stack-proxy agents NAME` prints the settings."
    )
    names = ", ".join(row.name for row in CLIENTS if row.program)
    parser.add_argument("client", metavar="NAME", help=names)
    _add_options(parser, launch)


def add_agents(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Print what a client needs to use the running proxy, ready to paste. Without a name, list "
        "the known clients."
    )
    parser.add_argument("client", nargs="?", metavar="NAME", help="for example claude-code")
    _add_options(parser, agents)


def _add_options(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    text = "the tier or alias to use (default: %(default)s)"
    parser.add_argument("--model", default=AUTO, help=text)
    add_url(parser)
    parser.set_defaults(run=run)


def launch(args: argparse.Namespace) -> int:
    """Become the client. Raises ``CommandError``."""
    client = client_named(args.client)
    if not client.program:
        hint = f"`mlx-stack-proxy agents {client.name}` prints what it needs"
        raise CommandError(f"{client.title} can't be started from here: {hint}")
    proxy = _proxy_for(client, args, must_run=True)  # first: who can't use it needn't install it
    path = shutil.which(client.program)
    if path is None:
        raise CommandError(f"{client.title} isn't installed: {client.install}")
    key = os.environ[proxy.key_variable] if proxy.key_variable else ANY_KEY
    variables = {**client.variables(proxy), **dict.fromkeys(client.key, key)}
    flags = [*client.flags(proxy), *client.launch_flags(proxy)]
    sys.stdout.flush()
    argv = [client.program, *flags, *args.words]
    os.execve(path, argv, {**os.environ, **variables})  # noqa: S606  # what the user asked for


def agents(args: argparse.Namespace) -> int:
    """Print. Raises ``CommandError``."""
    if args.client is None:
        for row in CLIENTS:
            how = f"mlx-stack-proxy launch {row.name}" if row.program else row.place or row.title
            print(f"{row.name:<12} {row.protocol:<17} {how}")
        return 0
    client = client_named(args.client)
    proxy = _proxy_for(client, args, must_run=False)
    print_error(f"# {client.title}: {client.place or 'in a shell'}")
    if client.pasted is not None:
        print(client.pasted(proxy), end="")
    for name, value in client.variables(proxy).items():
        print(f"export {name}={shlex.quote(value)}")
    for name in client.key:
        key = f'"${{{proxy.key_variable}:-{ANY_KEY}}}"' if proxy.key_variable else ANY_KEY
        print(f"export {name}={key}")
    if flags := client.flags(proxy):  # in pairs
        pairs = zip(flags[::2], flags[1::2], strict=True)
        print(" \\\n  ".join([client.program, *map(shlex.join, pairs)]))
    elif client.program:
        print_error(f"# Then: {client.program}")
    windows = ", ".join(f"{name} {window}" for name, window in proxy.windows.items())
    print_error(f"# Windows in tokens: {windows}. {client.says}".rstrip())
    if proxy.key_variable:
        print_error(
            f"# The key is the value of {proxy.key_variable}, which the client's shell needs."
        )
    return 0


def client_named(name: str) -> Client:
    """Return the row of a client. Raises :class:`CommandError`."""
    by_name = {row.name: row for row in CLIENTS}
    if name not in by_name:
        raise CommandError(unknown_name(name, by_name, "client"))
    return by_name[name]


def _proxy_for(client: Client, args: argparse.Namespace, *, must_run: bool) -> Setup:
    """Ask the running proxy what the client must know.

    Unless it ``must_run``, the configuration says it in its place. Raises :class:`CommandError`,
    also if the client's first request can't fit.
    """
    remote, found = remote_of(args, "# ")
    try:
        settings, said = _ask(remote)
    except NoAnswer as error:
        if must_run or args.url or found.settings is None:
            raise
        print_error(f"# From the configuration, because {error}")
        settings, said = found.settings, for_clients(found.settings)
    variable = _key_variable(said, remote, found, optional=not must_run)
    proxy = setup(settings, remote.url, args.model, variable)
    if proxy is None:
        raise CommandError(unknown_name(args.model, [AUTO, *settings.tiers], "tier"))
    if (needed := client.prompt_tokens) >= proxy.window:
        larger = ", ".join(f"--model {name}" for name, n in proxy.windows.items() if n > needed)
        advice = f"ask for a larger tier ({larger})" if larger else ""
        raise CommandError(
            f"{client.title}'s first request takes some {needed:,} tokens, more than "
            f"{proxy.model}'s window of {proxy.window:,}: "
            f"{advice or 'serve a model with a larger window'}"
        )
    return proxy


def _ask(remote: Remote) -> tuple[Settings, dict[str, Any]]:
    """Return the proxy's tiers as settings, all else being default, and what it says to clients.

    The answer is checked as a configuration is: it may be another server's. Raises ``NoAnswer``.
    """
    status = remote.ask("status")
    try:
        said: dict[str, Any] = status["clients"]
        keys = ("model", "local", "context_window")
        tiers = {name: {key: tier[key] for key in keys} for name, tier in status["tiers"].items()}
        reliability = {
            "escalation": {"chain": status["chain"], "aliases": said["aliases"]},
            "token_budget": {"enabled": False, "max_output_tokens": said["max_output_tokens"]},
        }
        needs_key = {"key": str(said["key"]), "key_needed": bool(said["key_needed"])}
        return from_mapping({"tiers": tiers, "reliability": reliability}), needs_key
    except (KeyError, TypeError, AttributeError, SettingsError):
        sentence = f"what answers at {remote.url} is not a proxy of this version ({__version__})"
        raise NoAnswer(f"{sentence}: restart it?") from None


def _key_variable(said: dict[str, Any], remote: Remote, found: Found, *, optional: bool) -> str:
    """Return the variable with the client's key; "" if any key will do. Raises ``CommandError``.

    It is ours to choose: a server that isn't the configured one could name any variable, and be
    sent its value. ``optional``: the variable needn't be set.
    """
    if said["key"] == "any":
        return ""
    variable: str | None = CLIENT_KEY_VARIABLE
    if said["key"] == "litellm" and remote.is_trusted:
        variable = found.settings.upstream.api_key_env if found.settings else KEY_VARIABLE
        take_key(os.environ, remote.url)  # where `up --inside` runs
    if variable and (optional or os.environ.get(variable)):
        return variable
    if variable and said["key_needed"]:
        whose = "LiteLLM's key" if said["key"] == "litellm" else "one of server.api_keys"
        raise CommandError(f"the proxy requires a key: first export {variable}=…, with {whose}")
    return ""
