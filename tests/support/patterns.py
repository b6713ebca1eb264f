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
_SOURCES = {str(path.relative_to(_ROOT)): path.read_text() for path in sorted(_ROOT.rglob("*.py"))}
_NAMED = re.compile(r" *(\w+)(?::[^=]*)? = ")
_ANCHORED = frozenset({"match", "fullmatch"})
_SEARCHES = _ANCHORED | {"search", "finditer", "findall", "sub", "subn"}
_compile: Callable[[Any, Any], Any] = re._compile  # type: ignore[attr-defined]


def main() -> None:
    compiled = import_all()
    print(f"{len(compiled)} patterns", file=sys.stderr)
    for pattern, place, methods in [
        *((pattern, place, used(place)) for pattern, place in compiled.items()),
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
    for path, text in _SOURCES.items():
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = node.func.value
            inline = (
                isinstance(owner, ast.Name) and owner.id == "re" and node.func.attr in _SEARCHES
            )
            if inline and node.args:
                source = node.args[0]
                if isinstance(source, ast.Constant) and isinstance(source.value, str | bytes):
                    place = f"{path}:{node.lineno}"
                    yield _compile(source.value, 0), place, _called({node.func.attr})


def _called(methods: set[str]) -> frozenset[str]:
    """Return the methods to measure: ``finditer`` unless all are anchored, as it is the slowest."""
    return frozenset(methods if methods <= _ANCHORED else {"finditer"})


def used(place: str) -> frozenset[str]:
    """Return the methods to measure of the pattern that a module compiles at this file and line.

    They are those called on its name, or on its table's; what is handed on may be searched, unless
    it is a function's own and what takes it by that name only calls other methods. Where it has no
    name, all methods count that its module calls on anything.
    """
    path, line = place.rsplit(":", 1)
    above = _SOURCES[path].splitlines()[: int(line)]
    statement = [one for one in above if one[:1].strip(" )]}#")][-1]
    named = _NAMED.match(above[-1]) or _NAMED.match(statement)
    if named is None:
        return _called(_SEARCHES & set(re.findall(r"\.(\w+)", _SOURCES[path])))
    name = named[1]
    no_use = re.compile(rf"#.*$|^from \S+ import (?:\([^)]*\)|.*)$|^ *{name}\b(?::[^=]*)? =", re.M)
    use = re.compile(rf"(?<!\w){name}\b(?:\[[^\]]*\]| (?:if|else) [^()]*\)|\))?(?:\.(\w+))?")
    is_local = above[-1][0] == " "
    where = [_SOURCES[path]] if name.startswith("_") else _SOURCES.values()
    found = {method or "?" for text in where for method in use.findall(no_use.sub("", text))}
    if is_local and found & _SEARCHES:
        found &= _SEARCHES
    if found == {"pattern"}:  # a part of others, which are measured
        return frozenset()
    return _called(found - {"pattern"} or {"?"})


if __name__ == "__main__":
    main()
