"""``mlx-stack-proxy serve``: read the settings, make sure that the port is free, run the proxy."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..reload import SettingsOrigin
from ..settings_source import SettingsError, read
from .local_stack import ports
from .service import env_file

_HOSTS_WITH_LOOPBACK = ("127.0.0.1", "localhost", "0.0.0.0")  # hosts that include 127.0.0.1


def add_serve(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", help="override server.host")
    add("--port", type=int, help="override server.port")
    text = "read additional environment variables from this file (mode 0600)"
    add("--env-file", metavar="FILE", type=Path, help=text)
    text = "log to this file, which is rotated, instead of standard error"
    add("--log-file", metavar="FILE", type=Path, help=text)
    text = "exit code if the configuration can't be used; default: 2"
    absent = argparse.SUPPRESS
    add("--config-error-exit", metavar="CODE", type=int, default=absent, help=text)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until a signal; return the exit code. Raises ``SettingsError``, ``CommandError``."""
    # Imported here, as they load the whole proxy: a container's health check, which uses this
    # module, doesn't need it.
    from ..telemetry import log_file
    from . import process

    if args.log_file is not None:
        try:
            log_file.take_over(args.log_file.expanduser())
        except OSError as error:
            problem = f"can't be written: {error.strerror}"
            raise SettingsError([problem], str(args.log_file)) from None
    origin = settings_origin(args)
    settings = origin.read()
    server = settings.server
    # Of another host only uvicorn finds out that its port is taken.
    if server.port and server.host in _HOSTS_WITH_LOOPBACK:
        ports.require_free([(server.port, "the proxy", "--port or server.port")])
    return process.serve(settings, args.log_file, origin)


def settings_origin(args: argparse.Namespace) -> SettingsOrigin:
    """Put the environment file into ``os.environ``; return where to read the settings from.

    Raises :class:`SettingsError`.
    """
    if args.env_file is not None:
        env_file.put_into(os.environ, args.env_file)
    return SettingsOrigin(read(args.config).path, args.host, args.port)
