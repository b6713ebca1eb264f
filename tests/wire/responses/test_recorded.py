"""What real clients sent, where the recordings are present."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measure.corpora import CORPORA
from mlx_stack_proxy.engine import client_request
from mlx_stack_proxy.wire.dialect import SessionName, Translated
from mlx_stack_proxy.wire.responses.request import to_chat

Json = dict[str, Any]
RECORDED = sorted((CORPORA / "agent-requests").glob("*.json"))
OURS = [path for path in RECORDED if path.stem.split("-0")[0].endswith(("codex", "responses"))]
needs_recordings = pytest.mark.skipif(not OURS, reason="the recorded requests are not here")


def read(name: str) -> Translated:
    path = next(one for one in RECORDED if one.stem.startswith(name))
    return translated(path)


def translated(path: Path) -> Translated:
    recorded = json.loads(path.read_bytes())
    headers = {name.lower(): value for name, value in recorded["headers"].items()}
    return to_chat(recorded["body"], headers)


def offered(found: Translated) -> set[str]:
    return {tool["function"]["name"] for tool in found.body["tools"]}


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.stem)
def test_a_recorded_request_is_a_chat_completion(path: Path) -> None:
    found = translated(path)
    parsed = client_request.parse(json.dumps(found.body).encode())
    roles = [message["role"] for message in parsed.body["messages"]]
    assert roles[:2] == ["system", "user"]
    assert not any(a == b for a, b in itertools.pairwise(roles) if a != "tool")


@needs_recordings
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("codex-01", "codex-02"),
        ("codex-01", "codex-06"),
        ("codex-01", "codex-07"),
        ("codex-01", "codex-09"),
        ("codex-01", "codex-10"),
        ("codex-01", "codex-11"),
        ("opencode-responses-02", "opencode-responses-03"),
    ],
)
def test_a_turn_begins_with_the_turn_before(before: str, after: str) -> None:
    """But for what the recordings have for a name, such as that of the folder: its own."""
    first, second = read(before).body["messages"], read(after).body["messages"]
    assert len(second) > len(first)
    assert json.dumps(second[: len(first)]) == json.dumps(first)


@needs_recordings
def test_codex_offers_functions_and_a_namespace() -> None:
    found = read("codex-01")
    assert {"exec_command", "multi_agent_v1__spawn_agent"} <= offered(found)
    assert found.left_out == ("web_search",)
    assert found.session is not None
    assert (found.session.source, found.session.budget) == ("thread-id", "")


@needs_recordings
def test_codex_offers_its_patch_with_a_grammar() -> None:
    found = read("codex-03")
    assert "apply_patch" in offered(found)
    assert found.left_out == ("tool_search", "web_search")


@needs_recordings
def test_a_sub_agent_is_a_session_of_its_own_and_spends_its_parents_budget() -> None:
    parent, child = read("codex-04").session, read("codex-05").session
    assert isinstance(parent, SessionName)
    assert isinstance(child, SessionName)
    assert child.name != parent.name == child.budget


@needs_recordings
def test_codexs_compaction_offers_no_tools() -> None:
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(read("codex-08").body)
