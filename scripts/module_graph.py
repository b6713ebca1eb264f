"""Which parts of the package import which, read off the code: the graph of docs/architecture.md."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .drawing import Drawing

APP = Path(__file__).resolve().parents[1] / "app" / "mlx_stack_proxy"
# From the bottom up: a module imports from its own folder and from those on the floors below it.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("basics",),
    ("wire",),
    ("engine",),
    ("state",),
    ("telemetry",),
    ("tool_validation", "token_budget", "memory_pressure", "escalation"),
    ("loop_detection",),  # it asks tool validation which calls a text holds
    ("driver",),
    ("server",),
    ("main",),
    ("operator", "litellm"),
)
WIRING = frozenset(["main", "reload", "stages"])
FOLDERS = frozenset(part for floor in FLOORS for part in floor) - {"main", "basics"}


def part_of(module: str) -> str:
    """The part that a module of the package belongs to: ``…engine.gate`` to ``engine``."""
    name = module.split(".")[1] if "." in module else ""
    if name in FOLDERS:
        return name
    if name == "__main__":
        return "operator"
    return "main" if name in WIRING else "basics"


def floor_of(module: str) -> int:
    """The number of the floor on which a module of the package stands: its folder's."""
    part = part_of(module)
    return next(number for number, floor in enumerate(FLOORS) if part in floor)


def edges() -> Iterator[tuple[str, str]]:
    """Which module of the package imports which."""
    modules = {name_of(path): path for path in APP.rglob("*.py")}
    for module, path in modules.items():
        for other in imported(module, path, modules):
            yield module, other


def imports() -> Counter[tuple[str, str]]:
    """How often modules of one part import those of another."""
    found: Counter[tuple[str, str]] = Counter()
    for module, other in edges():
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
    d = Drawing("Which parts of the package import which", 860, 740)
    width, height = 230, 48
    places = {
        "operator": (20, 20, "operator\nup, init, check, service, replay …"),
        "main": (315, 20, "main.py, stages.py\nall wiring, the five stages"),
        "litellm": (610, 20, "litellm\nthe same inside LiteLLM"),
        "server": (315, 120, "server\nthe HTTP edge"),
        "driver": (315, 220, "driver\nruns an exchange; what follows"),
        "loop_detection": (20, 320, "loop_detection\nacross turns, while writing"),
        "tool_validation": (20, 420, "tool_validation\nformats, repair, schemas"),
        "token_budget": (315, 320, "token_budget\nlimits, set-asides, the hour"),
        "escalation": (315, 420, "escalation\ntiers, ladder, breaker, queue"),
        "memory_pressure": (610, 320, "memory_pressure\nprobe, levels"),
        "telemetry": (610, 420, "telemetry\nmetrics, events, traces"),
        "state": (610, 520, "state\nsessions, budgets, events"),
        "engine": (315, 520, "engine\none exchange as data, an attempt"),
        "wire": (315, 620, "wire\nbytes and what they mean"),
        "basics": (610, 620, "settings, errors, log …\nimported by all"),
    }
    rooms = ("loop_detection", "tool_validation", "token_budget", "escalation", "memory_pressure")
    for name, (x, y, text) in places.items():
        kind = "ours" if name in (*rooms, "engine", "wire") else "plain"
        d.box((x, y, width, height), text, kind)
    counted = imports()
    arrows = {
        ("operator", "main"): ((250, 44), (315, 44)),
        ("litellm", "main"): ((610, 44), (545, 44)),
        ("main", "server"): ((430, 68), (430, 120)),
        ("server", "driver"): ((430, 168), (430, 220)),
        ("driver", "loop_detection"): ((315, 252), (135, 252), (135, 320)),
        ("driver", "token_budget"): ((430, 268), (430, 320)),
        ("driver", "memory_pressure"): ((545, 252), (725, 252), (725, 320)),
        ("loop_detection", "tool_validation"): ((135, 368), (135, 420)),
        ("escalation", "engine"): ((430, 468), (430, 520)),
        ("telemetry", "state"): ((725, 468), (725, 520)),
        ("engine", "wire"): ((430, 568), (430, 620)),
    }
    for edge, points in arrows.items():
        if counted[edge]:
            d.arrow(*points)
    d.note(
        20,
        690,
        "blue: decisions on plain data; a few of their files wait or ask\nimports go downwards",
        anchor="start",
    )
    return d
