"""`observability.capture_failures`: what failed is kept, and replays to the same verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from mlx_stack_proxy.operator.replay import Replay
from mlx_stack_proxy.telemetry import failure_capture
from tests.server.asking import ask
from tests.server.calling import BAD, GOOD, TOOLS, calling, delta
from tests.server.capturing import captured
from tests.server.climbing import by_model
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT
from tests.server.looping import STUCK, endless
from tests.server.polling import until_metric
from tests.support.replies import (
    ROLE,
    completion,
    data,
    litellm_error,
    stream,
    text_chunks,
    text_stream,
    with_role,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import CLOSE, RESET, SILENCE, Reply
from tests.tool_validation.calls import parameters, tool

Json = dict[str, Any]


BROKEN_CHARACTER = Reply.sse(
    ROLE, b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', CLOSE
)
LOGIN = tool("login", parameters("password", password="string"))
OF_LOGIN = stream(with_role(delta('{"password": {"a": 1}}', name="login"), finish="tool_calls"))
REFUSED = "Conversation roles must alternate"
INVALID = "tool_validation_failure"
# What the fast tier does, the tools, and what the verdict on each attempt is.
WAYS: dict[str, tuple[list[Reply], list[Json], list[str | None]]] = {
    "bad call": ([calling(BAD)] * 2, TOOLS, [INVALID] * 2),
    "bad, then mended": ([calling(BAD), calling('{"query": "q",}')], TOOLS, [INVALID, None]),
    "bad, with a password for an argument": (
        [OF_LOGIN] * 2,
        [LOGIN, *TOOLS],
        [INVALID] * 2,
    ),
    "loop": ([endless({"content": STUCK})], [], ["loop_detected"]),
    "silence": ([Reply.sse(SILENCE)], [], ["timeout"]),
    "500": ([litellm_error(500, "no")] * 2, [], ["server_error"] * 2),
    "reset": ([Reply.sse(ROLE, RESET)] * 2, [], ["server_error"] * 2),
    "error in the stream": (
        [Reply.sse(ROLE, data({"error": {"message": "oops"}}))] * 2,
        [],
        ["server_error"] * 2,
    ),
    "no JSON": ([Reply.json(b"<p>hello")] * 2, [], ["server_error"] * 2),
    "no UTF-8": ([BROKEN_CHARACTER] * 2, [], ["server_error"] * 2),
    "empty": ([stream(text_chunks())] * 2, [], ["empty_response"] * 2),
    "whole and empty": (
        [Reply.json(completion({"content": ""}, "stop"))] * 2,
        [],
        ["empty_response"] * 2,
    ),
    "words of ours": (
        [calling(BAD), litellm_error(404, REFUSED)],
        TOOLS,
        [INVALID, "client_error"],
    ),
    "words of ours in the stream": (
        [calling(BAD), Reply.sse(data({"error": {"message": REFUSED}}))],
        TOOLS,
        [INVALID, "client_error"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_each_failure_replays_to_the_same_verdicts(
    way: str, start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    replies, tools, verdicts = WAYS[way]
    proxy = await start_proxy(capturing)
    proxy.upstream.will(*replies, *[by_model()] * 3)
    response = await ask(proxy, stream=True, **({"tools": tools} if tools else {}))
    expected = [*verdicts, *([None] if verdicts[-1] else [])]  # another tier's reply is good
    records = await captured(folder, len(expected))
    assert [(one["verdict"] or {}).get("reason") for one in records] == expected
    assert {one["request_id"] for one in records} == {response.headers["x-request-id"]}
    assert [one["attempt"] for one in records] == list(range(1, len(expected) + 1))
    failed = [one["reply"]["failed"] for one in records if "failed" in one["reply"]]
    assert all(one["kind"] != "unreachable" for one in failed)
    replay = Replay(proxy.services.settings)
    lines = (json.dumps(record).encode() for record in records)
    outcomes = [to_builtins(one) for one in replay.lines(lines)]
    assert [one.get("differs") for one in outcomes] == [None] * len(expected), outcomes
    assert [(one.get("verdict") or {}).get("reason") for one in outcomes] == expected


async def test_what_went_well_leaves_nothing(
    start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    proxy = await start_proxy(capturing)
    proxy.upstream.always(lambda _: text_stream())
    assert (await ask(proxy)).status_code == 200
    proxy.upstream.script.extend([litellm_error(400, "what?")])
    assert (await ask(proxy)).status_code == 400
    assert len(await captured(folder, 1)) == 1


async def test_no_key_is_written(
    start_proxy: StartProxy, capturing: Json, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which look like keys, and which fields hold them: tests/telemetry/test_failure_capture.py."""
    keys = ["master-key-0123456789", "client-key-0123456789", "admin-key-0123456789"]
    monkeypatch.setenv("LITELLM_MASTER_KEY", keys[0])
    server = {"server.api_keys": [keys[1]], "server.admin_key": keys[2]}
    proxy = await start_proxy({**capturing, **server})
    proxy.upstream.always(litellm_error(400, f"what? {' '.join(keys)}"))
    response = await ask(proxy, {"Authorization": f"Bearer {keys[1]}"}, user=keys[1])
    assert response.status_code == 400
    (record,) = await captured(folder, 1)
    text = (folder / failure_capture.FILE).read_text()
    assert not [key for key in keys if key in text]
    assert record["reply"]["body"].count("[key removed]") == 3
    assert "quokka" in text, "all else is there"


async def test_switched_off_nothing_is_done(proxy: RunningProxy) -> None:
    assert proxy.services.capture is None and proxy.services.observers == ()


async def test_a_folder_that_can_not_be_written_breaks_no_reply(
    start_proxy: StartProxy, capturing: Json, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "private").write_text("a file, no folder")
    proxy = await start_proxy(capturing)
    proxy.upstream.will(*[calling(BAD), calling(GOOD)] * 2)
    for _ in range(2):
        assert (await ask(proxy, AGENT, tools=TOOLS)).status_code == 200
    await until_metric(proxy, "mlx_stack_stage_faults_total", 2, stage="capture")
    said = [line for line in capfd.readouterr().err.splitlines() if "capture_fault" in line]
    assert len(said) == 1 and "Not a directory" in said[0]
