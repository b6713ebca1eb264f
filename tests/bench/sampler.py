"""Runs a module under a sampling profiler: `python -m tests.bench.sampler app serve …`.

A timer of CPU time interrupts the main thread; where it stood is counted, stack by stack. At the
end the counts go to the file that SAMPLES_FILE names. Time in C is counted to the Python line that
called it. Only CPU time is sampled, so a server that waits adds nothing.
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


def write_samples(path: str) -> None:
    stacks: list[Any] = [
        {"count": count, "stack": [[code.co_filename, code.co_qualname] for code in stack]}
        for stack, count in counts.items()
    ]
    with open(path, "w") as out:
        json.dump(stacks, out)


def main() -> None:
    path = os.environ["SAMPLES_FILE"]
    sys.argv = sys.argv[1:]
    # Until the first request all is imports; whoever measures sends SIGUSR1 when it begins.
    signal.signal(signal.SIGPROF, sample)
    signal.signal(
        signal.SIGUSR1, lambda *_: signal.setitimer(signal.ITIMER_PROF, INTERVAL, INTERVAL)
    )
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        write_samples(path)


if __name__ == "__main__":
    main()
