"""The fast tier's model server is killed, or stopped, while twenty clients wait for it."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.faults import real_tier
from tests.faults.real_tier import Crowd, Ended, ask_once

from .running_stack import RunningStack, wait_until

DEGRADED = "mlx_stack_tier_degraded"
PAST = ("standard", "tier_degraded", "1")
BACK = ("fast", None, "1")
PROBES = 2  # that may fail in a row before a server that has come back is left out again


@pytest.fixture(scope="module")
def quick(stack: RunningStack) -> Iterator[RunningStack]:
    """The stack with limits of 5 s on silence."""
    with real_tier.short_limits(stack):
        yield stack


def check(everyone: list[Ended]) -> None:
    """Text that was out ends in an error; to all others nothing happened."""
    assert len(everyone) == real_tier.STREAMS
    for one in everyone:
        assert one.verdict == one.wanted, one


def told(reply: httpx.Response) -> tuple[str | None, ...]:
    assert reply.status_code == 200
    names = ("tier", "escalation-reason", "attempts")
    return tuple(reply.headers.get(f"x-mlx-stack-{name}") for name in names)


async def during(fault: int, stack: RunningStack) -> list[Ended]:
    """How a crowd ended; meanwhile, new requests wait for the dead tier no longer.

    On a busy machine one or two of them may be probes, or a server that was killed is back already.
    """
    wanted = {PAST} if fault == signal.SIGSTOP else {PAST, BACK}

    def meanwhile() -> None:
        wait_until(lambda: stack.metric(DEGRADED, tier="fast") == 1, 30, "the breaker")
        replies = [told(ask_once(stack)) for _ in range(PROBES + 1)]
        assert not wanted.isdisjoint(replies), replies

    return await Crowd(stack).during(fault, meanwhile)


async def test_kill_9(quick: RunningStack) -> None:
    everyone = await during(signal.SIGKILL, quick)
    quick.wait_said(r"^  fast +died +killed by SIGKILL; restarting in 1 s; log: ", 1)
    real_tier.until_used_again(quick)
    assert quick.metric(DEGRADED, tier="fast") == 0
    check(everyone)


async def test_sigstop(quick: RunningStack) -> None:
    try:
        everyone = await during(signal.SIGSTOP, quick)
    finally:
        real_tier.signal_fast(quick, signal.SIGCONT)
    real_tier.until_used_again(quick)
    assert quick.metric(DEGRADED, tier="fast") == 0
    check(everyone)
