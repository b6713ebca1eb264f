"""Runs a module under a sampling profiler: `python -m benchmarks.cost.sampler app serve …`.

A timer of CPU time interrupts the main thread; where it stood is counted, stack by stack. SIGUSR1
begins it (before that all is imports); SIGUSR2 ends it and writes the counts to the file that
SAMPLES_FILE names (the end of the process would be too late: uvicorn dies by its signal). Time in
C is counted to the Python line that called it. Only CPU time is sampled: waiting adds nothing.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys
from collections import Counter
from types import CodeType, FrameType
from typing import Any

INTERVAL = 0.001  # what the kernel makes of it depends on its own tick
counts: Counter[tuple[CodeType, ...]] = Counter()


def sample(_signum: int, frame: FrameType | None) -> None:
    stack = []
    while frame is not None:
        stack.append(frame.f_code)
        frame = frame.f_back
    counts[tuple(stack)] += 1


def begin(*_: Any) -> None:
    signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)


def end(*_: Any) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    stacks: list[Any] = [
        {"count": count, "stack": [[code.co_filename, code.co_qualname] for code in stack]}
        for stack, count in counts.items()
    ]
    path = os.environ["SAMPLES_FILE"]
    with open(path + ".part", "w") as out:
        json.dump(stacks, out)
    os.replace(path + ".part", path)


def main() -> None:
    sys.argv = sys.argv[1:]
    signal.signal(signal.SIGPROF, sample)
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
