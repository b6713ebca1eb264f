"""What the scripted model says, turn by turn, and which of its replies are spoiled."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.clients import spoiled
from benchmarks.clients.model import CALLS, Model, whole_of
from benchmarks.clients.scripted import Use
from benchmarks.clients.spoiled import KINDS, OF_TEXT
from benchmarks.clients.tasks import TASKS
from benchmarks.clients.toolboxes import OPENCODE
from tests.support.scripted_server import Call, Reply

Json = dict[str, Any]
TASK = TASKS[0]
ASKED = {"role": "user", "content": TASK.asked}


def result(text: str) -> Json:
    return {"role": "tool", "tool_call_id": "1", "content": text}


def call(*messages: Json, stream: bool = True) -> Call:
    body = {"messages": [ASKED, *messages], "stream": stream, "tools": [{}]}
    return Call("POST", "/", [], bytearray(json.dumps(body).encode()))


def frames(reply: Reply) -> list[Json]:
    pieces = [piece for piece in reply.pieces if isinstance(piece, bytes)]
    return [json.loads(one.removeprefix(b"data: ")) for one in pieces if b"{" in one]


def said(model: Model, *messages: Json) -> str:
    """The name of the tool that is called next, with its path or command; or the text."""
    message = whole_of(frames(model.reply(call(*messages))))["choices"][0]["message"]
    if not message.get("tool_calls"):
        return str(message["content"])
    function = message["tool_calls"][0]["function"]
    given = json.loads(function["arguments"])
    return f"{function['name']} {Path(given.get('filePath') or given['command']).name}"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(Model, "_kind", lambda *_: "")
    return Model(7, 0, OPENCODE, tmp_path, lambda body: bool(body.get("tools")))


def test_it_goes_on_from_what_is_done(model: Model, tmp_path: Path) -> None:
    assert said(model) == "write clamp.py"
    assert said(model, result("no such tool")) == "write clamp.py"
    (tmp_path / TASK.file).write_text(TASK.faulty)
    assert said(model) == "write test_clamp.py"
    (tmp_path / TASK.test_file).write_text(TASK.test)
    failed = result(TASK.fails)
    assert said(model) == f"bash {TASK.run}"
    assert said(model, failed) == "read clamp.py"
    read = result(TASK.faulty)
    assert said(model, failed, read) == "edit clamp.py"
    (tmp_path / TASK.file).write_text(TASK.program)
    assert said(model, failed, read) == f"bash {TASK.run}"
    assert "right now" in said(model, failed, read, result(TASK.passes))


async def test_it_counts_what_it_wrote_and_says_so(model: Model) -> None:
    reply = model.reply(call())
    usage = next(frame["usage"] for frame in frames(reply) if "usage" in frame)
    for piece in reply.pieces:
        if callable(piece):
            await piece()
    assert usage["completion_tokens"] == model.characters // 4 > 30
    assert usage["prompt_tokens"] == model.prompt_tokens > 0


def test_one_first_ask_in_four_is_spoiled_and_each_kind_as_often() -> None:
    dealt = spoiled.dealt(7, len(TASKS), CALLS)
    calls = Counter(kind for (_, turn), kind in dealt.items() if turn < CALLS)
    assert calls.total() == len(TASKS) * CALLS // 4
    assert calls.keys() == KINDS.keys()
    assert max(calls.values()) - min(calls.values()) <= 1
    ends = Counter(kind for (_, turn), kind in dealt.items() if turn == CALLS)
    assert ends.total() == len(TASKS) // 4
    assert ends.keys() == set(OF_TEXT)
    assert dealt != spoiled.dealt(8, len(TASKS), CALLS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_spoiled_is_no_good_reply(kind: str) -> None:
    use = Use("bash", {"command": "ls -la"})
    written = use.written
    whole = whole_of([one for one in frames(KINDS[kind](use, written)) if one["choices"]])
    message = whole["choices"][0]["message"]
    calls = [one["function"] for one in message.get("tool_calls") or ()]
    assert calls != [{"name": "bash", "arguments": written}]
