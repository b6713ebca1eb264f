"""Read and write a file of environment variables, the service's keys among them.

launchd has no such files, so there ``serve --env-file`` reads it. The syntax is the common part of
systemd's ``EnvironmentFile``: a line is ``NAME=value``, or a comment that begins with ``#`` or
``;``; quotes around a value are removed.
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
    """Return the variables of a file.

    Raises :class:`SettingsError` if the file can't be read, if other users may read it, or if a
    line is not ``NAME=value``; no message quotes a value.
    """
    try:
        with path.open(encoding="utf-8") as file:
            text, mode = file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SettingsError([f"can't be read: {why}"], str(path)) from None
    if mode & 0o077:
        sentence = f"other users can read it (mode {mode:04o}), and it holds keys: chmod 600 {path}"
        raise SettingsError([sentence], str(path))
    variables: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line and line[0] not in "#;":
            name, equals, value = line.partition("=")
            if not equals or not _NAME.fullmatch(name.strip()):
                raise SettingsError([f"line {number} is not NAME=value"], str(path))
            value = value.strip()
            quote = value[0] if len(value) > 1 and value[0] == value[-1] else ""
            if quote == '"':
                value = _ESCAPED.sub(r"\1", value[1:-1])
            elif quote == "'":
                value = value[1:-1]
            variables[name.strip()] = value
    return variables


def put_into(environ: MutableMapping[str, str], path: Path) -> None:
    """Set those of the file's variables that aren't set yet. Raises as :func:`read`."""
    for name, value in read(path).items():
        environ.setdefault(name, value)


def text_of(variables: Mapping[str, str | None], hide: bool = False) -> str:
    """Return the text of a file of variables, for :func:`read` and for systemd.

    Variables that are None are commented out. ``hide``: without the values, for the screen. Raises
    :class:`SettingsError` for a value with a line end.
    """
    lines = ["# The environment of mlx-stack-proxy. Keys belong here, not into config.yaml."]
    for name, value in variables.items():
        if value is None:
            lines.append(f"#{name}=")
        elif re.search(r"[\n\r\0]", value):
            raise SettingsError(["its value has a line break, which this file can't hold"], name)
        else:
            quoted = re.sub(r'(["\\$`])', r"\\\1", value)
            lines.append(f"{name}=" + ("(as it is now, not shown)" if hide else f'"{quoted}"'))
    return "\n".join(lines) + "\n"
