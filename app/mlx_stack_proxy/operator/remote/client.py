"""Where the running proxy is, and how the commands ask its ``/mlx-stack/`` endpoints over HTTP.

A proxy goes on with its old settings while its file is broken, and just then it is to be asked: its
address and ``admin_key`` are also taken from a configuration that is refused.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import httpx
import yaml
from msgspec import Struct
from pydantic import ValidationError

from ...printable import printable
from ...settings import ServerSettings, Settings, is_loopback
from ...settings_source import SettingsError, find_file, load
from .. import CommandError, print_error

Json = dict[str, Any]
MAX_ANSWER = 64 * 1024 * 1024  # bytes: a page of 1,000 events has a few
PLAIN = {"Accept-Encoding": "identity"}  # so that no packed answer grows without bounds
SECONDS = 5.0  # how long the proxy may be silent before we give up


class Found(Struct, frozen=True):
    """The configured proxy."""

    server: ServerSettings
    settings: Settings | None = None  # None: the configuration can't be used
    problem: str = ""  # why


def find(config: str | None) -> Found:
    """Return what the configuration says of the proxy; ``config``: as ``load()`` takes it."""
    try:
        settings = load(config)
        return Found(settings.server, settings)
    except SettingsError as error:
        problem = f"{error.source}: {_first(error.problems)}"
    section: Any = {}
    # The section alone: what else is in the file may be no YAML at all.
    with contextlib.suppress(SettingsError, OSError, ValueError, TypeError, yaml.YAMLError):
        file = find_file(config, os.environ)
        text = file.read_text(encoding="utf-8") if file is not None else ""
        if found := re.search(r"^server:.*(\n([ \t#].*)?$)*", text, re.MULTILINE):
            section = {**yaml.safe_load(found[0])["server"]}
    server = ServerSettings()
    for key in ("host", "port", "admin_key"):
        value = os.environ.get(f"MLX_STACK_SERVER__{key.upper()}", section.get(key))
        fields: dict[str, Any] = {} if value is None else {key: value}
        with contextlib.suppress(ValidationError):  # one that can't be used leaves the default
            server = replace(server, **fields)
    return Found(server, problem=f"{problem}; only the proxy's address is taken from it")


def _first(problems: Sequence[str]) -> str:
    """Return the first problem, and how many more there are."""
    return problems[0] + (f", and {len(problems) - 1} more" if problems[1:] else "")


def is_configured(url: str, server: ServerSettings) -> bool:
    """Whether a URL is the configured proxy's, or leads to this machine."""
    try:
        asked, configured = httpx.URL(url), httpx.URL(server.url)
    except httpx.InvalidURL:
        return False
    same = (asked.host, asked.port) == (configured.host, configured.port)
    return same or is_loopback(asked.host)


def with_zone(text: str) -> str:
    """Return a time with this machine's zone if it has none; an age such as ``12h`` as it is."""
    try:
        return datetime.fromisoformat(text).astimezone().isoformat()
    except ValueError:
        return text


def read(answer: httpx.Response) -> bytes:
    """Return an answer's body as it came. Raises ``ValueError`` if it exceeds ``MAX_ANSWER``."""
    body = bytearray()
    for piece in answer.iter_raw():
        body += piece
        if len(body) > MAX_ANSWER:
            raise ValueError(f"a response of more than {MAX_ANSWER:,} bytes")
    return bytes(body)


class NoAnswer(CommandError):
    """The proxy can't be reached, or answers with an error; the message says why."""


class Refused(NoAnswer):
    """The proxy answered with a status of 4xx: asking again would be useless."""


class Remote:
    """A running proxy, to be asked. ``server``: the configured one's section, with its address.

    Its ``admin_key`` is sent only to that address, or to this machine.
    """

    def __init__(self, url: str, server: ServerSettings) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
        self.is_trusted = is_configured(self.url, server)
        key = server.admin_key if self.is_trusted else None
        self._withheld = server.admin_key is not None and key is None
        headers = PLAIN | {"Authorization": f"Bearer {key}"} if key else PLAIN
        # trust_env: an HTTP proxy of the environment can't reach this machine's loopback.
        self._client = httpx.Client(trust_env=False, headers=headers)

    def ask(self, path: str, method: str = "GET", **query: Any) -> Json:
        """Ask ``/mlx-stack/PATH`` and return the answer's JSON object. Raises :class:`NoAnswer`."""
        with self.open(path, query, method) as answer:
            try:
                parsed = json.loads(read(answer))
                if isinstance(parsed, dict):
                    return parsed
                raise ValueError("its answer is not a JSON object")
            except (ValueError, RecursionError) as error:
                raise self._no_answer(error) from None

    @contextlib.contextmanager
    def open(
        self,
        path: str,
        query: Mapping[str, Any],
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        patience: float = SECONDS,
    ) -> Iterator[httpx.Response]:
        """Ask ``/mlx-stack/PATH``; the answer's body is to be read within the context.

        Parameters of ``query`` that are None are not sent. ``patience``: how many seconds the
        proxy may be silent. Raises :class:`NoAnswer`, also while the body is read.
        """
        url = f"{self.url}/mlx-stack/{path}"
        params = {key: value for key, value in query.items() if value is not None}
        options: Json = {"params": params, "headers": headers, "timeout": patience}
        try:
            with self._client.stream(method, url, **options) as answer:
                if answer.is_error:
                    raise self._refusal(answer, url)
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._no_answer(error) from None

    def _refusal(self, answer: httpx.Response, url: str) -> NoAnswer:
        """Return the error of an error response, with the proxy's message if the body has one."""
        try:
            message = str(json.loads(read(answer))["error"]["message"])
        except (ValueError, KeyError, TypeError, RecursionError):
            message = f"{url} answers with status {answer.status_code}"
        if answer.status_code == 401 and self._withheld:
            message += "; server.admin_key goes only to the configured address or to this machine"
        elif answer.status_code == 401:
            message += "; it is read from the file that --config names"
        return Refused(message) if answer.is_client_error else NoAnswer(message)

    def _no_answer(self, error: Exception) -> NoAnswer:
        hint = "start one with `mlx-stack-proxy serve`, or name another with --url"
        why = re.sub(r"^\[Errno -?\d+\] ", "", str(error))
        return NoAnswer(f"no proxy answers at {self.url}: {why}; {hint}")


def on_configuration(configuration: Any) -> tuple[str, bool]:
    """Return a sentence on settings that were refused or wait, and whether they were refused.

    It is "" if ``configuration``, as the proxy answers, is "ok".
    """
    if not isinstance(configuration, dict):
        return "", False
    if problems := configuration["refused"]:
        return f"configuration refused; the old one stays in force: {_first(problems)}", True
    return f"restart needed for: {', '.join(configuration['restart_due'])}", False


def warned(answer: Json) -> Json:
    """Return the proxy's answer; first print what waits in its configuration."""
    sentence, _ = on_configuration(answer.get("configuration"))
    if sentence:
        print_error(sentence)
    return answer


def remote_of(args: argparse.Namespace, prefix: str = "") -> tuple[Remote, Found]:
    """Return the proxy to ask; print why its configuration can't be used, if it is needed."""
    found = find(args.config)
    if found.problem and not args.url:
        print_error(f"{prefix}{found.problem}")
    return Remote(args.url or found.server.url, found.server), found


def show(answer: Json, args: argparse.Namespace, lines: Iterable[str]) -> None:
    """Print an answer's lines, or with ``--json`` the answer."""
    for line in [json.dumps(answer, indent=2)] if args.json else map(printable, lines):
        print(line)


def set_remote_command(
    parser: argparse.ArgumentParser, run: Callable[[Remote, argparse.Namespace], None]
) -> None:
    """Add the options that all these commands have, and set ``run`` as the command."""

    def command(args: argparse.Namespace) -> int:
        run(remote_of(args)[0], args)
        return 0

    add_url(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=command)


def add_url(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", help="default: server.host and port of the configuration")
