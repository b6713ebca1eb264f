"""What ``agents --write`` of version 0.2 left in a client's own file: named, never removed by us.

It put a marked block into TOML and YAML, and single keys into JSON. No I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from .clients import ANY_KEY, OURS, Client, Setup

BACKUP = ".before-mlx-stack"  # ends the name of the copy that it made first
_BEGIN, _END = "# mlx-stack-proxy: begin", "# mlx-stack-proxy: end"
_SET_ASIDE = "#mlx-stack-proxy# "
# Values that only it wrote.
_VALUES = re.compile(rf"URL(/v1)?|{OURS}/.*|printenv \w+ \|\| echo {ANY_KEY}")


def left_in(text: str, client: Client, proxy: Setup) -> list[str]:
    """Return a line for each thing to remove. None quotes a value, which may be a key."""
    if not client.file.endswith(".json"):
        return list(_lines(text.splitlines()))
    try:
        settings = json.loads(text)
    except ValueError:  # with comments, say: it was never written to
        return []
    names = {name for name, value in client.variables(proxy).items() if value}
    names |= {*client.key, *client.written}
    found, ours = [], False
    for path, value in _leaves(settings):
        named = path in names or path.rpartition(".")[2] in names
        sure = _VALUES.fullmatch(str(value).replace(proxy.url, "URL")) or path.endswith(f".{OURS}")
        sure = sure or (named and value == ANY_KEY)
        found += [path] if sure or named else []
        ours = ours or bool(sure)
    return found if ours else []


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict) or path.endswith(f".{OURS}"):
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, f"{path}.{key}" if path else key)


def _lines(lines: list[str]) -> Iterator[str]:
    if _BEGIN in lines:
        begin = lines.index(_BEGIN)
        end = lines.index(_END, begin) if _END in lines[begin:] else begin
        yield f"lines {begin + 1} to {end + 1}: all from `{_BEGIN}` to `{_END}`"
    for number, line in enumerate(lines, 1):
        if line.startswith(_SET_ASIDE):
            yield f"line {number}: only its beginning, `{_SET_ASIDE}`; the rest was there before"
