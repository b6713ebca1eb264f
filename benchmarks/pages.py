"""Writes what was measured into documents, between markers: `<!-- cost:begin -->` … `:end -->`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from . import machine


def write(page: Path, contents: Mapping[str, str]) -> list[str]:
    """Put each content where the page has its marker; the markers that were found.

    Raises ValueError where the page has none of them, or only the beginning of one.
    """
    text = page.read_text()
    found = [marker for marker in contents if f"<!-- {marker}:begin -->" in text]
    if not found:
        raise ValueError(f"{page} has none of the markers {', '.join(contents)}")
    for marker in found:
        begin, end = f"<!-- {marker}:begin -->\n", f"<!-- {marker}:end -->"
        before, after = text.index(begin) + len(begin), text.index(end)
        lines = contents[marker].strip("\n")
        text = f"{text[:before]}{lines}\n{text[after:]}"
    page.write_text(text)
    return found


def publish(
    module: str,
    tables: Mapping[str, str],
    files: Iterable[Path],
    about: Mapping[str, object] | None = None,
    *,
    plain: Mapping[str, str] | None = None,
) -> None:
    """Print the tables of a program, and put each between its markers in those files.

    Over them stands what was measured, where and when, and ``about``; not over the ``plain``.
    """
    command = machine.command(module, sys.argv[1:])
    heading = machine.heading({"command": command, **machine.about(), **(about or {})})
    print("\n\n".join([heading, *tables.values()]))
    contents = {marker: f"{heading}\n\n{text}" for marker, text in tables.items()}
    for file in files:
        print(f"{file}: {', '.join(write(file, {**contents, **(plain or {})}))}")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown that is also one to the eye."""
    lines = [head, *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    said = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    said.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(said)
