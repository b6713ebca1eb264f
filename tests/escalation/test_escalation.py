"""Replies that no server meant to give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mlx_stack_proxy import stages
from mlx_stack_proxy.engine.pipeline import Stage
from mlx_stack_proxy.engine.verdicts import Failure, Verdict, empty
from mlx_stack_proxy.escalation.stage import LONGEST_RUN, MIN_OWN, Escalation
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.wire.chunks import ChunkReader
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import client_request, exchange

Json = dict[str, Any]
OWN = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}
# As LiteLLM 1.106 counts when the server sent nothing.
LITELLMS = {
    "prompt_tokens": 9,
    "completion_tokens": 2,
    "completion_tokens_details": None,
    "prompt_tokens_details": None,
}
PLAIN = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}  # llama.cpp's


def reply(message: Json, finish: str = "stop", usage: Json | None = None) -> Reply:
    choice = {"index": 0, "message": message, "finish_reason": finish}
    found = Reply()
    completion = {"choices": [choice], "usage": usage or PLAIN}
    for delta in ChunkReader("id", "model").read_completion(completion):
        found.take(delta)
    return found


def judged(one: Reply, stage: Escalation | None = None, tier: str = "fast", **body: Any) -> Any:
    whole = exchange(client_request(**body), tiers=(tier,))
    return (stage or Escalation(from_mapping({}))).open(whole).judge(one)


@pytest.mark.parametrize(
    "message",
    [
        {"content": None},
        {"content": ""},
        {"content": " \n"},
        {"reasoning_content": "Hm."},
        {"content": "<think>\nHm.\n</think>\n\n"},  # where the server doesn't know reasoning
        {"content": "[THINK]Hm.[/THINK]"},
        {"content": "<think>Hm, what next? I look it up."},  # without an end
    ],
    ids=str,
)
def test_nothing_is_a_failure(message: Json) -> None:
    assert judged(reply(message)) == empty()


@pytest.mark.parametrize("thought", ["<think>Hm.</think>", "<think>Hm."])
def test_mere_thoughts_are_empty_even_if_they_are_out(thought: str) -> None:
    found = reply({"content": thought})
    found.flowed = 10
    assert judged(found) == empty()


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("message", "finish", "body"),
    [
        ({"content": "Hi"}, "stop", {}),
        ({"content": "<think>Hm.</think>Hi"}, "stop", {}),
        ({"content": "It ends with </think>"}, "stop", {}),
        ({"content": None, "tool_calls": [CALL]}, "tool_calls", {}),
        ({"content": None, "refusal": "No."}, "stop", {}),
        ({"content": None, "audio": {"data": "UklG"}}, "stop", {}),
        ({"content": ""}, "length", {}),
        ({"content": ""}, "content_filter", {}),
        ({"content": ""}, "stop", {"stop": ["Observation:"]}),
    ],
)
def test_something_is_none(message: Json, finish: str, body: Json) -> None:
    assert judged(reply(message, finish), **body) is None


def known(own: Json, count: int = MIN_OWN) -> Escalation:
    stage = Escalation(from_mapping({}))
    for _ in range(count):
        assert judged(reply({"content": "Good."}, usage=own), stage) is None
    return stage


@pytest.mark.parametrize("own", [OWN, PLAIN])
def test_an_end_that_litellm_made_up_is_seen_where_the_server_counts_itself(own: Json) -> None:
    verdict: Verdict | None = judged(reply({"content": "Half an"}, usage=LITELLMS), known(own))
    assert isinstance(verdict, Failure) and verdict.reason == "server_error"


def test_litellms_count_of_a_stream_that_held_more_than_text_names_no_details() -> None:
    """As of an mlx_lm.server that was killed after it had written what it took for a call."""
    half = reply({"content": "Half an"}, usage=PLAIN)
    assert isinstance(judged(half, known(OWN)), Failure)
    stage = known(OWN, MIN_OWN - 1)
    assert judged(half, stage) is None, "too few to know the server by"
    for _ in range(MIN_OWN):
        assert judged(reply({"content": "Good."}, usage=OWN), stage) is None
    assert judged(half, stage) is None, "a server that names cached tokens only sometimes"


def test_a_usage_that_never_came_tells_the_same_unless_we_cut_the_reply_ourselves() -> None:
    """LiteLLM counts a long reply for seconds after its finish_reason."""
    half = reply({"content": "Half an"})
    half.usage = None
    assert isinstance(judged(half, known(OWN)), Failure)
    assert judged(half) is None
    half.cut = True
    stage = known(OWN)
    assert judged(half, stage) is None
    half.cut = False
    assert isinstance(judged(half, stage), Failure), "and the cut one was not counted"


def test_but_not_where_litellm_always_counts() -> None:
    """A server that sends no usage: every good reply of it looks like a dead one."""
    stage = known(LITELLMS, count=50)
    assert judged(reply({"content": "Good."}, usage=LITELLMS), stage) is None


def test_nor_before_the_tier_is_known_nor_in_the_cloud() -> None:
    half = reply({"content": "Half an"}, usage=LITELLMS)
    assert judged(half) is None
    assert judged(half, known(OWN, MIN_OWN - 1)) is None
    stage = known(OWN, MIN_OWN - 1)
    whole = reply({"content": "Good."}, usage=OWN)
    whole.whole = True
    assert judged(whole, stage) is None
    assert judged(half, stage) is None, "a whole reply's usage says nothing of a stream's"
    assert judged(half, known(OWN), tier="premium") is None


def test_two_servers_of_one_tier_of_which_one_sends_no_usage() -> None:
    """By turns: from the second on nothing can be told."""
    stage = known(OWN)
    verdicts = []
    for _ in range(30):
        judged(reply({"content": "Good."}, usage=OWN), stage)
        verdicts.append(judged(reply({"content": "Good."}, usage=LITELLMS), stage))
    assert verdicts[1:] == [None] * 29


def test_a_server_that_changes_its_ways_is_believed_again() -> None:
    stage = known(OWN)
    half = reply({"content": "Good."}, usage=LITELLMS)
    verdicts = [judged(half, stage) for _ in range(LONGEST_RUN + 5)]
    assert verdicts[LONGEST_RUN:] == [None] * 5


def test_a_reload_hands_over_what_was_seen_of_each_model() -> None:
    """Otherwise ten good replies are needed before a server's death is noticed again."""
    tiers: Json = {"fast": {"model": "m"}, "standard": {"model": "n"}}
    settings = from_mapping({"tiers": tiers})
    old = stages.build(settings)
    for tier in tiers:
        for _ in range(MIN_OWN):
            judged(reply({"content": "a"}, usage=OWN), _broken_replies(old), tier)
    tiers["standard"]["model"] = "another"
    new = stages.build(from_mapping({"tiers": tiers, "stream": {"metadata": True}}), old)
    died = reply({"content": "a"}, usage=LITELLMS)
    assert isinstance(judged(died, _broken_replies(new), "fast"), Failure)
    assert judged(died, _broken_replies(new), "standard") is None, "another server"
    assert isinstance(judged(died, _broken_replies(stages.build(settings, new))), Failure)


def _broken_replies(built: Sequence[Stage]) -> Escalation:
    (stage,) = (stage for stage in built if isinstance(stage, Escalation))
    return stage
