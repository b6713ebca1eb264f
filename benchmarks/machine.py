"""Where and when something was measured, and with which code."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("app", "benchmarks")  # whose changes a commit alone doesn't tell


def command(module: str, arguments: Sequence[str]) -> str:
    """As it was typed, for a document: what lies elsewhere on this machine is only a FILE."""
    return " ".join(
        [f"python -m {module}", *("FILE" if Path(one).is_absolute() else one for one in arguments)]
    )


def options(
    module: str, about: str | None, *, write: bool = False, results: str = ""
) -> argparse.ArgumentParser:
    """The options of a command. ``about``: its docstring. ``write``: it may write into pages.

    ``results``: the folder in ``build`` where it keeps each result, and goes on from.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if write:
        parser.add_argument("--write", type=Path, nargs="*", default=[], help="pages with markers")
    if results:
        parser.add_argument("--report", action="store_true", help="only print what is there")
        parser.add_argument("--folder", type=Path, default=ROOT / "build" / results)
    return parser


def about() -> dict[str, object]:
    """The machine, its system, the date, the commit and the load."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {
        "machine": f"{os.cpu_count()} cores, {model}",
        "os, python": f"{platform.system()} {platform.release().split('-')[0]},"
        f" {platform.python_implementation()} {platform.python_version()}",
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "load before": f"{os.getloadavg()[0]:.1f}",
    }


def heading(about: Mapping[str, object]) -> str:
    """What was measured, where and when: a line of each, as Markdown shows them as they are."""
    return "\n".join(f"    {key:<10}  {value}" for key, value in about.items())


def commit() -> str:
    """Of this checkout; says so where the proxy, or what measures it, was changed since."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        changed = subprocess.run(
            [*asked[:3], "status", "--porcelain", *MEASURED],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{found}, with changes" if changed else found
