"""What ``agents --write`` of version 0.2 left in a client's own file: named, never removed by us.

It put a marked block into TOML and YAML, and single keys into JSON. No I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from .clients import Client

BACKUP = ".before-mlx-stack"  # ends the name of the copy that it made first
_BEGIN, _END = "# mlx-stack-proxy: begin", "# mlx-stack-proxy: end"
_SET_ASIDE = "#mlx-stack-proxy# "


def left_in(text: str, client: Client, url: str) -> list[str]:
    """Return a line for each thing to remove. None quotes a value, which may be a key.

    ``url``: the proxy's address, which a JSON file may name.
    """
    return _keys(text, client, url) if client.written else list(_lines(text.splitlines()))


def _keys(text: str, client: Client, url: str) -> list[str]:
    try:
        settings = json.loads(text)
    except ValueError:  # with comments, say: it was never written to
        return []
    found, ours = [], False
    for path, pattern in client.written.items():
        value = _at(settings, path)
        if value is None or (pattern and not re.fullmatch(pattern, str(value).replace(url, "URL"))):
            continue
        ours = ours or bool(pattern)  # only such a value shows who wrote it
        found.append(path)
    return found if ours else []


def _at(settings: Any, path: str) -> Any:
    for key in path.split("."):
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def _lines(lines: list[str]) -> Iterator[str]:
    if _BEGIN in lines:
        begin = lines.index(_BEGIN)
        end = lines.index(_END, begin) if _END in lines[begin:] else begin
        yield f"lines {begin + 1} to {end + 1}: all from `{_BEGIN}` to `{_END}`"
    for number, line in enumerate(lines, 1):
        if line.startswith(_SET_ASIDE):
            yield f"line {number}: only its beginning, `{_SET_ASIDE}`; the rest was there before"
