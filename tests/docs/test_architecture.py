"""What docs/architecture.md, CONTRIBUTING.md and the pictures name is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scripts.module_graph import APP, FOLDERS, edges, floor_of, part_of
from scripts.pictures import FOLDER

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PICTURE = (FOLDER / "request.svg").read_text("utf-8")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?:app|tests|deploy|docs|scripts)/[\w./-]*")
NAME = re.compile(r"(?:[A-Z]\w*\.)?[a-z]\w*\(\)|(?:[A-Z][a-z]+)+(?:\.\w+)?|[A-Z]+_?[A-Z]+")
ELSEWHERE = {"FORMAT"}  # one in each file of the formats


def defined() -> set[str]:
    """Classes, functions, methods with and without their class, and constants of the package."""
    found: set[str] = set()
    for path in (ROOT / "app").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(node.name)
            if isinstance(node, ast.ClassDef):
                inside = [one for one in node.body if isinstance(one, ast.FunctionDef)]
                inside += [one for one in node.body if isinstance(one, ast.AsyncFunctionDef)]
                found |= {f"{node.name}.{one.name}" for one in inside}
        for node in tree.body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    found.add(name)
    return found


DEFINED = defined()
EDGES = list(edges())


@pytest.mark.parametrize(("text", "at_least"), [(PAGE, 60), (CONTRIBUTING, 15)])
def test_every_path_is_there(text: str, at_least: int) -> None:
    named = [word for word in CODE.findall(text) if PATH.fullmatch(word)]
    assert len(named) >= at_least
    assert [word for word in named if not (ROOT / word).exists()] == []


def test_every_name_is_defined() -> None:
    words = CODE.findall(PAGE + CONTRIBUTING)
    named = {word.removesuffix("()") for word in words if NAME.fullmatch(word)}
    assert {"next_step", "Pipeline", "Attempt.settle", "AT_START"} <= named
    assert named - DEFINED - ELSEWHERE == set()


def test_a_name_stands_in_the_file_beside_it() -> None:
    """In the table of decisions: the file of a row defines what the row names first."""
    rows = re.findall(r"^\| [^|]+ \| `(app/[\w/.]+\.py)` \| `(\w+)(?:\.\w+)?(?:\(\))?`", PAGE, re.M)
    assert len(rows) > 8
    for path, name in rows:
        text = (ROOT / path).read_text("utf-8")
        assert re.search(rf"^(?:def|class|async def) {name}\b|^{name}\b", text, re.M), (path, name)


def test_the_picture_names_modules() -> None:
    files = set(re.findall(r"\b(\w+\.py)\b", PICTURE))
    assert len(files) > 15
    there = {path.name for path in (ROOT / "app").rglob("*.py")}
    assert files - there == set()


def test_no_module_imports_from_a_floor_above() -> None:
    upwards = [edge for edge in EDGES if floor_of(edge[0]) < floor_of(edge[1])]
    assert upwards == []


def test_folders_of_one_floor_know_no_other() -> None:
    across = {
        (part_of(module), part_of(other))
        for module, other in EDGES
        if floor_of(module) == floor_of(other) and part_of(module) != part_of(other)
    }
    assert across == set()


def test_each_part_of_the_package_stands_in_a_layer() -> None:
    assert {path.name for path in APP.iterdir() if any(path.glob("*.py"))} == FOLDERS


@pytest.mark.specification(180)
def test_httpx_serves_the_operators_commands_and_aiohttp_calls_litellm() -> None:
    found: dict[str, set[str]] = {"httpx": set(), "aiohttp": set()}
    for path in APP.rglob("*.py"):
        for name in re.findall(r"^(?:import|from) (\w+)", path.read_text("utf-8"), re.MULTILINE):
            if name in found:
                found[name].add(path.relative_to(APP).parts[0])
    assert found == {"httpx": {"operator"}, "aiohttp": {"engine"}}
    assert "**aiohttp** calls LiteLLM" in PAGE and "**httpx** serves" in PAGE
