"""Installs Portkey's gateway into build/bench, for comparison: `make bench-install`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from .contestants import FOREIGN, GATEWAY, PORTKEY

# With newer servers of its framework this release answers 500 to every stream (its issue 1389).
PACKAGE = {
    "private": True,
    "dependencies": {"@portkey-ai/gateway": "1.15.2"},
    "overrides": {"@hono/node-server": "1.13.7"},
}


def main() -> int:
    npm = shutil.which("npm")
    if npm is None:
        print(f"{PORTKEY} is left out: there is no npm")
        return 0
    folder = FOREIGN / "portkey"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps(PACKAGE))
    options = ["--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run([npm, "install", *options], check=False)
    if done.returncode or not (folder / GATEWAY).exists():
        print(f"{PORTKEY} is left out: npm ended with {done.returncode}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
