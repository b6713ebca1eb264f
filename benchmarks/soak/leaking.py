"""The proxy with a leak: ``python -m benchmarks.soak.leaking app serve …`` opens files."""

from __future__ import annotations

import os
import runpy
import sys
import threading
import time


def leak() -> None:
    while True:
        os.open(os.devnull, os.O_RDONLY)
        time.sleep(0.02)


if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    threading.Thread(target=leak, daemon=True).start()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
