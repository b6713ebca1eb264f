"""`make faults`: all faults at all places, as the markdown of benchmarks/faults.md.

python -m tests.faults > table.md
python -m tests.faults --only upstream
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import machine
from tests.e2e.running_stack import RunningStack
from tests.faults import real_tier
from tests.faults.catalogue import FAULTS, REFUSED, RETRIES
from tests.faults.litellm import LiteLLM
from tests.faults.places import (
    Behind,
    at_no_upstream,
    at_scripted_upstream,
    cost_of_a_dead_first_tier,
)
from tests.faults.real_tier import Crowd, Ended
from tests.faults.spoken import CHAT, SPOKEN
from tests.faults.table import Table
from tests.support.ports import free_port

PLACES = ("upstream", "litellm", "behind", "real")
COOLDOWNS_ON = {
    "router_settings": {"num_retries": 0, "allowed_fails": 0, "cooldown_time": 60},
}


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def upstream(table: Table, silence: float) -> str:
    rows = []
    for fault in FAULTS:
        say(f"  {fault.name}")
        rows.append(await at_scripted_upstream(fault, silence, RETRIES))
    live, dead = await cost_of_a_dead_first_tier()
    return (
        table.section("A scripted upstream in LiteLLM's place", rows)
        + f"\nA request takes {live * 1000:.1f} ms (median) while the first tier lives, and "
        f"{dead * 1000:.1f} ms once it is dead and degraded.\n"
    )


def one_litellm(folder: Path, changes: dict[str, object] | None = None) -> tuple[LiteLLM, Behind]:
    first = free_port(3)
    ports = {"fast": first + 1, "standard": first + 2}
    litellm = LiteLLM(folder, first, ports, changes)
    litellm.wait_ready()
    return litellm, Behind(litellm, ports)


async def litellm_itself(table: Table, silence: float, folder: Path) -> str:
    rows = [await at_no_upstream(silence, RETRIES)]
    litellm, behind = one_litellm(folder / "a")
    try:
        rows.append(await behind.while_stopped(silence, RETRIES))
        rows.append(await behind.with_a_wrong_key(silence, RETRIES))
        rows.append(await behind.while_killed(silence, RETRIES))
    finally:
        litellm.stop()
    litellm, behind = one_litellm(folder / "b", COOLDOWNS_ON)
    try:
        rows.append(await behind.in_cooldown(silence, RETRIES))
    finally:
        litellm.stop()
    return table.section("LiteLLM itself", rows)


async def behind_litellm(table: Table, silence: float, folder: Path) -> str:
    litellm, behind = one_litellm(folder)
    rows = []
    try:
        for fault in (REFUSED, *FAULTS):
            say(f"  {fault.name}")
            rows.append(await behind.rows(fault, silence, RETRIES))
    finally:
        litellm.stop()
    return table.section("A scripted model server behind the real LiteLLM", rows)


async def real(table: Table, folder: Path) -> str:
    stack = RunningStack(folder)
    lines = [
        "### The fast tier's `mlx_lm.server`, under `make run`, 20 clients of the OpenAI SDK\n",
        "| fault | clients | of them | got | from | seconds | |",
        "|---|---|---|---|---|---|---|",
    ]
    try:
        stack.wait_ready()
        with real_tier.short_limits(stack):
            for name, number in (("`kill -9`", signal.SIGKILL), ("SIGSTOP", signal.SIGSTOP)):
                say(f"  {name}")
                try:
                    everyone = await Crowd(stack).during(number, lambda: None)
                finally:
                    if number == signal.SIGSTOP:  # one that was killed may not be back yet
                        real_tier.signal_fast(stack, signal.SIGCONT)
                lines += crowd_lines(table, name, everyone)
                seconds = real_tier.until_used_again(stack)
                used = f"| {name} | a new one, afterwards | 1 | a good reply | fast |"
                lines.append(f"{used} used again after {seconds:.0f} s | right |")
    finally:
        stack.stop()
    return "\n".join(lines) + "\n"


def crowd_lines(table: Table, name: str, everyone: list[Ended]) -> list[str]:
    groups: dict[tuple[str, str, str], list[Ended]] = {}
    for one in everyone:
        what = "live streams, text was out" if one.wanted == "error" else "nothing had come yet"
        groups.setdefault((what, one.verdict, one.tier), []).append(one)
        right = one.verdict == one.wanted
        table.count(SPOKEN[CHAT].path, right, not right)
    lines = []
    for (what, verdict, tier), found in groups.items():
        got = {"good": "a good reply", "error": "an error in the stream"}.get(verdict, verdict)
        seconds = f"{min(e.seconds for e in found):.0f} – {max(e.seconds for e in found):.0f}"
        mark = "right" if verdict == found[0].wanted else "**wrong**"
        lines.append(f"| {name} | {what} | {len(found)} | {got} | {tier} | {seconds} | {mark} |")
    return lines


@contextmanager
def timed(place: str) -> Iterator[None]:
    say(place)
    begun = time.monotonic()
    yield
    say(f"{place}: {time.monotonic() - begun:.0f} s")


async def main(only: list[str], silence: float) -> int:
    os.environ.pop("LITELLM_MASTER_KEY", None)
    table = Table()
    parts = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for place in only:
            with timed(place):
                if place == "upstream":
                    parts.append(await upstream(table, silence))
                elif place == "litellm":
                    parts.append(await litellm_itself(table, silence, folder / place))
                elif place == "behind":
                    parts.append(await behind_litellm(table, silence, folder / place))
                else:
                    parts.append(await real(table, folder / place))
    today = datetime.now(UTC).date()
    of_each = ", ".join(f"{count} of `{path}`" for path, count in table.by_path.items())
    print(
        f"`make faults`, {today}, commit `{machine.commit()}`: {table.right} right ({of_each}), "
        f"{table.wrong} wrong.\n"
    )
    print("\n".join(parts))
    return 1 if table.wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=PLACES, help="this place; repeatable")
    parser.add_argument("--silence", type=float, default=5.0, help="limits on silence (5 s)")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.only or list(PLACES), given.silence)))
