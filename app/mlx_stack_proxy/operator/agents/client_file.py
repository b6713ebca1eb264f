"""Put our settings into the text of a client's file, and remove them again. No I/O.

A JSON file is parsed, merged with our settings and written anew. TOML and YAML files have comments,
so their text is kept: our settings become a marked block at its head, and each of the file's lines
that gives one of our keys is commented out. The result is parsed again; if it doesn't give what was
wanted (as when the file has a table of ours), or the file can't be parsed, :class:`Unfit` is
raised and nothing is written.
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
    """Our settings can't be put into this file, or it can't be read; the message says why."""


def text_of(settings: Json, form: Form) -> str:
    """Return settings as the text of a file that has no others."""
    if form == "json":
        return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    if form == "yaml":
        return str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100))
    # Dotted keys, because a table here would take in the file's own keys that follow.
    lines = [f"{'.'.join(path)} = {_toml(value)}" for path, value in _leaves(settings)]
    return "\n".join(lines) + "\n"


def put_in(text: str, settings: Json, form: Form) -> str:
    """Return the file's text with these settings in it. Raises :class:`Unfit`."""
    wanted = _merged(_read(text, form), settings)
    if form == "json":
        return json.dumps(wanted, indent=_indent(text), ensure_ascii=False) + "\n"
    rest = without_block(text)
    given = re.compile(rf"^(?=(?:{'|'.join(map(re.escape, settings))})\s*[=:])", re.M)
    # In TOML only the keys before the first table are top-level, as ours are.
    head, table, tail = _parted(rest) if form == "toml" else (rest, "", "")
    rest = given.sub(_SET_ASIDE, head) + table + tail
    made = f"{_BEGIN}\n{text_of(settings, form)}{_END}\n{rest}"
    try:
        fits = _read(made, form) == wanted
    except Unfit:  # a table is defined twice, say
        fits = False
    if not fits:
        raise Unfit("it has settings of its own where ours belong")
    return made


def take_back(text: str, before: str, settings: Json, form: Form) -> str:
    """Return the file's text without these settings. Raises :class:`Unfit`.

    ``before``: the text before they were put in; a JSON value of ours becomes again what it was.
    """
    if form != "json":
        return without_block(text)
    now, then = _read(text, form), _read(before, form)
    for path, _ in _leaves(settings):
        _restore(now, then, path)
    return json.dumps(now, indent=_indent(text), ensure_ascii=False) + "\n" if now else ""


def without_block(text: str) -> str:
    """Return a text without our block, and with the lines restored that were commented out."""
    return _BLOCK.sub("", text).replace(_SET_ASIDE, "")


def _parted(text: str) -> tuple[str, str, str]:
    """Split TOML at its first table: before it, the ``[`` that begins it, and the rest."""
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
    """Restore the value at a path; remove mappings that only our settings had needed."""
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
