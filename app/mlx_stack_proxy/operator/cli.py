"""The command ``mlx-stack-proxy``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..settings_source import SCHEMA, SettingsError, load, read

if TYPE_CHECKING:
    from ..reload import Given
    from ..settings import Settings

_ON_LOOPBACK = ("127.0.0.1", "localhost", "0.0.0.0")  # where a listener takes 127.0.0.1, too
CONFIG_ERROR = 2  # the exit code; the units of systemd know it


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit code."""
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what may follow
        import argcomplete

        argcomplete.autocomplete(parser)
    args = parser.parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except SettingsError as error:
        print(error, file=sys.stderr)
        return getattr(args, "config_error_exit", CONFIG_ERROR)
    except BrokenPipeError:  # `… | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    from . import remote, service

    parser = argparse.ArgumentParser(
        prog="mlx-stack-proxy", description="A reliability proxy for local models behind LiteLLM."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    # In the order of --help.
    _add_serve(commands)
    _add_init(commands)
    _add_check(commands)
    _add_agents(commands)
    _add_config(commands)
    _add_replay(commands)
    _add_pressure(commands)
    remote.add_commands(commands)
    service.add_commands(commands)
    _add_up(commands)
    _add_demo(commands)
    _add_completion(commands)
    return parser


def _config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="default: $MLX_STACK_CONFIG, then ./config.yaml, then the defaults alone",
    )


def _add_serve(commands: Any) -> None:
    parser = commands.add_parser("serve", help="run the proxy")
    _config_option(parser)
    parser.add_argument("--host", help="overrides server.host")
    parser.add_argument("--port", type=int, help="overrides server.port")
    parser.add_argument(
        "--env-file", metavar="FILE", type=Path, help="more of the environment; mode 0600"
    )
    parser.add_argument(
        "--log-file", metavar="FILE", type=Path, help="in place of standard error; rotated"
    )
    parser.add_argument(
        "--config-error-exit",
        metavar="CODE",
        type=int,
        default=CONFIG_ERROR,
        help="the exit code where the configuration can't be used; default: %(default)s",
    )
    parser.set_defaults(run=_serve)


def _serve(args: argparse.Namespace) -> int:
    from ..server import process
    from ..telemetry import log_file

    if args.log_file is not None:
        try:
            log_file.take_over(args.log_file.expanduser())
        except OSError as error:
            problem = f"can't be written: {error.strerror}"
            raise SettingsError([problem], str(args.log_file)) from None
    given = _given(args)
    settings = given.read()
    if taken := _taken(settings):
        sys.stderr.write(f"mlx-stack-proxy serve: {taken}\n")
        return 1
    return process.serve(settings, log_to=args.log_file, given=given)


def _taken(settings: Settings) -> str:
    """Who has the port, in a sentence; "" where it is free, or only uvicorn can tell."""
    from .local_stack import console, ports

    server = settings.server
    if server.port == 0 or server.host not in _ON_LOOPBACK:
        return ""
    try:
        ports.require_free([(server.port, "the proxy", "--port or server.port")])
    except console.UpError as error:
        return str(error)
    return ""


def _given(args: argparse.Namespace) -> Given:
    """Where `serve` reads its settings; what the environment file sets is in the environment."""
    from ..reload import Given
    from .service import env_file

    if args.env_file is not None:
        env_file.put_into(os.environ, args.env_file)
    return Given(read(args.config).path, args.host, args.port)


def serve_settings(options: Sequence[str]) -> Settings:
    """The settings of `mlx-stack-proxy` with these words, of which the first is `serve`, here.

    Raises :class:`SettingsError`.
    """
    return _given(_parser().parse_args(options)).read()


def _add_init(commands: Any) -> None:
    from .init import command

    parser = commands.add_parser("init", help="write a first config.yaml, from what is here")
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _add_check(commands: Any) -> None:
    parser = commands.add_parser("check", help="check the configuration, LiteLLM and the tiers")
    parser.description = (
        "Check the configuration, LiteLLM and its models; then ask each tier of this machine for a "
        "token, a stream and a tool call. Exit code: 0 all is well, 1 a line says FAIL."
    )
    _config_option(parser)
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--settings", action="store_true", help="only print every setting and where it comes from"
    )
    how.add_argument("--no-probe", action="store_true", help="ask no model anything")
    how.add_argument("--cloud", action="store_true", help="ask the tiers in the cloud, too")
    parser.set_defaults(run=_check)


def _check(args: argparse.Namespace) -> int:
    from . import check

    if args.settings:
        return check.show(args.config)
    return check.run(args.config, probe=not args.no_probe, cloud=args.cloud)


def _add_agents(commands: Any) -> None:
    from .agents import command

    parser = commands.add_parser("agents", help="what Claude Code, Codex and others need to ask it")
    _config_option(parser)
    command.add_arguments(parser)
    parser.set_defaults(run=command.run)


def _add_config(commands: Any) -> None:
    parser = commands.add_parser("config", help="about the configuration file")
    about = parser.add_subparsers(required=True, metavar="WHAT")
    schema = about.add_parser("schema", help="print its JSON Schema, for editors")
    schema.set_defaults(run=_config_schema)


def _config_schema(_: argparse.Namespace) -> int:
    print(SCHEMA.read_text(encoding="utf-8"), end="")
    return 0


def _add_replay(commands: Any) -> None:
    parser = commands.add_parser("replay", help="run recorded exchanges through the stages")
    parser.add_argument("file", metavar="FILE.jsonl", help="one record a line; - is stdin")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    _config_option(parser)
    parser.set_defaults(run=_replay)


def _replay(args: argparse.Namespace) -> int:
    from . import replay

    return replay.run(args, load(args.config))


def _add_pressure(commands: Any) -> None:
    parser = commands.add_parser("pressure", help="how short this machine's memory is")
    parser.add_argument("--serve", action="store_true", help="answer GET / with it, until Ctrl-C")
    parser.add_argument("--host", default="127.0.0.1", help="with --serve; default: %(default)s")
    parser.add_argument("--port", type=int, default=4110, help="with --serve; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="as JSON")
    _config_option(parser)
    parser.set_defaults(run=_pressure)


def _pressure(args: argparse.Namespace) -> int:
    from . import pressure

    return pressure.run(args)


def _add_up(commands: Any) -> None:
    from .local_stack import up

    parser = commands.add_parser(
        "up", help="start model servers, LiteLLM and the proxy on this machine"
    )
    up.add_arguments(parser)
    parser.set_defaults(run=up.run)


def _add_demo(commands: Any) -> None:
    from .demo import command

    parser = commands.add_parser("demo", help="what the proxy does for a weak model, side by side")
    command.add_arguments(parser)


def _add_completion(commands: Any) -> None:
    parser = commands.add_parser("completion", help="print what makes a shell complete commands")
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))
    parser.description = (
        'In ~/.bashrc or ~/.zshrc: eval "$(mlx-stack-proxy completion bash)", or zsh. For fish: '
        "mlx-stack-proxy completion fish > ~/.config/fish/completions/mlx-stack-proxy.fish"
    )
    parser.set_defaults(run=_completion)


def _completion(args: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["mlx-stack-proxy"], shell=args.shell))
    return 0
