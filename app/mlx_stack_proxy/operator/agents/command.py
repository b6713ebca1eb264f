"""The command ``agents``: list the clients; print one's settings, write them, or undo that.

``--write`` keeps the client's file as it was beside it (``BACKUP``), and ``--undo`` reads the old
values from there. Both show the changed lines and ask first.
"""

from __future__ import annotations

import argparse
import difflib
import shlex
import sys
from pathlib import Path

from ...escalation.tiers import AUTO
from ...setting_types import unknown_name
from ...settings_source import load
from .. import CommandError, replace_file
from .client_file import Unfit, put_in, take_back, text_of
from .clients import CLIENTS, Client, Setup, setup

BACKUP = ".before-mlx-stack"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``agents``."""
    parser.description = (
        "What a client needs to ask this proxy, for the configuration at hand: the lines to paste "
        "(standard output holds nothing else). Without a name: the clients that are known."
    )
    parser.add_argument("client", nargs="?", metavar="NAME", help="for example claude-code")
    parser.add_argument(
        "--model", default=AUTO, help="the tier or alias to ask for (default: %(default)s)"
    )
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--write", action="store_true", help="put them where the client looks")
    mode.add_argument("--undo", action="store_true", help="take them out again")
    parser.add_argument("--yes", action="store_true", help="don't ask")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Return the exit code: 1 if the user says no. Raises ``CommandError``."""
    settings = load(args.config)
    if args.client is None:
        for row in CLIENTS:
            print(f"{row.name:<12} {row.protocol:<17} {_shown(row) if row.file else row.title}")
        return 0
    by_name = {row.name: row for row in CLIENTS}
    client, proxy = by_name.get(args.client), setup(settings, args.model)
    if client is None:
        raise CommandError(unknown_name(args.client, by_name, "client"))
    if proxy is None:
        raise CommandError(unknown_name(args.model, [AUTO, *settings.tiers], "tier"))
    if not (args.write or args.undo):
        return _print(client, proxy)
    if client.settings is None:
        raise CommandError(f"{client.title} has no file for this: paste the lines instead")
    try:
        return _change(client, proxy, args.undo, args.yes)
    except Unfit as error:
        raise CommandError(f"{_shown(client)} stays as it is: {error}") from None


def _print(client: Client, proxy: Setup) -> int:
    place = "In a shell" if client.shell else _shown(client)
    if client.shell or client.file:
        _say(f"# {client.title}: {place}")
    if client.shell is not None:
        for name, value in client.shell(proxy).items():
            print(f"export {name}={_quoted(value)}")
    elif client.settings is not None:
        print(text_of(client.settings(proxy), client.form), end="")
    start = client.start.format(given=proxy)
    if client.file:
        _say(f"# Then: {start}")
    elif start:
        print(start)
    windows = ", ".join(f"{name} {window}" for name, window in proxy.windows.items())
    _say(f"# Windows in tokens: {windows}. {client.says}".rstrip())
    if proxy.key_variable:
        _say(f"# The key is the value of {proxy.key_variable}, which the client's shell needs.")
    return 0


def _quoted(value: str) -> str:
    return f'"{value}"' if "$" in value else shlex.quote(value)


def _change(client: Client, proxy: Setup, undo: bool, assume_yes: bool) -> int:
    """Put the settings into the client's file, or take them out; return the exit code."""
    assert client.settings is not None
    file = (Path.home() / client.file).resolve()  # so that a symbolic link isn't replaced
    backup = file.with_name(file.name + BACKUP)
    if undo and not backup.exists():
        raise CommandError(f"{_shown(client)}: nothing was written there, or it was taken back")
    mode = file.stat().st_mode & 0o777 if file.exists() else 0o600
    old_text, ours = _text(file), client.settings(proxy)
    if undo:
        new_text = take_back(old_text, _text(backup), ours, client.form)
    else:
        new_text = put_in(old_text, ours, client.form)
    if not _agreed(client, old_text, new_text, assume_yes):
        return 1
    if not undo and not backup.exists():  # a second --write must not save our own settings there
        replace_file(backup, old_text, mode)
    if new_text:
        replace_file(file, new_text, mode)
    else:
        file.unlink(missing_ok=True)
    if undo:
        backup.unlink()
    print("Taken back." if undo else f"Written; as it was: {backup}. `--undo` takes it back.")
    return 0


def _agreed(client: Client, old_text: str, new_text: str, assume_yes: bool) -> bool:
    """Print the lines that change, and return whether the user (or ``--yes``) agrees."""
    print(_shown(client))
    lines = difflib.unified_diff(old_text.splitlines(), new_text.splitlines(), n=0, lineterm="")
    print("\n".join([line for line in lines if not line.startswith(("---", "+++", "@@"))]))
    if assume_yes:
        return True
    try:
        return input("Do that? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:  # standard input has ended: there is nobody to ask
        _say("--yes does it without asking")
        return False


def _shown(client: Client) -> str:
    return f"~/{client.file}"


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise Unfit("it is not UTF-8") from None


def _say(text: str) -> None:
    """Print to standard error: standard output holds only the lines to paste."""
    print(text, file=sys.stderr)
