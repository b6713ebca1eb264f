"""What real clients of the Messages API have sent, as chat completions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.engine import client_request
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.messages import MESSAGES
from tests.wire.recorded import headers_of, needs_them, paths, recorded

Json = dict[str, Any]
pytestmark = needs_them

ALL = [
    p for start in ("claude-code", "opencode-messages", "continue-messages") for p in paths(start)
]
SENT = [path for path in ALL if recorded(path)["path"].partition("?")[0] == "/v1/messages"]
# By turn: what was sent first, and what followed it.
PAIRS = [
    ("claude-code-01-first", "claude-code-02-tool-result"),
    ("claude-code-01-first", "claude-code-03-tool-reference"),
    ("claude-code-01-first", "claude-code-09-image-result"),
    ("claude-code-01-first", "claude-code-10-thinking-replay"),
    ("claude-code-01-first", "claude-code-11-invalid-args"),
    ("claude-code-01-first", "claude-code-13-unknown-tool"),
    ("opencode-messages-02-first", "opencode-messages-03-tool-result"),
]
SIDE_REQUEST = "claude-code-04-web-search"


def chat_of(name: str | Path) -> Json:
    request = recorded(name)
    return MESSAGES.to_chat(request["body"], headers_of(request)).body


@pytest.mark.parametrize("path", SENT, ids=lambda path: path.stem)
def test_each_becomes_a_chat_completion(path: Path) -> None:
    if path.stem == SIDE_REQUEST:
        with pytest.raises(ProxyError, match="web_search runs on Anthropic's servers"):
            chat_of(path)
        return
    chat = chat_of(path)
    client_request.checked(chat, 1)
    text = json.dumps(chat)
    for gone in ("x-anthropic-billing-header", "cache_control", "tool_use_id", "input_schema"):
        assert gone not in text
    answered = set()
    for message, before in zip(chat["messages"][1:], chat["messages"], strict=False):
        if message["role"] == "tool":
            assert before["role"] in ("assistant", "tool")
            answered.add(message["tool_call_id"])
        else:
            assert message["role"] != before["role"], "strict templates want them in turn"
    calls = [call for m in chat["messages"] for call in m.get("tool_calls", ())]
    assert answered == {call["id"] for call in calls}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_turn_begins_with_the_one_before(first: str, second: str) -> None:
    before, after = chat_of(first)["messages"], chat_of(second)["messages"]
    assert json.dumps(after[: len(before)]) == json.dumps(before)


def test_a_tool_is_offered_once_it_is_loaded() -> None:
    def offered(name: str) -> list[str]:
        return [tool["function"]["name"] for tool in chat_of(name)["tools"]]

    loaded = set(offered("claude-code-03-tool-reference"))
    assert loaded - set(offered("claude-code-01-first")) == {"WebFetch"}
    assert "DeferredToolPlaceholder" not in loaded
