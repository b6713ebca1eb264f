"""A file of environment variables, for launchd, which has no such thing of its own.

It is read as systemd reads an ``EnvironmentFile``, in as far as people write them: ``NAME=value`` a
line, ``#`` and ``;`` begin a comment, quotes around a value are taken off.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, MutableMapping
from pathlib import Path

from ...settings_source import SettingsError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ESCAPED = re.compile(r'\\(["\\$`])')


def read(path: Path) -> dict[str, str]:
    """The variables of a file. Raises :class:`SettingsError`: it can't be read, others may read
    it too, or a line is none of ``NAME=value``. No message quotes a value."""
    text, mode = _content(path)
    if mode & 0o077:
        sentence = f"others may read it (mode {mode:04o}), and it holds keys: chmod 600 {path}"
        raise SettingsError([sentence], str(path))
    found: dict[str, str] = {}
    for number, name, value in _lines(text):
        if not _NAME.fullmatch(name):
            raise SettingsError([f"line {number} is no NAME=value"], str(path))
        found[name] = value
    return found


def read_leniently(path: Path) -> dict[str, str]:
    """The variables of a file that systemd reads for itself: what it passes over is passed over.
    None where there is no file, or none that this user may read."""
    try:
        text, _ = _content(path)
    except SettingsError:
        return {}
    return {name: value for _, name, value in _lines(text) if _NAME.fullmatch(name)}


def _content(path: Path) -> tuple[str, int]:
    """The text and the mode of a file. Raises :class:`SettingsError`."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise SettingsError([f"can't be read: {why}"], str(path)) from None


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Number, name and value of each line that is no comment; a line without ``=`` has no name."""
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            yield number, name.strip() if equals else "", _value(value.strip())


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
