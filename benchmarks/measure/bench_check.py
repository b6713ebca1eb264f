"""What checking a tool call costs: ``python -m benchmarks.measure.bench_check``.

Prints microseconds a call for a known tool set, and milliseconds for a tool set that has not been
seen: the best of several rounds, as other programs only ever add to it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from mlx_stack_proxy.tool_validation import schemas
from mlx_stack_proxy.tool_validation.check import check_call
from mlx_stack_proxy.tool_validation.tools import tool_set

ROUNDS = 15


def a_tool(number: int) -> dict[str, Any]:
    """A tool as coding agents have them."""
    return {
        "type": "function",
        "function": {
            "name": f"edit_file_{number}",
            "description": f"Replaces text in a file, variant {number}.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": f"The file's path ({number})."},
                    "old_string": {"type": "string"},
                    "new_string": {"type": "string"},
                    "mode": {"type": "string", "enum": ["first", "all", "regex"]},
                    "count": {"type": "integer", "minimum": 0, "maximum": 1000},
                    "options": {
                        "type": "object",
                        "properties": {
                            "dry_run": {"type": "boolean"},
                            "tags": {"type": "array", "items": {"type": "string"}},
                        },
                    },
                },
                "required": ["path", "old_string", "new_string"],
                "additionalProperties": False,
            },
        },
    }


ARGUMENTS = {
    "path": "src/app/mlx_stack_proxy/main.py",
    "old_string": "def main() -> None:\n    run()\n",
    "new_string": "def main() -> int:\n    return run()\n",
    "mode": "first",
    "count": 1,
    "options": {"dry_run": False, "tags": ["a", "b"]},
}


def per_call(function: Callable[[], object], calls: int) -> float:
    """Microseconds of one call."""
    function()
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        rounds.append((time.perf_counter() - start) / calls * 1e6)
    return min(rounds)


def main() -> int:
    offered = [a_tool(number) for number in range(40)]
    tools = tool_set(offered)
    good = json.dumps(ARGUMENTS)
    long = json.dumps({**ARGUMENTS, "new_string": "x = 1\n" * 3_000})
    cases = {
        "a good call": good,
        "a good call of 18 KB": long,
        "trailing comma": good[:-1] + ",}",
        "python literals": repr(ARGUMENTS),
        "wrong type": json.dumps({**ARGUMENTS, "count": "five"}),
        "number as string": json.dumps({**ARGUMENTS, "count": "5"}),
    }
    for name, text in cases.items():
        cost = per_call(lambda text=text: check_call("edit_file_7", text, tools), 300)  # type: ignore[misc]
        print(f"{name:32} {cost:8.1f} µs")
    cost = per_call(lambda: check_call("edit_fil", good, tools), 30)
    print(f"{'unknown tool of 40':32} {cost:8.1f} µs")
    print(
        f"{'finding a known set of 40 tools':32} {per_call(lambda: tool_set(offered), 300):8.1f} µs"
    )
    print(f"{'compiling 40 new tools':32} {_compiling() / 1000:8.2f} ms")
    command = (
        "import time; s = time.perf_counter(); import mlx_stack_proxy.tool_validation.check; "
        "print(f'{(time.perf_counter() - s) * 1000:.0f}')"
    )
    took = subprocess.run(
        [sys.executable, "-c", command], capture_output=True, text=True, check=True
    )
    print(f"{'import':32} {took.stdout.strip():>8} ms")
    return 0


def _compiling() -> float:
    """Microseconds to compile a set of 40 tools, none of which is cached."""
    rounds = []
    for number in range(ROUNDS):
        fresh = [a_tool(1000 * (number + 1) + at) for at in range(40)]
        start = time.perf_counter()
        made = tool_set(fresh)
        for name in made.names:
            made.compiled(name)
        rounds.append((time.perf_counter() - start) * 1e6)
    schemas.clear_caches()
    return min(rounds)


if __name__ == "__main__":
    sys.exit(main())
