"""Which parts of the package import which, read off the code: `python -m scripts.module_graph`.

docs/architecture.md has it as a picture (`pictures.py`); a test holds the floors.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

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


def main() -> None:
    """Print how often each part imports each other."""
    for (part, other), count in sorted(imports().items()):
        print(f"{part:16}{other:16}{count:4}")


if __name__ == "__main__":
    main()
