"""``make fuzz``: each target for five minutes, or ``ARGS="--minutes 1 --only sse"``.

Targets are the property tests of MODULES. Each is tried with ever new examples until its time is
over, or until one fails: then Hypothesis prints the smallest it finds. The exit code is 1 where any
failed.
"""

from __future__ import annotations

import argparse
import inspect
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module

from hypothesis import is_hypothesis_test, settings

from benchmarks.fuzz.mutations import EXAMPLES

MODULES = (
    *("benchmarks.fuzz.test_sse", "benchmarks.fuzz.test_dialects", "benchmarks.fuzz.test_config"),
    *("benchmarks.fuzz.test_tool_calls", "tests.wire.test_sse", "tests.engine.test_attempt"),
    *("tests.tool_validation.test_check_fuzz", "tests.tool_validation.test_text_streams"),
    *("tests.tool_validation.test_schema_agreement", "tests.loop_detection.test_properties"),
    "tests.tool_validation.test_tool_validation_fuzz",
)
AT_ONCE = 100  # examples between two looks at the clock


def targets(module: str) -> dict[str, Callable[[], None]]:
    """The property tests that want nothing but their examples."""
    found = vars(import_module(module))
    return {
        name: each
        for name, each in found.items()
        if is_hypothesis_test(each) and not inspect.signature(each).parameters
    }


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
    # Hypothesis' settings are made when a module is imported.
    settings.register_profile("fuzz", max_examples=AT_ONCE, deadline=None, database=None)
    settings.load_profile("fuzz")
    if args.one:
        return fuzz(*args.one, seconds=args.minutes * 60)
    failed = 0
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
