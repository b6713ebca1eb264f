"""A request's items as chat messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.responses.request import messages_of

Json = dict[str, Any]


def messages(*items: Any, **body: Any) -> list[Json]:
    return messages_of({"input": list(items), **body})


def said(role: str, text: str) -> Json:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


def called(call_id: str, name: str = "read", arguments: str = "{}") -> Json:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def gave(call_id: str, output: Any) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def test_instructions_and_first_system_texts_are_one_message() -> None:
    found = messages(
        said("developer", "Be brief."),
        said("system", "And kind."),
        said("user", "Hi"),
        instructions="You are Bo.",
    )
    assert found == [
        {"role": "system", "content": "You are Bo.\n\nBe brief.\n\nAnd kind."},
        {"role": "user", "content": "Hi"},
    ]


def test_a_message_behind_a_call_joins_its_turn() -> None:
    answer = {"role": "assistant", "content": "There."}
    found = messages(called("a"), answer, gave("a", "1"))
    assert [one["role"] for one in found] == ["assistant", "tool"]
    assert found[0]["content"] == "There."


def test_a_summary_stands_for_reasoning_that_only_its_server_can_read() -> None:
    summary = [{"type": "summary_text", "text": "Looked around."}]
    item = {"type": "reasoning", "encrypted_content": "gAAA", "summary": summary}
    assert messages(item, called("a"))[0]["reasoning_content"] == "Looked around."
    assert "reasoning_content" not in messages({**item, "summary": []}, called("a"))[0]


def test_images_of_results_follow_all_results() -> None:
    shown = {"type": "input_image", "image_url": "data:image/png;base64,AA", "detail": "auto"}
    found = messages(
        called("a"),
        called("b"),
        gave("a", [{"type": "input_text", "text": "See:"}, shown]),
        gave("b", "2"),
        called("c"),
    )
    assert [one["role"] for one in found] == ["assistant", "tool", "tool", "user", "assistant"]
    assert found[1]["content"] == "See:\n[image: see the next message]"
    url = {"url": "data:image/png;base64,AA", "detail": "auto"}
    assert found[3]["content"] == [{"type": "image_url", "image_url": url}]


def test_an_image_of_the_users_stays_among_its_texts() -> None:
    item = said("user", "What is it?")
    item["content"].append({"type": "input_image", "image_url": "https://x/y.png"})
    assert messages(item)[0]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
    ]


LOST_ELSEWHERE = [
    {"type": "local_shell_call", "id": "x", "call_id": "a", "action": {"command": ["mark-1"]}},
    {"type": "local_shell_call_output", "id": "a", "output": "mark-2"},
    {"type": "shell_call", "call_id": "b", "action": {"commands": ["mark-3"]}},
    {"type": "shell_call_output", "call_id": "b", "output": [{"stdout": "mark-4", "stderr": ""}]},
    {"type": "apply_patch_call", "call_id": "c", "operation": {"diff": "mark-5"}},
    {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "mark-6"},
    {"type": "tool_search_call", "call_id": "d", "arguments": {"query": "mark-7"}},
    {"type": "tool_search_output", "call_id": "d", "tools": [{"name": "mark-8"}]},
    {"type": "web_search_call", "id": "ws", "action": {"query": "mark-9"}},
    {"type": "file_search_call", "id": "fs", "queries": ["mark-10"], "results": []},
    {"type": "code_interpreter_call", "id": "ci", "code": "mark-11", "outputs": []},
    {"type": "mcp_call", "id": "m", "server_label": "s", "name": "mark-12", "output": "mark-13"},
    {"type": "mcp_approval_response", "approval_request_id": "m", "reason": "mark-14"},
    {"type": "computer_call", "call_id": "e", "action": {"text": "mark-15"}},
    {"type": "unheard_of", "payload": {"deep": "mark-16"}},
    {"role": "user", "content": [{"type": "unheard_of", "text": "mark-17"}]},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "mark-18"}]},
    {"role": "developer", "content": "mark-19"},
    gave("f", [{"type": "unheard_of", "text": "mark-20"}]),
    {"type": "program", "id": "p", "call_id": "g", "code": "mark-21"},
    {"type": "program_output", "id": "p", "call_id": "g", "result": "mark-22"},
]


@pytest.mark.parametrize(
    "item", LOST_ELSEWHERE, ids=lambda item: item.get("type", item.get("role"))
)
def test_nothing_that_was_said_is_lost(item: Json) -> None:
    marks = [word.rstrip('"]}.,\\') for word in json.dumps(item).split('"') if "mark-" in word]
    found = json.dumps(messages(said("user", "Hi"), item))
    assert marks
    assert all(mark in found for mark in marks)


def test_a_call_of_another_kind_and_its_result_belong_together() -> None:
    first, second = messages(*LOST_ELSEWHERE[:2])
    assert first["tool_calls"][0]["function"]["name"] == "local_shell"
    assert second["tool_call_id"] == first["tool_calls"][0]["id"]
    assert messages(*LOST_ELSEWHERE[4:6])[1]["content"] == "[failed] mark-6"


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ("text", "input[1]"),
        ({"type": "item_reference", "id": "msg_1"}, "input[1]"),
        ({"id": "msg_1"}, "input[1]"),
        ({"type": "compaction", "encrypted_content": "x"}, "input[1]"),
        ({"type": ["message"]}, "input[1].type"),
        ({"type": "message", "role": "narrator"}, "input[1]"),
        (
            {"role": "user", "content": [{"type": "input_image", "file_id": "f"}]},
            "input[1].content[0]",
        ),
        (
            {"role": "user", "content": [{"type": "input_file", "file_url": "u"}]},
            "input[1].content[0]",
        ),
    ],
)
def test_what_can_not_be_read_is_refused(item: Any, param: str) -> None:
    with pytest.raises(ProxyError) as refused:
        messages(said("user", "Hi"), item)
    assert (refused.value.status, refused.value.param) == (400, param)


@given(
    st.lists(
        st.sampled_from(
            [
                said("user", "Hi"),
                said("developer", "x"),
                called("a"),
                gave("a", "1"),
                *LOST_ELSEWHERE,
            ]
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_next_turns_messages_begin_with_these(items: list[Json]) -> None:
    """The model answers what came, and its answer and what it led to join the items."""
    asked = [*items, said("user", "Go on.")]
    before = messages(*asked)
    after = messages(*asked, called("z"), gave("z", "1"))
    assert json.dumps(after[: len(before)]) == json.dumps(before)


def test_an_image_that_was_generated_is_not_read_as_words() -> None:
    item = {"type": "image_generation_call", "id": "i", "status": "completed", "result": "AAAA"}
    assert "AAAA" not in str(messages(item))
