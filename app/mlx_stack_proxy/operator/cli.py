"""The command ``mlx-stack-proxy``: a table of commands, each in a module of its own.

A command's module has ``add_NAME(parser)``, which sets the function that runs the command as
the parser's default ``run``. Only the module of the given command is imported, so that no command
waits for the imports of others. The two commands that only print a file are here.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from .. import __version__
from ..settings_source import SCHEMA, SettingsError
from . import CommandError, discard_output, print_error

CONFIG_ERROR = 2  # exit code: the settings can't be used; systemd's units don't restart after it


class Command(NamedTuple):
    """A row of the table of commands."""

    name: str
    module: str  # relative to this package
    says: str  # its line in --help, and its description unless it has a longer one
    config: bool = True  # whether the command takes --config


# In the order of --help.
COMMANDS = (
    Command("serve", "serve", "run the proxy"),
    Command("init", "init.command", "write a first config.yaml from LiteLLM's model list", False),
    Command("check", "check", "check the configuration, LiteLLM and the tiers"),
    Command("launch", "agents.command", "start Claude Code, Codex or another client on the proxy"),
    Command("agents", "agents.command", "print the settings that such a client needs"),
    Command("config", "cli", "print the JSON Schema of the configuration", False),
    Command("replay", "replay", "run recorded exchanges through the stages again, without a model"),
    Command("pressure", "pressure", "show this machine's memory pressure"),
    Command("status", "remote.status", "show a running proxy and its tiers on one screen"),
    Command("report", "remote.report", "summarise the last hours in a few sentences"),
    Command("why", "remote.report", "explain one request in a paragraph"),
    Command("sessions", "remote.events", "list a running proxy's sessions"),
    Command("events", "remote.events", "list a running proxy's events"),
    Command("service", "service.commands", "run the proxy as a service (launchd, systemd)", False),
    Command("up", "local_stack.up", "start model servers, LiteLLM and the proxy", False),
    Command(
        "demo", "demo.command", "compare a weak model's replies, directly and through the proxy"
    ),
    Command("completion", "cli", "print a shell's completion script", False),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (without the program's name) gives; return the exit code."""
    args = arguments(sys.argv[1:] if argv is None else argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except SettingsError as error:
        print_error(error)
        return getattr(args, "config_error_exit", CONFIG_ERROR)
    except CommandError as error:
        print_error(error)
        return 1
    except BrokenPipeError:  # the reader of our output (`… | head`) has ended
        discard_output()
        return 141
    except OSError as error:
        if error.filename is None:
            raise
        print_error(f"{error.filename}: {error.strerror}")
        return 1
    except KeyboardInterrupt:
        return 130


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line. Exits, as argparse does, at ``--help`` and at a wrong argument.

    ``words`` of the result: for ``launch``, what follows ``--``, which is the client's own.
    """
    words: list[str] = []
    if list(argv[:1]) == ["launch"] and "--" in argv:
        end = list(argv).index("--")
        argv, words = argv[:end], list(argv[end + 1 :])
    parser = argparse.ArgumentParser(
        prog="mlx-stack-proxy", description="A reliability proxy for local models behind LiteLLM."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=bool(argv), metavar="COMMAND")
    completing = "_ARGCOMPLETE" in os.environ  # a shell asks which words may follow
    for command in COMMANDS:
        described = f"{command.says[0].upper()}{command.says[1:]}."
        subparser = commands.add_parser(command.name, help=command.says, description=described)
        if completing or command.name in argv:
            module = import_module(f".{command.module}", __package__)
            getattr(module, f"add_{command.name}")(subparser)
            if command.config:
                text = "default: $MLX_STACK_CONFIG, then ./config.yaml, then only the defaults"
                subparser.add_argument("--config", metavar="FILE", help=text)
    if completing:
        import argcomplete

        argcomplete.autocomplete(parser)
    if not argv and not completing:
        parser.print_help(sys.stderr)
        parser.exit(CONFIG_ERROR)
    args, others = parser.parse_known_args(argv, argparse.Namespace(words=words))
    if others:
        hint = "; arguments for the client follow `--`" if argv[0] == "launch" else ""
        parser.error(f"unrecognized arguments: {' '.join(others)}{hint}")
    return args


def add_config(parser: argparse.ArgumentParser) -> None:
    about = parser.add_subparsers(required=True, metavar="WHAT")
    schema = about.add_parser("schema", help="print the JSON Schema, which editors read")
    schema.set_defaults(run=lambda _: _printed(SCHEMA.read_text(encoding="utf-8")))


def add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.description = (
        'In ~/.bashrc or ~/.zshrc put: eval "$(mlx-stack-proxy completion bash)", or zsh. For fish '
        "run: mlx-stack-proxy completion fish > ~/.config/fish/completions/mlx-stack-proxy.fish"
    )
    from argcomplete.shell_integration import shellcode

    program = ["mlx-stack-proxy"]
    parser.set_defaults(run=lambda args: _printed(f"{shellcode(program, shell=args.shell)}\n"))


def _printed(text: str) -> int:
    sys.stdout.write(text)
    return 0
