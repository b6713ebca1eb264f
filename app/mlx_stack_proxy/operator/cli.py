"""The command ``mlx-stack-proxy``: a table of commands, each in a module of its own.

A command's module has ``add_arguments(parser)``, which sets the function that runs the command as
the parser's default ``run``. Only the module of the given command is imported, so that no command
waits for the imports of others. The two commands that only print a file are here.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from .. import __version__
from ..frozen import frozen
from ..settings_source import SCHEMA, SettingsError
from . import CommandError, print_error

CONFIG_ERROR = 2  # exit code: the settings can't be used; systemd's units don't restart after it


@frozen
class Command:
    """A row of the table of commands."""

    name: str
    says: str  # its line in --help, and its description unless it has a longer one
    module: str  # relative to this package
    config: bool = True  # whether the command takes --config
    adds: str = "add_arguments"  # the module's function


# In the order of --help.
COMMANDS = (
    Command("serve", "run the proxy", "serve"),
    Command(
        "init", "write a first config.yaml from what LiteLLM lists", "init.command", config=False
    ),
    Command("check", "check the configuration, LiteLLM and the tiers", "check"),
    Command(
        "launch",
        "start Claude Code, Codex or another client through the proxy",
        "agents.command",
        adds="add_launch",
    ),
    Command(
        "agents",
        "print what Claude Code, Codex and others need to use the proxy",
        "agents.command",
        adds="add_agents",
    ),
    Command("config", "print the JSON Schema of the configuration", "cli", False, "_add_schema"),
    Command("replay", "run recorded exchanges through the stages again, without a model", "replay"),
    Command("pressure", "show this machine's memory pressure", "pressure"),
    Command("status", "show a running proxy and its tiers on one screen", "remote.status"),
    Command(
        "report",
        "summarise the last hours in a few sentences",
        "remote.report",
        adds="add_report",
    ),
    Command("why", "explain one request in a paragraph", "remote.report", adds="add_why"),
    Command("sessions", "list a running proxy's sessions", "remote.sessions"),
    Command("events", "list what a running proxy did, event by event", "remote.events"),
    Command(
        "service",
        "run the proxy as a service (launchd on macOS, systemd on Linux)",
        "service.commands",
        config=False,
    ),
    Command(
        "up", "start model servers, LiteLLM and the proxy on this machine", "local_stack.up", False
    ),
    Command(
        "demo", "ask a weak model ten questions, directly and through the proxy", "demo.command"
    ),
    Command("completion", "print a shell's completion script", "cli", False, "_add_completion"),
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
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
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
            getattr(import_module(f".{command.module}", __package__), command.adds)(subparser)
            if command.config:
                _add_config(subparser)
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


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="default: $MLX_STACK_CONFIG, then ./config.yaml, then only the defaults",
    )


def _add_schema(parser: argparse.ArgumentParser) -> None:
    about = parser.add_subparsers(required=True, metavar="WHAT")
    about.add_parser("schema", help="print the JSON Schema, which editors read").set_defaults(
        run=_schema
    )


def _schema(_: argparse.Namespace) -> int:
    print(SCHEMA.read_text(encoding="utf-8"), end="")
    return 0


def _add_completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.description = (
        'In ~/.bashrc or ~/.zshrc put: eval "$(mlx-stack-proxy completion bash)", or zsh. For fish '
        "run: mlx-stack-proxy completion fish > ~/.config/fish/completions/mlx-stack-proxy.fish"
    )
    parser.set_defaults(run=_completion)


def _completion(args: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["mlx-stack-proxy"], shell=args.shell))
    return 0
