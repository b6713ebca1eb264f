"""Installs into build/bench what ours is measured and compared with (`make bench-install`).

None of them touches our own environment. What can't be installed is told in a line, and left out.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.cost.contestants import CRUXIAL, FOREIGN, FORGE, GATEWAY, PORTKEY, TOOLRAILS

# With newer servers of its framework this release answers 500 to every stream (its issue 1389).
PORTKEY_PACKAGE = {
    "private": True,
    "dependencies": {"@portkey-ai/gateway": "1.15.2"},
    "overrides": {"@hono/node-server": "1.13.7"},
}
FORGE_PACKAGE = "forge-guardrails==0.10.0"
FORGE_PYTHON = (3, 12)
PYTHONS = ("python3.14", "python3.13", "python3.12", "python3")


class CannotInstall(Exception):
    pass


def portkey() -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise CannotInstall("there is no npm")
    folder = FOREIGN / "portkey"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps(PORTKEY_PACKAGE))
    options = ["--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts"]
    run([npm, "install", *options])
    if not (folder / GATEWAY).exists():
        raise CannotInstall(f"{GATEWAY} is missing")


def forge() -> None:
    """It asks for Python 3.12, for one statement: where there is none, that is spelt as before."""
    folder = FOREIGN / "forge"
    new = next((python for python in PYTHONS if version_of(python) >= FORGE_PYTHON), None)
    run([new or sys.executable, "-m", "venv", "--clear", str(folder)])
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    run([*pip, "install", "--quiet", *([] if new else ["--ignore-requires-python"]), FORGE_PACKAGE])
    if not new:
        print(f"{FORGE}: there is no Python 3.12; its one type alias is respelt for this one")
        for module in folder.glob("lib/*/site-packages/forge/core/workflow.py"):
            module.write_text(older(module.read_text()))
    run([str(folder / "bin" / "python"), "-c", "import forge.proxy.server"])


def package(folder: str, *packages: str) -> Callable[[], None]:
    """Return what installs these from PyPI into an environment of their own."""

    def install() -> None:
        run([sys.executable, "-m", "venv", "--clear", str(FOREIGN / folder)])
        pip = [str(FOREIGN / folder / "bin" / "python"), "-m", "pip", "--no-input"]
        run([*pip, "--disable-pip-version-check", "install", "--quiet", *packages])

    return install


def older(source: str) -> str:
    """A type alias statement (`type X = …`) as an assignment, which is what it comes to."""
    lines = source.splitlines(keepends=True)
    return "".join(line.removeprefix("type ") if " = " in line else line for line in lines)


def version_of(python: str) -> tuple[int, ...]:
    """(0,) for one that isn't there or doesn't run."""
    asked = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        found = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    return tuple(int(part) for part in found.stdout.split())


def run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        # The last lines: npm's very last only says where its log is.
        said = " ".join((done.stderr or done.stdout).split("\n")[-4:]).strip() or "no reason given"
        raise CannotInstall(f"{Path(argv[0]).name} ended with {done.returncode}: {said[:500]}")


def main() -> int:
    installers: dict[str, Callable[[], None]] = {
        PORTKEY: portkey,
        FORGE: forge,
        TOOLRAILS: package(TOOLRAILS, "toolrails==0.1.1"),
        CRUXIAL: package(CRUXIAL, "cruxial[openai]==0.5.3"),
    }
    for name, install in installers.items():
        print(f"{name} …", flush=True)
        try:
            install()
        except (CannotInstall, OSError) as error:
            print(f"{name} is left out: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
