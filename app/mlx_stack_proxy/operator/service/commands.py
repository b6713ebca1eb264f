"""``mlx-stack-proxy service install``, ``uninstall``, ``status``, ``logs`` and ``restart``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ...settings import ENV_PREFIX, Settings
from ...settings_source import CONFIG_VARIABLE, find_file, load
from .. import CommandError
from ..workers import check_servable
from . import env_file
from .managers import Launchd, Systemd


def add_service(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for name, run, text in (
        ("install", _install, "install the service and start it, now and at each boot"),
        ("uninstall", _uninstall, "stop and remove the service; configuration and data stay"),
        ("restart", _restart, "stop the service cleanly and start it again"),
        ("status", lambda args: manager(args.system).status(), "show the service's state"),
        ("logs", _logs, "show the service's log"),
    ):
        action = actions.add_parser(name, help=text)
        action.set_defaults(run=run, system=False, dry_run=False)
        scope = action.add_mutually_exclusive_group()
        about = "a service for the current user (default)"
        scope.add_argument("--user", dest="system", action="store_false", help=about)
        about = "a system service (Linux, as root)"
        scope.add_argument("--system", action="store_true", help=about)
        if name == "install":
            action.add_argument("--config", metavar="FILE", help="default: as for `serve`")
        if name == "logs":
            about = "number of lines; default: 100"
            action.add_argument("--lines", "-n", type=int, default=100, help=about)
            about = "follow the log until Ctrl-C"
            action.add_argument("--follow", "-f", action="store_true", help=about)
        if name in ("install", "uninstall", "restart"):
            about = "print what would be done, without doing it"
            action.add_argument("--dry-run", action="store_true", help=about)


def manager(system: bool, dry: bool = False, platform: str = sys.platform) -> Launchd | Systemd:
    """Return this platform's service manager. Raises :class:`CommandError` if we know none.

    ``system``: for a service of the machine, in place of the user's own.
    """
    if platform == "darwin":
        if system:
            raise CommandError("macOS has only a service for the user: omit --system")
        return Launchd(dry)
    if not platform.startswith("linux"):
        raise CommandError(f"no service manager is known for {platform}: only launchd and systemd")
    return Systemd(system, dry)


def program() -> Path:
    """Return the path of ``mlx-stack-proxy`` next to this interpreter; an upgrade keeps it.

    Raises :class:`CommandError` in a source tree that was never installed.
    """
    path = Path(sys.executable).parent / "mlx-stack-proxy"
    if not path.exists():
        raise CommandError(f"{path} is missing: install the package first (docs/install.md)")
    return path


def needed_variables(settings: Settings, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that the service needs, with their values (None: not set now).

    They are those that the configuration names, and all ``MLX_STACK_*`` that are set.
    """
    cloud = settings.reliability.escalation.cloud_fallback
    names = [settings.upstream.api_key_env, cloud and cloud.api_key_env]
    names += [name for name in sorted(environ) if name.startswith(ENV_PREFIX)]
    return {name: environ.get(name) for name in names if name and name != CONFIG_VARIABLE}


def _install(args: argparse.Namespace) -> int:
    settings = load(args.config)
    check_servable(settings)  # `serve` would refuse it
    service = manager(args.system, args.dry_run)
    file = find_file(args.config, os.environ)  # None: the defaults, or config.yaml in its folder
    command = [str(program()), "serve", *(("--config", str(file.resolve())) if file else ())]
    service.text(command, settings)  # raises what stands in the way, before anything is done
    notes, variables = [*service.notes], needed_variables(settings, os.environ)
    if service.env_file.exists():  # it is never overwritten
        there = env_file.read(service.env_file)
        lacking = [n for n, value in variables.items() if value is not None and n not in there]
        notes += [f"{service.env_file} was not changed, and lacks {name}" for name in lacking]
    else:
        service.make_folder(service.env_file.parent, 0o755 if args.system else 0o700)
        texts = [env_file.text_of(variables, hide) for hide in (False, True)]
        service.write(service.env_file, texts[0], 0o600, texts[1])
    service.install(command, settings)
    if file is None:
        notes.append(f"no configuration file: the defaults, or {service.folder}/config.yaml")
    if not args.dry_run:
        print(f"installed and serving: {service.definition}")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _uninstall(args: argparse.Namespace) -> int:
    service = manager(args.system, args.dry_run)
    was_installed = service.definition.exists()
    service.uninstall()  # even without a definition: other parts may be left
    if not args.dry_run:
        if not was_installed:
            raise CommandError(f"not installed: {service.definition} doesn't exist")
        print("uninstalled; configuration, environment file, logs and state are kept")
    return 0


def _restart(args: argparse.Namespace) -> int:
    service = manager(args.system, args.dry_run)
    command = service.command()
    if command is None:
        raise CommandError(f"not installed: {service.definition} doesn't exist")
    config = command[command.index("--config") + 1] if "--config" in command else None
    environ = env_file.read(service.env_file) if service.env_file.exists() else {}
    # Before the restart: a configuration that can't serve must not stop a proxy that does.
    settings = load(config, environ, service.folder)
    check_servable(settings)
    service.restart(settings)
    if not args.dry_run:
        print("restarted and serving")
    return 0


def _logs(args: argparse.Namespace) -> int:
    return manager(args.system).logs(args.lines, args.follow)
