"""Where the running proxy is, and its ``admin_key``: also from a configuration that is refused.

A proxy goes on with its old settings while its file is broken, and just then it is to be asked.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import yaml
from pydantic import ValidationError

from ...frozen import frozen
from ...local_address import url_of
from ...settings import ServerSettings, Settings, is_loopback
from ...settings_source import SettingsError, find_file, load

_KEYS = ("host", "port", "admin_key")


@frozen
class Found:
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
        further = len(error.problems) - 1
        more = f", and {further} more" if further else ""
        problem = f"{error.source}: {error.problems[0]}{more}"
    section = _server_section(config)
    server = ServerSettings()
    for key in _KEYS:
        value = os.environ.get(f"MLX_STACK_SERVER__{key.upper()}", section.get(key))
        fields: dict[str, Any] = {key: value}
        with suppress(ValidationError):  # one that can't be used leaves the default
            server = replace(server, **fields) if value is not None else server
    return Found(server, problem=f"{problem}; only the proxy's address is taken from it")


def _server_section(config: str | None) -> dict[str, Any]:
    """Return the file's section ``server``, read alone: what else is there may be no YAML at all.

    It is empty if there is no such section, or no file, or it can't be read either.
    """
    section = None
    with suppress(SettingsError, OSError, ValueError, yaml.YAMLError):
        file = find_file(config, os.environ)
        text = file.read_text(encoding="utf-8") if file is not None else ""
        lines, inside = [], False
        for line in text.splitlines():
            if line[:1].strip() and not line.startswith("#"):
                inside = line.startswith("server:")
            lines += [line] if inside else []
        section = (yaml.safe_load("\n".join(lines)) or {}).get("server")
    return section if isinstance(section, dict) else {}


def is_configured(url: str, server: ServerSettings) -> bool:
    """Whether a URL is the configured proxy's, or leads to this machine."""
    try:
        asked, configured = httpx.URL(url), httpx.URL(url_of(server))
    except httpx.InvalidURL:
        return False
    same = (asked.host, asked.port) == (configured.host, configured.port)
    return same or is_loopback(asked.host)
