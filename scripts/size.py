"""``make size``: how large the package is, by room: lines, files, functions.

Counted are the lines of `.py`, `.lua`, `.html`, `.css` and `.js` below the package, as they stand
in the files; vendored files (a folder named `vendor`) are left out. A function's length is from its
`def` to its last line.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = frozenset({".py", ".lua", ".html", ".css", ".js"})
TOP = "(top level)"


@dataclass
class Room:
    """``files``: their lines by path. ``functions``: their lines by path and name."""

    files: dict[str, int] = field(default_factory=dict)
    functions: dict[str, int] = field(default_factory=dict)

    def add(self, other: Room) -> None:
        self.files |= other.files
        self.functions |= other.functions

    @property
    def lines(self) -> int:
        return sum(self.files.values())


def measured(package: Path) -> dict[str, Room]:
    """The rooms of a package, which are its folders, each with what lies below it."""
    rooms: dict[str, Room] = {}
    for path in sorted(package.rglob("*")):
        if path.suffix not in KINDS or "vendor" in path.parts:
            continue
        name = path.relative_to(package).as_posix()
        text = path.read_text("utf-8")
        room = rooms.setdefault(name.partition("/")[0] if "/" in name else TOP, Room())
        room.files[name] = len(text.splitlines())
        if path.suffix == ".py":
            room.functions |= {f"{name}:{found}": n for found, n in functions(text)}
    return rooms


def functions(text: str) -> Iterator[tuple[str, int]]:
    """Each function's or method's name, with the line it begins on, and how many lines it has."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield f"{node.lineno}:{node.name}", node.end_lineno - node.lineno + 1


def table(rooms: dict[str, Room]) -> list[str]:
    """The rooms, largest first, and a last line for all of them, as a table in Markdown."""
    whole = Room()
    for room in rooms.values():
        whole.add(room)
    rows = sorted(rooms.items(), key=lambda item: -item[1].lines)
    head = "| room | lines | files | largest file | functions | median | largest function |"
    marks = "|---|--:|--:|---|--:|--:|---|"
    return [head, marks, *(_row(name, room) for name, room in rows), _row("all", whole)]


def _row(name: str, room: Room) -> str:
    lengths = room.functions.values()
    median = f"{statistics.median(lengths):g}" if lengths else ""
    counts = f"{room.lines} | {len(room.files)} | {_largest(room.files)}"
    return f"| {name} | {counts} | {len(lengths)} | {median} | {_largest(room.functions)} |"


def _largest(lines: dict[str, int]) -> str:
    if not lines:
        return ""
    name = max(lines, key=lambda one: lines[one])
    return f"{name} {lines[name]}"


def main() -> None:
    package = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "app/mlx_stack_proxy")
    print("\n".join(table(measured(package))))


if __name__ == "__main__":
    main()
