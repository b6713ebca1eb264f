"""Raises the process's limit of open files, which counts connections, too."""

from __future__ import annotations

import resource
from typing import Final

# Limits to try: that of deploy/'s units; then macOS' OPEN_MAX, for a system that allows no more.
WANTED: Final = (65_536, 10_240)


def raise_limit() -> int:
    """Raise the soft limit as far as the process may; return the resulting limit.

    A client's connection takes one file, the connection to LiteLLM another. A shell's limit (256 on
    macOS, 1,024 on Linux) is too low for some hundred streams.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for target in WANTED:
        allowed = target if hard == resource.RLIM_INFINITY else min(target, hard)
        if soft == resource.RLIM_INFINITY or soft >= allowed:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        except (OSError, ValueError):  # "unlimited" on macOS: kern.maxfilesperproc bounds it
            continue
        break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
