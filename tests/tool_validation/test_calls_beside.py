"""Calls beside which something can't be read, and calls at the end of mere thoughts."""

from __future__ import annotations

import pytest

from tests.support.replies import completion
from tests.tool_validation.tool_replies import GOOD, judged, message

SEARCH = f'<tool_call>{{"name": "search", "arguments": {GOOD}}}</tool_call>'
BARE = '{"name": "search", "arguments": {"query": "emu"}}'


@pytest.mark.parametrize(
    "text",
    [
        f"{SEARCH}\n<tool_call>\nsearch for emus\n</tool_call>",
        f"{SEARCH} tool_call>{BARE}</tool_call>",  # half a mark
        f"{SEARCH}\n<function=search><parameter=que",
        f'fly[TOOL_CALLS]{{"to": "emu"}}[TOOL_CALLS]search[ARGS]{GOOD}',  # no tool of that name
        f"{BARE}\n{SEARCH}",
        f'search[TOOL_CALLS]{{"query": "emu"}}[TOOL_CALLS]search[ARGS]{GOOD}',
        f'<｜DSML｜invoke name="search"><｜DSML｜param emu</｜DSML｜invoke>\n{SEARCH}',
    ],
)
def test_what_cannot_be_read_holds_back_the_call_beside_it(text: str) -> None:
    found = judged(message(text=text))
    assert found.kinds == ["unread_call"]
    assert found.verdict is not None and found.verdict.doubt  # type: ignore[union-attr]
    assert judged(message(text=text), validate_plausibility=False).calls


@pytest.mark.parametrize(
    "text",
    [
        f"I search for it: search(query='quokka').\n{SEARCH}\nDone.",
        f"{SEARCH}\nThen I will use `<tool_call>` for search once more.",
        f"{SEARCH}\n<tool_response> is what comes of it.",
    ],
)
def test_prose_around_a_call_is_none(text: str) -> None:
    assert judged(message(text=text)).calls == [("search", {"query": "quokka"})]


KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.search:0"
    f"<|tool_call_argument_begin|>{GOOD}<|tool_call_end|><|tool_calls_section_end|>"
)


@pytest.mark.parametrize(
    "said",
    [
        {"content": f"<think>I look.\n{SEARCH}"},
        {"content": f"<think>I look.\n{SEARCH}\n</think>\n"},
        {"content": f"[THINK]Maybe <tool_call>? No: {KIMI}"},
        {"content": None, "reasoning_content": f"I look. {KIMI}"},
    ],
)
def test_a_call_that_ends_a_mere_thought(said: dict[str, str]) -> None:
    assert judged(completion(said, "stop")).kinds == ["unread_call"]
    found = judged(completion(said, "stop"), validate_plausibility=False)
    assert found.calls == [("search", {"query": "quokka"})]
    assert found.choice["finish_reason"] == "tool_calls"
    thought = said["content"]
    for called in (SEARCH, KIMI):
        thought = thought and thought.partition(called)[0]
    assert found.choice["message"]["content"] == thought


@pytest.mark.parametrize(
    "said",
    [
        {"content": f"<think>I look. {SEARCH} Or rather not, it is the quokka."},
        {"content": f"<think>{SEARCH}</think>It is the quokka."},
        {"content": "It is the quokka.", "reasoning_content": SEARCH},
        {"content": f"<think>{SEARCH.replace('search', 'fly')}"},
    ],
)
def test_a_call_that_was_thought_over_is_none(said: dict[str, str]) -> None:
    assert "tool_calls" not in judged(completion(said, "stop")).choice["message"]
