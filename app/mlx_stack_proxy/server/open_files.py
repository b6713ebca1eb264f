"""How many files and connections the process may have open."""

from __future__ import annotations

import resource
from typing import Final

# What deploy/'s units give; where the system allows less to anybody, macOS' own OPEN_MAX.
WANTED: Final = (65_536, 10_240)


def raise_limit() -> int:
    """Raise the soft limit of open files as far as we may; what it is then.

    A client's connection is one, and the one to LiteLLM another: of the 256 that a shell on macOS
    gives, and the 1,024 on Linux, `upstream.max_connections` alone would be too much.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in WANTED:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or soft >= allowed:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        except (OSError, ValueError):  # macOS says "unlimited", and allows kern.maxfilesperproc
            continue
        break
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
