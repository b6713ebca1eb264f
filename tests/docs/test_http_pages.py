"""docs/http.md and docs/errors.md against the code, both ways: each header, error and counter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from mlx_stack_proxy.engine.record import WAYS
from mlx_stack_proxy.telemetry import accounts, counters

ROOT = Path(__file__).resolve().parents[2]
HTTP = (ROOT / "docs" / "http.md").read_text("utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text("utf-8")
TREES = {
    path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8"))
    for path in sorted((ROOT / "app").rglob("*.py"))
}
HEADER = re.compile(r"x-mlx-stack-([a-z]+(?:-[a-z]+)*)", re.IGNORECASE)
# Where the request's headers are read; what is named elsewhere is written.
READERS = {
    "app/mlx_stack_proxy/server/control_headers.py",
    "app/mlx_stack_proxy/engine/session_id.py",
    "app/mlx_stack_proxy/escalation/tiers.py",
    "app/mlx_stack_proxy/telemetry/agent_name.py",
}
NOTES = {"notes", "reply_notes", "said"}  # headers by their names without the prefix
NOTE = re.compile(r"[A-Z][a-z]+(-[A-Z][a-z]+)*")
NAMES = {"INVALID_REQUEST": "invalid_request_error"}
# Statuses and types that are no literals: whose they are is FastAPI's, the verdict's.
COMPUTED = {
    ("app/mlx_stack_proxy/errors.py", "status"): set(),  # `invalid`, counted where it is called
    ("app/mlx_stack_proxy/server/edge.py", "error.status_code"): {404, 405},
    ("app/mlx_stack_proxy/server/edge.py", "status"): {400, 426},  # a WebSocket
    ("app/mlx_stack_proxy/driver/driver.py", "error.status"): {503},  # shutting_down()
    (
        "app/mlx_stack_proxy/engine/client_errors.py",
        "verdict.status",
    ): set(),  # a rejected, counted where it is made
    ("app/mlx_stack_proxy/engine/client_errors.py", "504 if timed_out else 502"): {502, 504},
    ("app/mlx_stack_proxy/engine/client_errors.py", "status"): {400},  # or upstream's own
}
TYPES = {
    ("app/mlx_stack_proxy/engine/client_errors.py", "verdict.reason"): {
        "memory_pressure",
        "tier_busy",
    },
    ("app/mlx_stack_proxy/engine/client_errors.py", "verdict.type"): set(),
    ("app/mlx_stack_proxy/driver/driver.py", "error.type"): {"upstream_unavailable"},
}


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n")[1].split("\n## ", maxsplit=1)[0]


def first_cells(text: str) -> set[str]:
    return set(re.findall(r"^\| `X-MLX-Stack-([A-Za-z-]+)` \|", text, re.MULTILINE))


def strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            value = node.value
            yield value.decode("latin-1") if isinstance(value, bytes) else value


def named_in(files: set[str]) -> set[str]:
    """Headers that are strings of their own, in lower case without the prefix."""
    found = {
        match[1].lower()
        for name in files
        for text in strings(TREES[name])
        if (match := HEADER.fullmatch(text))
    }
    return found


def noted() -> set[str]:
    """Headers that are put among an exchange's notes."""
    found = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            match node:
                case ast.Assign(
                    targets=[ast.Subscript(value=owner, slice=ast.Constant(value=key))]
                ):
                    if NOTE.fullmatch(str(key)) and ast.unparse(owner).split(".")[-1] in NOTES:
                        found.add(str(key).lower())
    return found


def always_said() -> set[str]:
    """The headers that every exchange has: the keys of the dictionary that all begin with."""
    for node in ast.walk(TREES["app/mlx_stack_proxy/driver/response_headers.py"]):
        if isinstance(node, ast.FunctionDef) and node.name == "values":
            made = [key for one in ast.walk(node) if isinstance(one, ast.Dict) for key in one.keys]
            return {str(key.value).lower() for key in made if isinstance(key, ast.Constant)}
    raise AssertionError("response_headers.values is gone")


def test_every_request_header_is_documented_and_read() -> None:
    said = {name.lower() for name in first_cells(section(HTTP, "Request headers"))}
    assert said == named_in(READERS)


def test_every_response_header_is_documented_and_written() -> None:
    said = {name.lower() for name in first_cells(section(HTTP, "Response headers"))}
    written = (
        named_in({one for one in TREES if "/operator/" not in one} - READERS)
        | noted()
        | always_said()
    )
    assert {"loop", "cloud", "budget-warning", "mode"} <= written
    assert said == written


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    """Each place where an error is made: the file, the function, the call."""
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="ProxyError" | "BodyRefused" as kind)):
                    yield name, kind, node
                case ast.Call(func=ast.Name(id="invalid")):
                    yield name, "invalid", node


def statuses(name: str, node: ast.expr) -> set[int]:
    if isinstance(node, ast.Constant):
        return {int(node.value)}
    return COMPUTED[name, ast.unparse(node)]


def types(name: str, node: ast.expr) -> set[str]:
    if isinstance(node, ast.Constant):
        return {str(node.value)}
    if isinstance(node, ast.Name):
        return {NAMES[node.id]}
    return TYPES[name, ast.unparse(node)]


def made() -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()
    for name, kind, call in calls():
        if kind == "invalid":
            given = [one.value for one in call.keywords if one.arg == "status"]
            numbers = statuses(name, given[0]) if given else {400}
            found |= {("invalid_request_error", number) for number in numbers}
        else:
            status, type_, *_ = call.args
            if ast.unparse(status) == "self.status":
                continue  # a copy of an error that was made elsewhere
            numbers = statuses(name, status)
            found |= {(one, number) for one in types(name, type_) for number in numbers}
    return found


def test_every_error_is_documented_and_made() -> None:
    rows = re.findall(r"^\| `([a-z_]+)` \| (\d+) \|", ERRORS, re.MULTILINE)
    said = {(name, int(status)) for name, status in rows}
    assert said == made()
    assert len(rows) == len(said)


def test_every_code_is_documented() -> None:
    codes = {
        str(one.value.value)
        for _, _, call in calls()
        for one in call.keywords
        if one.arg == "code" and isinstance(one.value, ast.Constant)
    }
    assert codes == set(re.findall(r"`code` is `(\w+)`", ERRORS))


def test_every_row_says_what_to_do() -> None:
    for row in re.findall(r"^\| `[a-z_]+` \| \d+ \|.*$", ERRORS, re.MULTILINE):
        *_, when, what, end = row.split("|")
        assert when.strip() and what.strip() and not end


def documented() -> set[str]:
    table = HTTP.split("| counter | what |")[1].split("\n\n")[0]
    cells = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    return {name.partition(":")[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def counted() -> set[str]:
    source = (ROOT / "app/mlx_stack_proxy/telemetry/counters.py").read_text("utf-8")
    names = set(re.findall(r'row\["(\w+)"\]', source))
    names |= {*WAYS, *sum(counters.PARTS.values(), ()), "doubted_calls"}
    names |= {name for row in counters.INCIDENTS.values() for name in row.hour.values()}
    names |= {*accounts._COUNTED.values(), "kills"}
    return names | {f"pressure_{level}_seconds" for level in ("warning", "critical")}


def test_each_counter_is_explained() -> None:
    assert documented() == counted()
