"""The picture of the demo in README.md: `python -m scripts.demo_picture` records it anew.

It runs `mlx-stack-proxy demo --brief` in a pseudo-terminal, against the stack that `make run`
started, and draws what the terminal shows as docs/pictures/demo.svg. Arguments go to the demo.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from html import escape
from pathlib import Path

from rich.color import Color
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
NAME = "demo.svg"
COLUMNS, ROWS = 124, 24
COMMAND = "mlx-stack-proxy demo --brief"
_CHARACTER, _LINE, _MARGIN = 7.3, 19, 16  # pixels, at the font size below
_COLORS = {1: "#ff7b72", 2: "#3fb950", 3: "#d29922", 4: "#79c0ff"}  # by a terminal's numbers
_PLAIN, _DIM = "#e6edf3", "#8b949e"
_HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" \
width="{width}" height="{height}" role="img" font-size="12" xml:space="preserve" \
font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace">
<title>{title}</title>
<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>
"""


def record(arguments: Sequence[str]) -> str:
    """Run the demo in a pseudo-terminal; return what it wrote, with its escape sequences."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    command = [sys.executable, "-m", "mlx_stack_proxy", "demo", "--brief", *arguments]
    environment = {**os.environ, "TERM": "xterm-256color"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, env=environment) as process:
        os.close(theirs)
        written = b""
        while piece := _read(ours):
            written += piece
    os.close(ours)
    if process.returncode:
        raise SystemExit(written.decode() or f"the demo ended with {process.returncode}")
    return written.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux's word for the end
        return b""


def drawn(written: str) -> str:
    """Return a terminal that shows the command and what it wrote, as SVG."""
    prompt = Text.assemble(("$ ", "blue"), (COMMAND, "bold"))
    lines = [prompt, *(Text.from_ansi(line) for line in written.rstrip("\n").split("\n"))]
    width = round(2 * _MARGIN + COLUMNS * _CHARACTER)
    height = 2 * _MARGIN + len(lines) * _LINE - 4
    parts = [_HEAD.format(width=width, height=height, title=escape(_title(lines)))]
    for number, line in enumerate(lines):
        parts.append(_row(line, _MARGIN + 11 + number * _LINE))
    return "".join(parts) + "</svg>\n"


def _title(lines: Sequence[Text]) -> str:
    return f"{COMMAND}: {lines[-1].plain.strip()}"


def _row(line: Text, y: int) -> str:
    """Each run of one style at its own column, so that no font moves the next one."""
    parts, column = [], 0
    for text, style in _runs(line):
        if shown := text.rstrip():
            x = _MARGIN + column * _CHARACTER
            parts.append(f'<text x="{x:.1f}" y="{y}"{_look(style)}>{escape(shown)}</text>\n')
        column += len(text)
    return "".join(parts)


def _runs(line: Text) -> list[tuple[str, Style]]:
    console = Console(width=COLUMNS, color_system="standard", force_terminal=True)
    segments: list[Segment] = list(line.render(console))
    return [(one.text, one.style or Style()) for one in segments]


def _look(style: Style) -> str:
    fill = _DIM if style.dim else _fill(style.color)
    return f' fill="{fill}"' + (' font-weight="600"' if style.bold else "")


def _fill(color: Color | None) -> str:
    return _COLORS.get(color.number or 0, _PLAIN) if color else _PLAIN


if __name__ == "__main__":
    (FOLDER / NAME).write_text(drawn(record(sys.argv[1:])), encoding="utf-8")
