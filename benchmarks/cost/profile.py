"""Where the proxy's CPU goes, by part: `--profile`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.cost import bodies
from benchmarks.cost.bodies import LONG, SHORT, MakeBatch
from benchmarks.cost.measure import send
from benchmarks.measure import servers

PACKAGE = re.compile(r"site-packages/([^/]+?)(?:\.py)?(?:/|$)")
LOADS: list[tuple[str, MakeBatch, int, int]] = [
    ("requests, not streamed", bodies.plain(SHORT, 0), 16, 3000),
    ("streamed requests, 10 pieces", bodies.plain(SHORT, 1, True), 16, 2500),
    ("streamed chunks, 500 a reply", bodies.plain(LONG, 1, True), 8, 80),
    ("40 tools offered", bodies.offering(40), 16, 2000),
    ("400 messages, all but 2 seen", bodies.seen(400, bodies.MESSAGE_BYTES), 16, 600),
]


def part_of(filename: str) -> str:
    """`ours/engine/gate.py` for ours, the package for others."""
    if "/mlx_stack_proxy/" in filename:
        return "ours/" + filename.rsplit("/mlx_stack_proxy/", 1)[1]
    found = PACKAGE.search(filename)
    if found:
        return found[1]
    if filename.startswith("<"):
        return "(built in)"
    return "standard library: " + Path(filename).stem


def package_of(part: str) -> str:
    """`ours/engine` for all that is in there; the standard library is one."""
    if part.startswith("ours/"):
        return "/".join(part.split("/")[:2]).removesuffix(".py")
    return part.partition(":")[0]


def lines_of(title: str, samples: list[dict[str, Any]]) -> list[str]:
    own: Counter[str] = Counter()
    under: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    total = sum(sample["count"] for sample in samples)
    for sample in samples:
        stack = [(part_of(filename), name) for filename, name in sample["stack"]]
        own[stack[0][0]] += sample["count"]
        functions[f"{stack[0][0]}: {stack[0][1]}"] += sample["count"]
        for part in {part for part, _ in stack}:
            under[part] += sample["count"]
    packages: Counter[str] = Counter()
    for part, count in own.items():
        packages[package_of(part)] += count
    lines = [f"Profile: {title} ({total} samples of CPU time)", "   own  package"]
    for package, count in packages.most_common(12):
        lines.append(f"{count / total:6.1%}  {package}")
    lines.append("   own  with callees  part")
    for part, count in own.most_common(22):
        lines.append(f"{count / total:6.1%}  {under[part] / total:12.1%}  {part}")
    lines.append("   own  function")
    for name, count in functions.most_common(22):
        lines.append(f"{count / total:6.1%}  {name}")
    return [*lines, ""]


async def profile(upstream: int, folder: Path) -> str:
    """Each kind of load on a fresh proxy under the sampler."""
    lines: list[str] = []
    for number, (title, make, connections, requests) in enumerate(LOADS):
        file = folder / f"samples-{number}.json"
        os.environ["SAMPLES_FILE"] = str(file)
        server = servers.start_proxy(upstream, folder, wrapper=["benchmarks.cost.sampler"])
        try:
            await send(server, make(20).measured, 4)
            batch = make(requests)
            await send(server, batch.prepare, connections)
            server.process.send_signal(signal.SIGUSR1)
            await send(server, batch.measured, connections)
            server.process.send_signal(signal.SIGUSR2)
            async with asyncio.timeout(20):
                while not file.exists():  # noqa: ASYNC110 - another process writes it
                    await asyncio.sleep(0.05)
        finally:
            server.stop()
        lines += lines_of(title, json.loads(file.read_text()))
    return "\n".join(lines)
