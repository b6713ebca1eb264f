"""A file of environment variables, for launchd, which has no such thing of its own.

It is read as systemd reads an ``EnvironmentFile``, in as far as people write them: ``NAME=value`` a
line, ``#`` and ``;`` begin a comment, quotes around a value are taken off.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from ...settings_source import SettingsError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPED = re.compile(r'\\(["\\$`])')


def read(path: Path) -> dict[str, str]:
    """The variables of a file. Raises :class:`SettingsError`: it can't be read, others may read
    it too, or a line is none of ``NAME=value``. No message quotes a value."""
    try:
        with path.open(encoding="utf-8") as file:
            text, mode = file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SettingsError([f"can't be read: {why}"], str(path)) from None
    if mode & 0o077:
        sentence = f"others may read it (mode {mode:04o}), and it holds keys: chmod 600 {path}"
        raise SettingsError([sentence], str(path))
    found: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            if not equals or not _NAME.fullmatch(name.strip()):
                raise SettingsError([f"line {number} is no NAME=value"], str(path))
            found[name.strip()] = _value(value.strip())
    return found


def read_if_there(path: Path) -> dict[str, str]:
    """The same; nothing where there is no file."""
    return read(path) if path.exists() else {}


def put_into(environ: MutableMapping[str, str], path: Path) -> None:
    """Set the file's variables; one that is set already is the stronger. Raises as :func:`read`."""
    for name, value in read(path).items():
        environ.setdefault(name, value)


def _value(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _ESCAPED.sub(r"\1", text[1:-1])
    if len(text) > 1 and text[0] == text[-1] == "'":
        return text[1:-1]
    return text


def text_of(variables: Mapping[str, str | None], hide: bool = False) -> str:
    """A file of variables, as :func:`read` and systemd read it; those that are None stand behind a
    ``#``. Raises :class:`SettingsError` for a value that fits on no line."""
    lines = ["# The environment of mlx-stack-proxy. Keys belong here, not into config.yaml."]
    for name, value in variables.items():
        if value is None:
            lines.append(f"#{name}=")
        elif re.search(r"[\n\r\0]", value):
            raise SettingsError(["its value has a line end, which no such file holds"], name)
        else:
            quoted = re.sub(r'(["\\$`])', r"\\\1", value)
            lines.append(f"{name}=" + ("(as it is now, not shown)" if hide else f'"{quoted}"'))
    return "\n".join(lines) + "\n"
