"""Ask a running proxy's ``/mlx-stack/`` endpoints over HTTP."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import IO, Any
from urllib.parse import urlencode

from ...local_address import local_url
from ...settings_source import load

SECONDS = 5.0  # how long the proxy may be silent before we give up
# Without the environment's HTTP proxy, which can't reach this machine's loopback addresses.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoAnswer(Exception):
    """The proxy can't be reached, or answers with an error; the message says why."""


class Refused(NoAnswer):
    """The proxy answered with a status of 4xx: asking again would be useless."""


class Remote:
    """A running proxy, to be asked. ``key``: its ``admin_key``, if it has one."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/")
        self._key = key

    def ask(self, path: str, method: str = "GET", **query: Any) -> Any:
        """Ask ``/mlx-stack/PATH`` and return the answer's JSON. Raises :class:`NoAnswer`."""
        with self.open(path, query, method) as answer:
            try:
                return json.load(answer)
            except (OSError, ValueError) as error:
                raise self._none(error) from None

    def open(
        self,
        path: str,
        query: Mapping[str, Any],
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        patience: float = SECONDS,
    ) -> IO[bytes]:
        """Ask ``/mlx-stack/PATH`` and return the answer's body, which the caller must close.

        Parameters of ``query`` that are None are not sent. ``patience``: how many seconds the
        proxy may be silent. Raises :class:`NoAnswer`; reading the body raises ``OSError``.
        """
        given = {key: value for key, value in query.items() if value is not None}
        url = f"{self.url}/mlx-stack/{path}" + (f"?{urlencode(given)}" if given else "")
        sent = dict(headers or {})
        if self._key:
            sent["Authorization"] = f"Bearer {self._key}"
        try:
            request = urllib.request.Request(url, method=method, headers=sent)  # noqa: S310
            found: IO[bytes] = OPENER.open(request, timeout=patience)
        except urllib.error.HTTPError as error:
            kind = Refused if error.code < 500 else NoAnswer
            said = _sentence(error) or f"{url} answers with status {error.code}"
            if error.code == 401:
                said += "; it is read from the file that --config names"
            raise kind(said) from None
        except (OSError, ValueError) as error:
            raise self._none(error) from None
        return found

    def _none(self, error: Exception) -> NoAnswer:
        reason = getattr(error, "reason", error)
        return NoAnswer(f"no proxy answers at {self.url}: {reason}")


def _sentence(error: urllib.error.HTTPError) -> str:
    """Return the message of an error response; "" if the proxy didn't write it."""
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def asks(
    parser: argparse.ArgumentParser, run: Callable[[Remote, argparse.Namespace], None]
) -> None:
    """Add the options that all these commands have, and set ``run`` as the command.

    The command's exit code is 1 if ``run`` raises :class:`NoAnswer`, else 0.
    """

    def command(args: argparse.Namespace) -> int:
        settings = load(args.config)
        try:
            run(Remote(args.url or local_url(settings), settings.server.admin_key), args)
        except NoAnswer as error:
            print(error, file=sys.stderr)
            return 1
        return 0

    parser.add_argument("--url", help="default: server.host and port of the configuration")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=command)
