"""Put our settings into the text of a client's file, and remove them again. No I/O.

A JSON file is parsed, merged with our settings and written anew. TOML and YAML files have comments,
so their text is kept: our settings become a marked block at its head, and each of the file's lines
that gives one of our keys is commented out. The result is parsed again. If it doesn't give the
merged settings (as when the file already has a table of our name), or the file can't be parsed,
:class:`Unfit` is raised and nothing is written.
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
    """Our settings can't be put into this file, or the file can't be read; the message says why."""


def text_of(settings: Json, form: Form) -> str:
    """Return settings as the text of a file that has no other settings."""
    if form == "json":
        return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    if form == "yaml":
        return str(yaml.safe_dump(settings, sort_keys=False, allow_unicode=True, width=100))
    # Dotted keys, because a table here would take in the file's own keys that follow.
    lines = [f"{'.'.join(path)} = {_toml(value)}" for path, value in _leaves(settings)]
    return "\n".join(lines) + "\n"


def put_in(text: str, settings: Json, form: Form) -> str:
    """Return the file's text with these settings in it. Raises :class:`Unfit`."""
    merged = _merged(_read(text, form), settings)
    if form == "json":
        return json.dumps(merged, indent=_indent(text), ensure_ascii=False) + "\n"
    body = without_block(text)
    our_keys = re.compile(rf"^(?=(?:{'|'.join(map(re.escape, settings))})\s*[=:])", re.M)
    # In TOML only the keys before the first table are top-level, as ours are.
    head, table, tail = _parted(body) if form == "toml" else (body, "", "")
    body = our_keys.sub(_SET_ASIDE, head) + table + tail
    new_text = f"{_BEGIN}\n{text_of(settings, form)}{_END}\n{body}"
    try:
        fits = _read(new_text, form) == merged
    except Unfit:  # a table is defined twice, say
        fits = False
    if not fits:
        raise Unfit("it has settings of its own where ours belong")
    return new_text


def take_back(text: str, backup: str, settings: Json, form: Form) -> str:
    """Return the file's text without these settings. Raises :class:`Unfit`.

    ``backup``: the text before they were put in, from which JSON values of ours are restored.
    """
    if form != "json":
        return without_block(text)
    current, original = _read(text, form), _read(backup, form)
    for path, _ in _leaves(settings):
        _restore(current, original, path)
    return json.dumps(current, indent=_indent(text), ensure_ascii=False) + "\n" if current else ""


def without_block(text: str) -> str:
    """Return a text without our block, and with the lines restored that were commented out."""
    return _BLOCK.sub("", text).replace(_SET_ASIDE, "")


def _parted(text: str) -> tuple[str, str, str]:
    """Split TOML at its first table: the text before, the ``[`` of its header, the text after."""
    table = re.search(r"^\s*\[", text, re.M)
    return (text[: table.start()], table[0], text[table.end() :]) if table else (text, "", "")


_READERS: Mapping[Form, Callable[[str], Any]] = {
    "json": lambda text: json.loads(text) if text.strip() else {},
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
}


def _read(text: str, form: Form) -> Json:
    try:
        settings = _READERS[form](text)
    except (ValueError, yaml.YAMLError) as error:
        raise Unfit(f"it can't be read as {form.upper()}: {str(error).splitlines()[0]}") from None
    if settings is None:  # an empty file of YAML
        return {}
    if not isinstance(settings, dict):
        raise Unfit("it holds no settings by name")
    return settings


def _merged(base: Json, overrides: Json) -> Json:
    merged = dict(base)
    for key, value in overrides.items():
        old = merged.get(key)
        nested = isinstance(value, dict) and isinstance(old, dict)
        merged[key] = _merged(old, value) if nested else copy.deepcopy(value)  # type: ignore[arg-type]
    return merged


def _leaves(settings: Json, prefix: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*prefix, key))
        else:
            yield (*prefix, key), value


def _restore(current: Json, original: Json, path: Path) -> None:
    """Restore the value at a path; remove mappings that only our settings needed."""
    key, *further = path
    if key not in current:
        return
    if further and isinstance(current[key], dict):
        old = original.get(key)
        _restore(current[key], old if isinstance(old, dict) else {}, tuple(further))
        if current[key] or isinstance(old, dict):
            return
    if key in original:
        current[key] = original[key]
    else:
        del current[key]


def _indent(text: str) -> int:
    match = re.search(r"\n( +)\S", text)
    return len(match[1]) if match else 2


def _toml(value: str | int) -> str:
    return json.dumps(value, ensure_ascii=False)
