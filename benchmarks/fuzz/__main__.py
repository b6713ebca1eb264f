"""``make fuzz``: each target for five minutes, or ``ARGS="--minutes 1 --only sse"``.

A target is tried with ever new examples until its time is over, or until one fails: then Hypothesis
prints the smallest it finds. The exit code is 1 where any failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

from benchmarks.fuzz.mutations import EXAMPLES

MODULES = ("sse", "dialects", "tool_calls", "config")
AT_ONCE = 100  # examples between two looks at the clock


def targets(module: str) -> dict[str, Callable[[], None]]:
    found = vars(import_module(f"benchmarks.fuzz.test_{module}"))
    return {name: each for name, each in found.items() if name.startswith("test_")}


def fuzz(module: str, name: str, seconds: float) -> int:
    """In a process of its own; its exit code."""
    target = targets(module)[name]
    end = time.monotonic() + seconds
    rounds = 0
    try:
        while time.monotonic() < end:
            target()
            rounds += 1
    except Exception:
        traceback.print_exc()
        print(f"{module}: {name}: FAILED after some {rounds * AT_ONCE:,} examples", flush=True)
        return 1
    print(f"{module}: {name}: {rounds * AT_ONCE:,} examples, nothing found", flush=True)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5, help="for each target")
    parser.add_argument("--only", default="", help="targets whose name holds this")
    parser.add_argument("--one", nargs=2, metavar=("MODULE", "TARGET"), help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.one:
        return fuzz(*args.one, seconds=args.minutes * 60)
    failed = 0
    # Hypothesis' settings are made when a module is imported.
    environment = {**os.environ, EXAMPLES: str(AT_ONCE)}
    for module in MODULES:
        for name in targets(module):
            if args.only in f"{module}: {name}":
                command = [sys.executable, "-m", "benchmarks.fuzz", "--one", module, name]
                command += ["--minutes", str(args.minutes)]
                failed += subprocess.run(command, env=environment, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
