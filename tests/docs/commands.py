"""The commands of the documentation: found where they stand, and run as printed.

A command is a line of a code block, or a piece of code in a sentence, that begins with a program a
reader would type. Each is run by `test_commands.py`, or stands in `NOT_HERE` with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]

PROGRAMS = (
    "brew|cd|cp|curl|docker|export|git|jq|kubectl|launchctl|lsof|make|mkdir|mlx-stack-proxy|npm|npx|"
    "pip|pipx|python3?|redis-cli|sqlite3|sudo|systemctl|tail|uv|uvx"
)
_COMMAND = re.compile(rf"(?:\$ )?((?:[A-Z][A-Z_]*=\S+ )*(?:{PROGRAMS})\b(?!\.).*)")
_SPAN = re.compile(r"`((?:mlx-stack-proxy|curl|make) [^`]+)`")
_SHAPE = re.compile(r"…|\[-|\b(?:FILE|ID|NAME|DIR|URL|TARGET)\b| \| [a-z]+ \||<[a-z]+>")

# What can't be run here as printed, by its beginning, and why.
NOT_HERE: tuple[tuple[str, str], ...] = (
    ("brew ", "macOS alone"),
    ("launchctl ", "macOS alone; tests/operator/service checks what we send to a stand-in"),
    ("docker ", "no Docker daemon here; hadolint and tests/deploy check what can be checked"),
    ("kubectl ", "no cluster here; tests/deploy validates the manifests"),
    ("cd deploy/docker", "goes with docker"),
    ("cp env.example", "goes with docker"),
    ("cp deploy/kubernetes/", "goes with kubectl"),
    ("sudo ", "writes to /opt and /etc"),
    ("systemctl ", "needs a running systemd"),
    ("mlx-stack-proxy service install --dry-run", ""),  # is run
    ("mlx-stack-proxy service ", "needs launchd or systemd; tests/operator/service has stand-ins"),
    ("mlx-stack-proxy up", "the whole stack: tests/e2e runs it"),
    ("mlx-stack-proxy launch ", "starts a client; tests/operator/agents has stand-ins for them"),
    ("mlx-stack-proxy demo", "asks a running `up`; tests/e2e/test_demo.py"),
    ("mlx-stack-proxy why", "needs a request that went wrong; tests/operator/remote has them"),
    ("make ", "a target of the Makefile, with an environment of its own; CI runs `make test`"),
    ("pip", "installs packages; tests/test_package.py installs the wheel into a clean environment"),
    ("uv", "installs packages"),
    ("python3 -m venv", "installs packages"),
    ("npm ", "installs packages"),
    ("npx ", "installs packages"),
    ("git ", "the network"),
    ("python examples/", "needs its framework"),
    ("cp ../examples/", "goes with the framework it is for"),
    ("python -m tests.", "a benchmark, its output is on its page"),
    ("python -m benchmarks.", "a benchmark, its output is on its page"),
    ("redis-cli ", "would empty a Redis on its usual port"),
    ("sqlite3 ", "needs the sqlite3 program"),
)
# Goes on until somebody ends it: it has to begin, and to end in order.
ENDLESS = re.compile(r"mlx-stack-proxy serve|--follow|--watch|pressure --serve|curl -N|tail -f")


@dataclass(frozen=True, slots=True)
class Command:
    """One command as printed. ``page``: from the repository's root."""

    page: str
    line: int
    text: str

    @property
    def why_not(self) -> str:
        """Why it isn't run here; empty where it is."""
        return next((why for start, why in NOT_HERE if self.text.startswith(start)), "")

    @property
    def name(self) -> str:
        return f"{Path(self.page).name}:{self.line}"


def commands() -> Iterator[Command]:
    """All of them, page by page."""
    for page in PAGES:
        yield from _of_page(page.relative_to(ROOT).as_posix(), page.read_text("utf-8"))


def _of_page(page: str, text: str) -> Iterator[Command]:
    for number, line, in_block in _lines(text):
        if in_block:
            if found := _COMMAND.fullmatch(line):
                yield Command(page, number, found[1])
        else:
            for span in _SPAN.findall(line):
                if not _SHAPE.search(span):
                    yield Command(page, number, span)


def _lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """Each line with its number, and whether it is one of a code block; continued ones are one."""
    fenced = False
    whole, first = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        in_block = fenced or line.startswith("    ")
        first = first if whole else number
        whole += line.strip() if in_block else line
        if in_block and whole.endswith("\\"):
            whole = whole[:-1]
            continue
        yield first, whole, in_block
        whole = ""
