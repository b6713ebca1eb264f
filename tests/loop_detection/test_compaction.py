"""Agents that compact their transcript: what they did before still counts (Codex: 616 rounds)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mlx_stack_proxy.loop_detection.stage import LoopDetection
from tests.loop_detection.asking import NAMED, A, asked, judged, sent
from tests.loop_detection.histories import TASK, Json, answers, calls, says, settings, user

SYSTEM: Json = {"role": "system", "content": "You are a coding agent."}
PROMPT = user("Summarise the work so far.")


class Agent:
    """One session of an agent: in which requests it was told, and which replies were broken."""

    def __init__(self) -> None:
        self.stage = LoopDetection(settings(second_opinion=False))
        self.told: list[int] = []
        self.broken: list[int] = []
        self._asked = 0

    def ask(self, messages: list[Json], reply: Json) -> None:
        self._asked += 1
        if sent(self.stage, asked(messages, NAMED)) != messages:
            self.told.append(self._asked)
        if judged(self.stage, messages, reply, asked(messages, NAMED)) is not None:
            self.broken.append(self._asked)


def made(moves: bool) -> Iterator[tuple[Json, Json]]:
    """Ten calls and their results, the same ones or each another."""
    for number in range(10):
        call = calls(("search", {"query": f"page {number}"} if moves else A[1]))
        yield call, answers(call, f"text {number}" if moves else A[2])[0]


@pytest.mark.parametrize(
    ("moves", "told", "broken"), [(False, [4], list(range(4, 11))), (True, [], [])]
)
def test_a_transcript_that_is_compacted_to_its_last_call(
    moves: bool, told: list[int], broken: list[int]
) -> None:
    agent = Agent()
    messages = [SYSTEM, TASK]
    for number, (call, result) in enumerate(made(moves)):
        agent.ask(messages, call)
        messages = [SYSTEM, user(f"Summary of {number} steps: it goes on."), call, result]
    assert agent.told == told
    assert agent.broken == broken


@pytest.mark.parametrize(
    ("moves", "told", "broken"), [(False, [7], [7, 9, 11, 13, 15, 17, 19]), (True, [], [])]
)
def test_a_transcript_that_is_compacted_to_a_summary(
    moves: bool, told: list[int], broken: list[int]
) -> None:
    """As Codex does: it asks for a summary behind each result, and begins with that alone."""
    agent = Agent()
    messages = [SYSTEM, TASK]
    for number, (call, result) in enumerate(made(moves)):
        summary = f"I have searched {number} times.\n\nNext: search once more."
        agent.ask(messages, call)
        agent.ask([*messages, call, result, PROMPT], says(summary))
        messages = [SYSTEM, TASK, user(f"Another model began this work:\n{summary}")]
    assert agent.told == told
    assert agent.broken == broken


def test_a_transcript_of_which_only_the_end_is_sent() -> None:
    agent = Agent()
    messages: list[Json] = []
    for call, result in made(moves=False):
        agent.ask([SYSTEM, TASK, *messages[-4:]], call)
        messages += [call, result]
    assert agent.told == [4]
    assert agent.broken[0] == 4


def test_another_agent_of_the_session_is_not_taken_for_a_compacted_one() -> None:
    """Four that begin with the same call; and one whose prompt quotes the last one's answer."""
    agent = Agent()
    for number in range(5):
        call, result = next(made(moves=False))
        task = user(f"You are agent {number}. Before you it was found:\nNothing is there.")
        agent.ask([SYSTEM, task], call)
        agent.ask([SYSTEM, task, call, result], says("Nothing is there."))
    assert (agent.told, agent.broken) == ([], [])


def test_an_id_that_is_given_twice_is_none() -> None:
    """A server that counts each reply's calls from 0, and a client that tells the time."""
    agent = Agent()
    messages: list[Json] = []
    for number, (call, result) in enumerate(made(moves=False)):
        call["tool_calls"][0]["id"] = result["tool_call_id"] = "call_0"
        agent.ask([SYSTEM, user(f"Search. It is {number} o'clock."), *messages], call)
        messages += [call, result]
    assert (agent.told[0], agent.broken[0]) == (4, 4)
