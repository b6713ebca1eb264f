"""Settings of ours in a file that somebody else owns: put in, and taken back. Pure.

JSON is read, changed and written anew: a value of ours takes the place of what was there. TOML and
YAML have comments, so their text stays: our lines are a block at its head, and a line that gives
one of our keys becomes a comment. What then isn't read as it should be is refused, and so is a file
that can't be read at all.
"""

from __future__ import annotations

import copy
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import yaml

from .clients import Form

Json = dict[str, Any]
Path = tuple[str, ...]
_BEGIN = "# mlx-stack-proxy: begin"
_END = "# mlx-stack-proxy: end"
_BLOCK = re.compile(rf"^{_BEGIN}\n.*?^{_END}\n", re.M | re.S)
_SET_ASIDE = "#mlx-stack-proxy# "


class Unfit(ValueError):
    """Our settings can't be put into this file; the message says why."""


def text_of(settings: Json, form: Form) -> str:
    """Settings as they stand in a file that has no others."""
    if form == "json":
        return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    if form == "yaml":
        return str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100))
    # In dotted keys, which may stand before any table.
    lines = [f"{'.'.join(path)} = {_toml(value)}" for path, value in _leaves(settings)]
    return "\n".join(lines) + "\n"


def put_in(text: str, settings: Json, form: Form) -> str:
    """The file's text with these settings in it. Raises :class:`Unfit`."""
    wanted = _merged(_read(text, form), settings)
    if form == "json":
        return json.dumps(wanted, indent=_indent(text), ensure_ascii=False) + "\n"
    rest = without_block(text)
    given = re.compile(rf"^(?=(?:{'|'.join(map(re.escape, settings))})\s*[=:])", re.M)
    # In TOML a key is the file's own only before the first table.
    head, table, tail = _parted(rest) if form == "toml" else (rest, "", "")
    rest = given.sub(_SET_ASIDE, head) + table + tail
    made = f"{_BEGIN}\n{text_of(settings, form)}{_END}\n{rest}"
    try:
        fits = _read(made, form) == wanted
    except Unfit:  # such as a table that is there twice
        fits = False
    if not fits:
        raise Unfit("it has settings of its own where ours belong")
    return made


def take_back(text: str, before: str, settings: Json, form: Form) -> str:
    """The file's text without these settings; ``before``: as it was when they were put in."""
    if form != "json":
        return without_block(text)
    now, then = _read(text, form), _read(before, form)
    for path, _ in _leaves(settings):
        _restore(now, then, path)
    return json.dumps(now, indent=_indent(text), ensure_ascii=False) + "\n" if now else ""


def without_block(text: str) -> str:
    """A text without our block, and with the lines that it had set aside."""
    return _BLOCK.sub("", text).replace(_SET_ASIDE, "")


def _parted(text: str) -> tuple[str, str, str]:
    table = re.search(r"^\s*\[", text, re.M)
    return (text[: table.start()], table[0], text[table.end() :]) if table else (text, "", "")


_READERS: Mapping[Form, Callable[[str], Any]] = {
    "json": lambda text: json.loads(text) if text.strip() else {},
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}


def _read(text: str, form: Form) -> Json:
    try:
        found = _READERS[form](text)
    except (ValueError, yaml.YAMLError) as error:
        raise Unfit(f"it can't be read as {form.upper()}: {str(error).splitlines()[0]}") from None
    if found is None:  # an empty file of YAML
        return {}
    if not isinstance(found, dict):
        raise Unfit("it holds no settings by name")
    return found


def _merged(below: Json, above: Json) -> Json:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(value, dict) and isinstance(old, dict)
        merged[key] = _merged(old, value) if both else copy.deepcopy(value)  # type: ignore[arg-type]
    return merged


def _leaves(settings: Json, before: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*before, key))
        else:
            yield (*before, key), value


def _restore(now: Json, then: Json, path: Path) -> None:
    """Make one value what it was; what holds nothing any more, and wasn't there, goes."""
    key, *further = path
    if key not in now:
        return
    if further and isinstance(now[key], dict):
        old = then.get(key)
        _restore(now[key], old if isinstance(old, dict) else {}, tuple(further))
        if now[key] or isinstance(old, dict):
            return
    if key in then:
        now[key] = then[key]
    else:
        del now[key]


def _indent(text: str) -> int:
    found = re.search(r"\n( +)\S", text)
    return len(found[1]) if found else 2


def _toml(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False)
