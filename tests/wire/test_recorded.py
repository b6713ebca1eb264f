"""What real clients of both dialects have sent, as chat completions, where the recordings lie."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure.corpora import CORPORA
from mlx_stack_proxy.engine import client_request
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.dialect import SessionName, Translated
from mlx_stack_proxy.wire.table import BY_PATH

Json = dict[str, Any]
REQUESTS = CORPORA / "agent-requests"
pytestmark = pytest.mark.skipif(not REQUESTS.is_dir(), reason=f"no requests at {REQUESTS}")


def recorded(path: Path) -> Json:
    """Its ``method``, ``path``, ``headers`` and ``body``; none of a WebSocket."""
    found: Json = json.loads(path.read_bytes())
    return {**found, "path": found["path"].partition("?")[0]}


ALL = {path: recorded(path) for path in sorted(REQUESTS.glob("*.json"))}
SENT = [path for path, one in ALL.items() if one["path"] in BY_PATH and one["body"]]
# By turn: what was sent first, and what followed it.
PAIRS = [
    *(
        ("claude-code-01", f"claude-code-{number}")
        for number in ("02", "03", "09", "10", "11", "13")
    ),
    *(("codex-01", f"codex-{number}") for number in ("02", "06", "07", "09", "10", "11")),
    ("opencode-messages-02", "opencode-messages-03"),
    ("opencode-responses-02", "opencode-responses-03"),
]
SIDE_REQUEST = "claude-code-04-web-search"


def translated(path: Path) -> Translated:
    request = ALL[path]
    headers = {name.lower(): value for name, value in request["headers"].items()}
    return BY_PATH[request["path"]].to_chat(request["body"], headers)


def read(name: str) -> Translated:
    return translated(next(path for path in SENT if path.stem.startswith(name)))


def offered(name: str) -> set[str]:
    return {tool["function"]["name"] for tool in read(name).body["tools"]}


@pytest.mark.parametrize("path", SENT, ids=lambda path: path.stem)
def test_each_becomes_a_chat_completion(path: Path) -> None:
    if path.stem == SIDE_REQUEST:
        with pytest.raises(ProxyError, match="web_search runs on Anthropic's servers"):
            translated(path)
        return
    chat = translated(path).body
    messages = client_request.parse(json.dumps(chat).encode()).body["messages"]
    for gone in ("x-anthropic-billing-header", "cache_control", "tool_use_id", "input_schema"):
        assert gone not in json.dumps(chat)
    answered = set()
    for before, message in itertools.pairwise(messages):
        if message["role"] == "tool":
            assert before["role"] in ("assistant", "tool")
            answered.add(message["tool_call_id"])
        else:
            assert message["role"] != before["role"], "strict templates want them in turn"
    assert answered == {call["id"] for m in messages for call in m.get("tool_calls", ())}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_turn_begins_with_the_one_before(first: str, second: str) -> None:
    before, after = read(first).body["messages"], read(second).body["messages"]
    assert len(after) > len(before)
    assert json.dumps(after[: len(before)]) == json.dumps(before)


def test_a_tool_is_offered_once_it_is_loaded() -> None:
    loaded = offered("claude-code-03")
    assert loaded - offered("claude-code-01") == {"WebFetch"}
    assert "DeferredToolPlaceholder" not in loaded


def test_codex_offers_functions_a_namespace_and_its_patch_with_a_grammar() -> None:
    assert {"exec_command", "multi_agent_v1__spawn_agent"} <= offered("codex-01")
    assert read("codex-01").left_out == ("web_search",)
    assert "apply_patch" in offered("codex-03")
    assert read("codex-03").left_out == ("tool_search", "web_search")


def test_codexs_compaction_offers_no_tools() -> None:
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(read("codex-08").body)


def test_a_sub_agent_is_a_session_of_its_own_and_spends_its_parents_budget() -> None:
    alone, parent, child = (read(f"codex-0{number}").session for number in (1, 4, 5))
    assert isinstance(alone, SessionName) and (alone.source, alone.budget) == ("thread-id", "")
    assert isinstance(parent, SessionName)
    assert isinstance(child, SessionName)
    assert child.name != parent.name == child.budget
