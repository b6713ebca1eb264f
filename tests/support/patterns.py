"""Finds the package's regular expressions whose cost grows faster than their text.

    python -m tests.support.patterns        # a line for each such pattern; none if all is well
    python -m tests.support.patterns loop_detection/ server/access.py    # only paths that begin so

All modules of the package are imported, and a wrapper around ``re``'s compiler notes each pattern
that they compile, wherever they keep it. Patterns inside functions are found in the source.
``pumping.py`` measures each pattern by the methods that the package calls on it.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.pumping import Anything, slowest

_ROOT = Path(__file__).parents[2] / "app" / "mlx_stack_proxy"
_ANCHORED = frozenset({"match", "fullmatch"})
_SEARCHES = _ANCHORED | {"search", "finditer", "findall", "sub", "subn"}
_compile: Callable[[Any, Any], Any] = re._compile  # type: ignore[attr-defined]


def main() -> None:
    compiled = import_all()
    print(f"{len(compiled)} patterns", file=sys.stderr)
    uses = _Uses()
    for pattern, place, methods in [
        *((pattern, place, uses.of(pattern, place)) for pattern, place in compiled.items()),
        *in_functions(),
    ]:
        if len(sys.argv) > 1 and not place.startswith(tuple(sys.argv[1:])):
            continue
        found = slowest(pattern, methods)
        if found is not None:
            print(f"{place}: {found[0]:.0f} times the work for 8 times the text {found[1]:.200}")


def import_all() -> dict[Anything, str]:
    """Import the package; return each pattern that this compiles, with its file and line."""
    found: dict[Anything, str] = {}

    def noting(source: Any, flags: Any) -> Any:
        pattern = _compile(source, flags)
        frame: Any = sys._getframe(1)
        while frame is not None and Path(frame.f_code.co_filename).parent.name == "re":
            frame = frame.f_back
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_ROOT):
            found.setdefault(pattern, f"{path.relative_to(_ROOT)}:{frame.f_lineno}")
        return pattern

    re._compile = noting  # type: ignore[attr-defined]
    try:
        package = importlib.import_module(_ROOT.name)
        for module in pkgutil.walk_packages(package.__path__, f"{_ROOT.name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    finally:
        re._compile = _compile  # type: ignore[attr-defined]
    return found


def in_functions() -> Iterator[tuple[Anything, str, frozenset[str]]]:
    """Yield the patterns that stand as literals in calls of ``re``'s functions."""
    for path in sorted(_ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            inline = (
                isinstance(owner, ast.Name) and owner.id == "re" and node.func.attr in _SEARCHES
            )
            if inline and node.args:
                source = node.args[0]
                if isinstance(source, ast.Constant) and isinstance(source.value, str | bytes):
                    place = f"{path.relative_to(_ROOT)}:{node.lineno}"
                    yield _compile(source.value, 0), place, _called({node.func.attr})


def _called(methods: set[str]) -> frozenset[str]:
    """Return the methods to measure: ``finditer`` unless all are anchored, as it is the slowest."""
    return frozenset(methods if methods <= _ANCHORED else {"finditer"})


def _owners(node: ast.expr) -> Iterator[ast.Name]:
    """Yield the names of the objects on which a method may be called."""
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, ast.Subscript):
        yield from _owners(node.value)
    elif isinstance(node, ast.IfExp):
        yield from _owners(node.body)
        yield from _owners(node.orelse)


class _Uses:
    """Which methods the package calls on its patterns.

    A pattern is known by a module's global name, on its own or in a table. A pattern that a
    function compiles has no such name: for it count all methods that its module calls on anything.
    """

    def __init__(self) -> None:
        self._methods: dict[Anything, set[str]] = {}  # "?": handed on, so any method is possible
        self._of_modules: dict[str, set[str]] = {}  # by the module's path
        for path in sorted(_ROOT.rglob("*.py")):
            name = ".".join((_ROOT.name, *path.relative_to(_ROOT).with_suffix("").parts))
            module = sys.modules.get(name.removesuffix(".__init__"))
            if module is not None:
                tree = ast.parse(path.read_text())
                self._read(tree, vars(module))
                self._of_modules[str(path.relative_to(_ROOT))] = _SEARCHES & {
                    node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
                }

    def of(self, pattern: Anything, place: str) -> frozenset[str]:
        """Return the methods to measure; if none is known, a search."""
        in_module = self._of_modules.get(place.partition(":")[0])
        return _called(self._methods.get(pattern) or in_module or {"?"})

    def _read(self, tree: ast.Module, names: dict[str, Any]) -> None:
        called: set[int] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                for owner in _owners(node.value):
                    called.add(id(owner))
                    self._note(names.get(owner.id), node.attr)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Name) or id(node) in called:
                continue
            if isinstance(node.ctx, ast.Load):  # it is handed on, and any method may be called
                self._note(names.get(node.id), "?")

    def _note(self, value: Any, method: str) -> None:
        if isinstance(value, dict):
            value = list(value.values())
        for one in value if isinstance(value, list | tuple) else (value,):
            if isinstance(one, re.Pattern) and method != "pattern":
                self._methods.setdefault(one, set()).add(method)


if __name__ == "__main__":
    main()
