"""`docs/agents.md` as the runner reads it: its sections and the commands they give.

Commands are the blocks of `sh`. They are taken as they stand, so what runs is what the page says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PAGE = REPOSITORY / "docs" / "agents.md"
EXAMPLES = REPOSITORY / "examples"

_HEADING = re.compile(r"^## (.+)$", re.M)
_SCRIPT = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)
_INSTALL = re.compile(r"^(?:pip|npm) install\b.*$", re.M)


@dataclass(frozen=True)
class Section:
    """`scripts`: the blocks of `sh`, in order."""

    title: str
    scripts: list[str]

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
    return {
        title: Section(title, _SCRIPT.findall(body))
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }
