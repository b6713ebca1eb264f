"""`docs/agents.md` as the runner reads it: sections, the files they print, the commands they give.

A file is printed as a fenced block right after a line `<!-- file: examples/… -->`. Commands are the
blocks of `sh`. Both are taken as they stand, so what runs is what the page says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "agents.md"
EXAMPLES = REPOSITORY / "examples"

_HEADING = re.compile(r"^## (.+)$", re.M)
_BLOCK = re.compile(
    r"(?:^<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
_INSTALL = re.compile(r"^(?:pip|npm) install\b.*$", re.M)


@dataclass(frozen=True)
class Section:
    """`files`: path in the repository → its text. `scripts`: the blocks of `sh`, in order."""

    title: str
    files: dict[str, str] = field(default_factory=dict)
    scripts: list[str] = field(default_factory=list)

    @property
    def install(self) -> str:
        """The lines that install something; once they have run, they need not again."""
        return "\n".join(line for script in self.scripts for line in _INSTALL.findall(script))

    @property
    def run(self) -> str:
        """All other lines."""
        return "\n".join(_INSTALL.sub("", script) for script in self.scripts)


def sections(text: str | None = None) -> dict[str, Section]:
    """The page's sections by their titles, in order."""
    text = PAGE.read_text(encoding="utf-8") if text is None else text
    _, *parts = _HEADING.split(text)
    found = {}
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        section = found[title] = Section(title)
        for block in _BLOCK.finditer(body):
            if block["file"]:
                section.files[block["file"]] = block["text"]
            elif block["language"] == "sh":
                section.scripts.append(block["text"])
    return found
