"""``mlx-stack-proxy service install``, ``uninstall``, ``status``, ``logs`` and ``restart``."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...local_address import local_url
from ...settings import Settings
from ...settings_source import from_mapping
from . import spec as specs
from .installed import usable
from .launchd import Launchd
from .spec import Spec
from .steps import Run, ServiceError, carry_out, run, show
from .systemd import SystemUnit, UserUnit

Manager = Launchd | UserUnit | SystemUnit
SYSTEM_ENV_FILE = Path("/etc/mlx-stack-proxy/service.env")


def add_commands(commands: Any) -> None:
    """The command's arguments."""
    service = commands.add_parser(
        "service", help="run the proxy as a service (launchd on macOS, systemd on Linux)"
    )
    actions = service.add_subparsers(required=True, metavar="ACTION")
    install = _add(actions, "install", _install, "set it up and start it, now and at each start")
    install.add_argument("--config", metavar="FILE", help="default: as for `serve`")
    _add(actions, "uninstall", _uninstall, "stop it and take it out; configuration and data stay")
    _add(actions, "status", _status, "what the system says of it")
    _add(actions, "restart", _restart, "end it in order and start it anew")
    logs = _add(actions, "logs", _logs, "what it wrote last")
    logs.add_argument("--lines", "-n", type=int, default=100)
    logs.add_argument("--follow", "-f", action="store_true", help="go on until Ctrl-C")


def _add(actions: Any, name: str, command: Callable[..., int], text: str) -> Any:
    parser = actions.add_parser(name, help=text)
    parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "--user", dest="system", action="store_false", help="a service of this user (the default)"
    )
    scope.add_argument(
        "--system", dest="system", action="store_true", help="of the machine; Linux, as root"
    )
    parser.set_defaults(run=_with(command), system=False)
    return parser


def _with(command: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    def guarded(args: argparse.Namespace) -> int:
        try:
            return command(args)
        except ServiceError as error:
            print(error, file=sys.stderr)
            return 1

    return guarded


def manager(system: bool, platform: str = sys.platform) -> Manager:
    """What looks after services here. Raises :class:`ServiceError` where we know none."""
    if platform == "darwin":
        if system:
            raise ServiceError("on macOS the service is the user's own: leave --system out")
        return Launchd(Path.home(), _folder())
    if not platform.startswith("linux"):
        raise ServiceError(f"no service manager is known for {platform}: only launchd and systemd")
    if system:
        return SystemUnit()
    config_home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return UserUnit(config_home)


def _folder() -> Path:
    return Path.home() / ".mlx-stack"


def describe(args: argparse.Namespace, settings: Settings) -> Spec:
    """What to install. Raises :class:`ServiceError`."""
    folder = Path("/var/lib/mlx-stack-proxy") if args.system else _folder()
    grace = settings.server.shutdown_grace_seconds
    return Spec(
        program=specs.find_program(),
        config=specs.find_config(args.config, os.environ),
        folder=folder,
        kept_in=(
            Path(settings.state.path).expanduser().absolute().parent,
            Path(settings.observability.capture_path).expanduser().absolute(),
        ),
        env_file=SYSTEM_ENV_FILE if args.system else folder / "service.env",
        stop_seconds=int(grace) + specs.STOP_MARGIN_SECONDS,
        variables=specs.needed_variables(settings, os.environ),
        health_url=_health_url(settings),
    )


def _health_url(settings: Settings) -> str:
    return f"{local_url(settings)}/health"


def _install(args: argparse.Namespace) -> int:
    settings = usable(args.config)  # what can't serve isn't installed
    chosen = manager(args.system)
    spec = describe(args, settings)
    steps = chosen.install(spec)
    notes = [*chosen.notes(), *specs.remarks(spec)]
    if spec.config is None:
        notes.append(f"no configuration file: the defaults, or {spec.folder}/config.yaml")
    if args.dry_run:
        print(show(steps))
    else:
        carry_out(steps)
        print(f"installed, and it serves: {chosen.definition}")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _uninstall(args: argparse.Namespace) -> int:
    chosen = manager(args.system)
    steps = chosen.uninstall()
    if args.dry_run:
        print(show(steps))
        return 0
    there = chosen.definition.exists()
    carry_out(steps)  # in any case: what is left of one whose definition is gone
    if not there:
        raise ServiceError(f"none was installed: {chosen.definition} is not there")
    print("uninstalled; configuration, environment file, logs and state are left")
    return 0


def _status(args: argparse.Namespace) -> int:
    return _pass_on(args, manager(args.system).status())


def _restart(args: argparse.Namespace) -> int:
    chosen = manager(args.system)
    found = chosen.installed()
    if found is None and not args.dry_run:
        raise ServiceError(f"none is installed: {chosen.definition} is not there")
    # What can't serve stops nothing that does.
    settings = found.settings() if found is not None else from_mapping({})
    steps = chosen.restart(_health_url(settings))
    if args.dry_run:
        print(show(steps))
    else:
        carry_out(steps)
        print("restarted, and it serves")
    return 0


def _logs(args: argparse.Namespace) -> int:
    found = manager(args.system)
    return _pass_on(args, found.logs(args.lines, args.follow))


def _pass_on(args: argparse.Namespace, step: Run) -> int:
    if args.dry_run:
        print(shlex.join(step.argv))
        return 0
    return run(step.argv)
