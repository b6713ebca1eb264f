"""Which parts of the package import which, read off the code: the graph of docs/architecture.md."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .drawing import Drawing

APP = Path(__file__).resolve().parents[1] / "app"
# From top to bottom: nothing imports what stands above it, nor beside it.
LAYERS = (
    ("commands",),
    ("main",),
    ("api",),
    ("proxy",),
    ("stages", "state"),
    ("core",),
    ("tool_calls",),
    ("basics",),
)
# Modules that stand alone, and the folders of the commands.
_COMMANDS = (
    "cli __main__ check init local_stack remote replay server service tier_probe workers reload "
    "settings_shown settings_schema deploy_files log_file pressure"
)
COMMANDS = frozenset(_COMMANDS.split())
MAIN = frozenset({"main"})
FOLDERS = frozenset({"api", "proxy", "stages", "state", "core", "tool_calls"})


def part_of(module: str) -> str:
    """The part that a module of the package belongs to: ``app.core.gate`` to ``core``."""
    name = module.split(".")[1] if "." in module else ""
    if name in FOLDERS:
        return name
    if name in COMMANDS:
        return "commands"
    return "main" if name in MAIN else "basics"


def imports() -> Counter[tuple[str, str]]:
    """How often modules of one part import those of another."""
    modules = {name_of(path): path for path in APP.rglob("*.py")}
    found: Counter[tuple[str, str]] = Counter()
    for module, path in modules.items():
        for other in imported(module, path, modules):
            edge = part_of(module), part_of(other)
            if edge[0] != edge[1]:
                found[edge] += 1
    return found


def name_of(path: Path) -> str:
    name = ".".join(path.relative_to(APP.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


def imported(module: str, path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """The modules of the package that one imports, as often as it does."""
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            inside = [f"{base}.{alias.name}" for alias in node.names]
            names = [name if name in modules else base for name in inside]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        yield from (name for name in names if name in modules)


def drawing() -> Drawing:
    d = Drawing("Which parts of the package import which", 860, 640)
    width, height = 230, 48
    places = {
        "commands": (20, 20, "commands\ncli, up, init, check, service, replay …"),
        "main": (315, 20, "main.py\nall wiring"),
        "api": (315, 120, "api\nthe HTTP edge"),
        "proxy": (315, 220, "proxy\nthe async shell: all I/O upstream"),
        "state": (610, 320, "state\nsessions, budgets, events"),
        "stages": (20, 320, "stages\nwhat is wrong with a reply"),
        "core": (315, 420, "core\nexchanges, events, every rule"),
        "tool_calls": (20, 520, "tool_calls\nformats, repair, schemas"),
        "basics": (610, 570, "settings, errors, log …\nimported by all"),
    }
    for name, (x, y, text) in places.items():
        kind = "ours" if name in ("core", "stages", "tool_calls") else "plain"
        d.box((x, y, width + (20 if name == "commands" else 0), height), text, kind)
    counted = imports()
    arrows = {
        ("commands", "main"): ((270, 44), (315, 44)),
        ("main", "api"): ((430, 68), (430, 120)),
        ("api", "proxy"): ((430, 168), (430, 220)),
        ("proxy", "core"): ((430, 268), (430, 420)),
        ("proxy", "state"): ((545, 250), (700, 320)),
        ("api", "state"): ((545, 150), (770, 150), (770, 320)),
        ("state", "core"): ((700, 368), (545, 430)),
        ("stages", "core"): ((160, 368), (315, 430)),
        ("stages", "tool_calls"): ((90, 368), (90, 520)),
        ("core", "tool_calls"): ((345, 468), (250, 535)),
        ("main", "stages"): ((330, 68), (135, 320)),
        ("commands", "proxy"): ((60, 68), (60, 244), (315, 244)),
    }
    for edge, points in arrows.items():
        if counted[edge]:
            d.arrow(*points)
    d.note(
        315,
        512,
        "blue: decisions, which know no asyncio, no HTTP, no clock\n"
        "left out: most of what passes over a layer, as from api to core\nno import goes upwards",
        anchor="start",
    )
    return d
