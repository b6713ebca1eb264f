"""The turns of recorded agents, as the benchmark sends them."""

from __future__ import annotations

import json

import pytest

from benchmarks.cost import recorded
from benchmarks.cost.load import CHAT_PATH
from benchmarks.cost.recorded import CLAUDE, CODEX, Agent

pytestmark = pytest.mark.skipif(not recorded.are_there(), reason="the recordings are not here")
both = pytest.mark.parametrize("agent", [CLAUDE, CODEX], ids=lambda agent: agent.title)
TRUE_SIZE = {"Claude Code": 48_794, "Codex": 39_559}


@both
def test_a_first_turn_is_as_long_as_it_was_and_is_a_sessions_own(agent: Agent) -> None:
    batch = recorded.first(agent)(3)
    assert batch.path == agent.path
    assert len(set(batch.measured)) == 3
    for raw in batch.measured:
        assert len(raw) == pytest.approx(TRUE_SIZE[agent.title], rel=0.03)
        assert recorded.SAID.encode() in raw


@both
def test_as_a_chat_completion_it_is_the_same_turn(agent: Agent) -> None:
    (raw,) = recorded.as_chat(agent)(1).measured
    assert recorded.as_chat(agent)(1).path == CHAT_PATH
    body = json.loads(raw)
    assert (body["model"], body["stream"]) == ("fast", True)
    assert recorded.SAID in json.dumps(body["messages"])


@both
def test_the_second_turn_goes_on_from_the_first(agent: Agent) -> None:
    batch = recorded.second(agent)(2)
    assert len(batch.prepare) == 2
    for before, after in zip(batch.prepare, batch.measured, strict=True):
        first, then = (
            agent.dialect.to_chat(json.loads(raw), {}).body["messages"] for raw in (before, after)
        )
        assert then[: len(first)] == first
        assert len(then) > len(first)
