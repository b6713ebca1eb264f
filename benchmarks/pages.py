"""Writes what was measured into documents, between markers: `<!-- cost:begin -->` … `:end -->`."""

from __future__ import annotations

import re
from pathlib import Path


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
