"""Writes what was measured into documents, between markers: `<!-- cost:begin -->` … `:end -->`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from . import machine


def between(text: str, marker: str, content: str) -> str:
    """`text` with `content` between the marker's comments; ValueError where they are missing."""
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    found = re.search(re.escape(begin) + ".*?" + re.escape(end), text, re.DOTALL)
    if found is None:
        raise ValueError(f"there is no {begin} … {end}")
    lines = content.strip("\n")
    return text[: found.start()] + f"{begin}\n{lines}\n{end}" + text[found.end() :]


def write(page: Path, contents: dict[str, str]) -> list[str]:
    """Put each content where the page has its marker; the markers that were found."""
    text = page.read_text()
    found = [marker for marker in contents if f"<!-- {marker}:begin -->" in text]
    if not found:
        raise ValueError(f"{page} has none of the markers {', '.join(contents)}")
    for marker in found:
        text = between(text, marker, contents[marker])
    page.write_text(text)
    return found


def publish(
    command: str, tables: Mapping[str, str], files: Iterable[Path], **about: object
) -> None:
    """Print the tables, and put each between its markers in those files.

    Over them stands what was measured, where and when.
    """
    heading = machine.heading({"command": command, **machine.about(), **about})
    print("\n\n".join([heading, *tables.values()]))
    for file in files:
        found = write(file, {marker: f"{heading}\n\n{text}" for marker, text in tables.items()})
        print(f"{file}: {', '.join(found)}")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def typed(target: str, options: Iterable[str]) -> str:
    """How one types a target of the Makefile with these options."""
    given = " ".join(options)
    return f'make {target} ARGS="{given}"' if given else f"make {target}"
