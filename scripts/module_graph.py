"""Which parts of the package import which, read off the code: the graph of docs/architecture.md."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from .drawing import Drawing

APP = Path(__file__).resolve().parents[1] / "app" / "mlx_stack_proxy"
# From top to bottom: nothing imports what stands above it.
LAYERS = (
    ("operator", "litellm"),
    ("main", "server"),
    (
        "engine",
        "wire",
        "loop_detection",
        "tool_validation",
        "token_budget",
        "memory_pressure",
        "escalation",
        "state",
        "telemetry",
    ),
    ("basics",),
)
ROOMS = ("loop_detection", "tool_validation", "token_budget", "memory_pressure", "escalation")
# The same at the grain of modules, from the bottom up: a module imports from its own floor and from
# those below it, but one room never from another. A module stands where it is named, else where
# its folder is.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("basics",),
    ("wire",),
    (  # the engine's plain data, and the way to LiteLLM
        *(
            f"engine.{name}"
            for name in (
                "request",
                "outcome",
                "exchange",
                "record",
                "error_class",
                "session_id",
                "verdicts",
                "error_numbers",
                "steps",
                "deadlines",
            )
        ),
        *(f"engine.{name}" for name in ("pipeline", "gate", "hints", "headers", "tier_view")),
        *(f"engine.{name}" for name in ("upstream", "rate_limit")),
        "engine.reachability",
    ),
    ("state", "telemetry"),
    ROOMS,
    (  # the loop, and what of the rooms and of telemetry works with an exchange's services
        "engine",
        "loop_detection.ask_loop_model",
        *(f"token_budget.{name}" for name in ("books", "reservation", "passthrough_books")),
        *(f"telemetry.{name}" for name in ("accounts", "observers", "failure_capture", "traces")),
    ),
    ("main", "server"),
    ("operator", "litellm"),
)
# Loop detection counts the calls that a model writes as text, and tool validation reads them.
BETWEEN_ROOMS = frozenset({("loop_detection.generation", "tool_validation")})
WIRING = frozenset(["main", "reload", "stages"])
FOLDERS = frozenset(part for layer in LAYERS for part in layer) - {"main", "basics"}


def part_of(module: str) -> str:
    """The part that a module of the package belongs to: ``…engine.gate`` to ``engine``."""
    name = module.split(".")[1] if "." in module else ""
    if name in FOLDERS:
        return name
    if name == "__main__":
        return "operator"
    return "main" if name in WIRING else "basics"


def floor_of(module: str) -> int:
    """The number of the floor on which a module of the package stands."""
    inside = module.partition(".")[2]
    floors = {name: number for number, floor in enumerate(FLOORS) for name in floor}
    return floors.get(inside, floors[part_of(module)])


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
    d = Drawing("Which parts of the package import which", 860, 640)
    width, height = 230, 48
    places = {
        "operator": (20, 20, "operator\nup, init, check, service, replay …"),
        "main": (315, 20, "main.py\nall wiring"),
        "litellm": (610, 20, "litellm\nthe same inside LiteLLM"),
        "server": (315, 120, "server\nthe HTTP edge"),
        "engine": (315, 220, "engine\none exchange: attempts, what follows"),
        "state": (610, 220, "state\nsessions, budgets, events"),
        "telemetry": (610, 320, "telemetry\nmetrics, events, log, traces"),
        "loop_detection": (20, 220, "loop_detection\nacross turns, while writing"),
        "tool_validation": (20, 320, "tool_validation\nformats, repair, schemas"),
        "token_budget": (20, 420, "token_budget\nlimits, set-asides, the hour"),
        "escalation": (315, 320, "escalation\ntiers, ladder, breaker, queue"),
        "memory_pressure": (315, 420, "memory_pressure\nprobe, levels"),
        "wire": (315, 520, "wire\nbytes and what they mean"),
        "basics": (610, 570, "settings, errors …\nimported by all"),
    }
    rooms = ("loop_detection", "tool_validation", "token_budget", "escalation", "memory_pressure")
    for name, (x, y, text) in places.items():
        kind = "ours" if name in (*rooms, "wire") else "plain"
        d.box((x, y, width, height), text, kind)
    counted = imports()
    arrows = {
        ("operator", "main"): ((250, 44), (315, 44)),
        ("litellm", "main"): ((610, 44), (545, 44)),
        ("main", "server"): ((430, 68), (430, 120)),
        ("server", "engine"): ((430, 168), (430, 220)),
        ("engine", "state"): ((545, 244), (610, 244)),
        ("engine", "loop_detection"): ((315, 244), (250, 244)),
        ("engine", "escalation"): ((430, 268), (430, 320)),
    }
    for edge, points in arrows.items():
        if counted[edge]:
            d.arrow(*points)
    d.note(
        20,
        590,
        "blue: decisions, which know no asyncio, no HTTP, no clock\nno import goes upwards",
        anchor="start",
    )
    return d
