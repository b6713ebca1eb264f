"""A failing tier's server is asked how it is; if it was gone and answers, the tier is tried."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from mlx_stack_proxy.engine.outcome import Outcome
from mlx_stack_proxy.engine.verdicts import Failure
from mlx_stack_proxy.escalation import recovery
from mlx_stack_proxy.escalation.recovery import Recovery
from mlx_stack_proxy.escalation.tier_states import TierStates
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Sizes
from mlx_stack_proxy.telemetry.journal import Journal
from tests.engine.exchanges import client_request
from tests.escalation.calls import OnTier
from tests.support.clock import Clock
from tests.support.waiting import settled, until

COOLDOWN = 30
RULES = {"escalation": {"degrade": {"failures": 1, "cooldown_seconds": COOLDOWN}}}
SETTINGS = from_mapping({"tiers": {"fast": {"model": "m"}}, "reliability": RULES})
KNOWN = {"fast": replace(SETTINGS.tiers["fast"], health_url="http://localhost/health")}
ASKED = replace(SETTINGS, tiers=KNOWN)


@pytest.fixture(autouse=True)
def asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "INTERVAL_SECONDS", 0)


class Watch:
    """Watches a tier whose server answers so; behind these answers it gives none."""

    def __init__(self, *answers: str, settings: Any = ASKED) -> None:
        self.left = list(answers)
        self.clock = Clock()
        store = SqliteStore(None, Sizes(1, 1.0, 1.0, 1))
        self.states = TierStates(settings, store, Journal(store, self.clock), self.clock)
        self.recovery = Recovery(settings, self, self.states)  # type: ignore[arg-type]

    async def health(self, url: str, seconds: float) -> str:
        assert url == "http://localhost/health"
        if not self.left:
            await asyncio.Event().wait()
        return self.left.pop(0)

    def ends(self, verdict: Failure | None) -> None:
        """A call on the tier ends so."""
        call = OnTier("fast")
        self.states.begin(call)
        self.states.note(call, Outcome(call.tier, verdict), client_request())
        self.states.end(call)

    def fails(self) -> None:
        self.ends(Failure("server_error", "status 500", status=500))
        self.recovery.watch("fast")

    @property
    def passed_over(self) -> bool:
        return "fast" in self.states.view().passed_over


@pytest.mark.parametrize(
    ("answers", "back"),
    [
        (["gone", "well"], True),
        (["silent", "gone", "gone", "well"], True),
        # As llama-server does: it listens at once, and answers 503 for as long as it loads.
        (["gone", "unwell", "unwell"], False),
        (["gone", "unwell", "well"], True),
        # Not gone: none the better for its answers.
        (["well", "well", "well"], False),
        (["silent", "well", "unwell", "well"], False),
    ],
)
async def test_a_server_is_back_that_was_gone_and_is_well(answers: list[str], back: bool) -> None:
    watch = Watch(*answers)
    watch.fails()
    assert watch.passed_over
    await until(lambda: not watch.left)
    await settled()
    assert watch.passed_over is not back
    assert watch.states["fast"].degraded, "a call on it decides"
    assert watch.recovery.watched == (set() if back else {"fast"})
    await watch.recovery.close()


@pytest.mark.parametrize("recovers", [True, False], ids=["well again", "cooled down"])
async def test_it_is_asked_no_more_than_needed(recovers: bool) -> None:
    watch = Watch(*["well"] * 1_000_000)
    watch.fails()
    await until(lambda: len(watch.left) < 1_000_000)
    assert watch.recovery.watched == {"fast"}
    if recovers:
        watch.ends(None)
    else:
        watch.clock.now += COOLDOWN
    await until(lambda: not watch.recovery.watched)


async def test_a_tier_is_watched_once_the_settings_know_its_server() -> None:
    watch = Watch("gone", "well", settings=SETTINGS)
    watch.fails()
    assert not watch.recovery.watched, "nothing to ask"
    watch.recovery.adapt(ASKED)
    assert watch.recovery.watched == {"fast"}
    await until(lambda: not watch.passed_over)
