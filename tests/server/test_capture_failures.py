"""`observability.capture_failures`: what failed is kept, and replays to the same verdicts."""

from __future__ import annotations

import base64
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.operator.replay import Replay
from mlx_stack_proxy.telemetry import failure_capture
from tests.server.asking import ask
from tests.server.calling import BAD, GOOD, TOOLS, calling, delta
from tests.server.capturing import captured
from tests.server.climbing import by_model
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT
from tests.server.failing import SETTINGS
from tests.server.looping import STUCK, endless
from tests.server.polling import until_metric
from tests.support.replies import (
    ROLE,
    data,
    litellm_error,
    stream,
    text_chunks,
    text_stream,
    with_role,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import CLOSE, RESET, SILENCE, Reply, ScriptedServer
from tests.tool_validation.calls import parameters, tool

Json = dict[str, Any]


def replayed(proxy: RunningProxy, records: list[Json]) -> list[Json]:
    replay = Replay(proxy.services.settings)
    return [one.as_dict() for one in replay.lines(json.dumps(r).encode() for r in records)]


BROKEN_CHARACTER = Reply.sse(
    ROLE, b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n', CLOSE
)
# What the fast tier does, and what the verdict on each attempt is.
WAYS: dict[str, tuple[list[Reply], bool, list[str | None]]] = {
    "bad call": ([calling(BAD)] * 2, True, ["tool_validation_failure"] * 2),
    "bad, then mended": (
        [calling(BAD), calling('{"query": "q",}')],
        True,
        ["tool_validation_failure", None],
    ),
    "loop": ([endless({"content": STUCK})], False, ["loop_detected"]),
    "silence": ([Reply.sse(SILENCE)], False, ["timeout"]),
    "500": ([litellm_error(500, "no")] * 2, False, ["server_error"] * 2),
    "400": ([litellm_error(400, "what?")], False, ["client_error"]),
    "broken off": ([Reply.sse(ROLE, CLOSE)] * 2, False, ["server_error"] * 2),
    "reset": ([Reply.sse(ROLE, RESET)] * 2, False, ["server_error"] * 2),
    "error in the stream": (
        [Reply.sse(ROLE, data({"error": {"message": "oops"}}))] * 2,
        False,
        ["server_error"] * 2,
    ),
    "no JSON": ([Reply.json(b"<p>hello")] * 2, False, ["server_error"] * 2),
    "no UTF-8": ([BROKEN_CHARACTER] * 2, False, ["server_error"] * 2),
    "empty": ([stream(text_chunks())] * 2, False, ["empty_response"] * 2),
    "words of ours": (
        [calling(BAD), litellm_error(404, "Conversation roles must alternate")],
        True,
        ["tool_validation_failure", "client_error"],
    ),
    "words of ours in the stream": (
        [
            calling(BAD),
            Reply.sse(data({"error": {"message": "Conversation roles must alternate"}})),
        ],
        True,
        ["tool_validation_failure", "client_error"],
    ),
    "whole and bad": (
        [
            Reply.json(
                {"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}]}
            )
        ]
        * 2,
        False,
        ["empty_response"] * 2,
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_each_failure_replays_to_the_same_verdicts(
    way: str,
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    capturing: Json,
    folder: Path,
) -> None:
    replies, tools, verdicts = WAYS[way]
    proxy = await start_proxy(capturing)
    upstream.will(*replies, *[by_model()] * 3)
    response = await ask(proxy, stream=True, **({"tools": TOOLS} if tools else {}))
    attempts = 1 + len(replies) if verdicts[-1] else len(verdicts)
    if way == "400":
        attempts = 1
    records = await captured(folder, attempts)
    assert [(one["verdict"] or {}).get("reason") for one in records] == [
        *verdicts,
        *[None] * (attempts - len(verdicts)),
    ]
    assert {one["request_id"] for one in records} == {response.headers["x-request-id"]}
    assert [one["attempt"] for one in records] == list(range(1, attempts + 1))
    failed = [one["reply"]["failed"] for one in records if "failed" in one["reply"]]
    assert all(one["refused"] is False for one in failed)
    outcomes = replayed(proxy, records)
    assert [one.get("differs") for one in outcomes] == [None] * attempts, outcomes
    assert [(one.get("verdict") or {}).get("reason") for one in outcomes] == [
        (one["verdict"] or {}).get("reason") for one in records
    ]


async def test_what_went_well_leaves_nothing(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    proxy = await start_proxy(capturing)
    upstream.always(lambda _: text_stream())
    assert (await ask(proxy)).status_code == 200
    upstream.script.extend([litellm_error(400, "what?")])
    assert (await ask(proxy)).status_code == 400
    assert len(await captured(folder, 1)) == 1


async def test_no_key_is_written(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    capturing: Json,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = ["master-key-0123456789", "client-key-0123456789", "admin-key-0123456789"]
    other = "sk-proj-0123456789abcdefXYZ"
    monkeypatch.setenv("LITELLM_MASTER_KEY", keys[0])
    server = {"server.api_keys": [keys[1]], "server.admin_key": keys[2]}
    proxy = await start_proxy({**capturing, **server})
    upstream.always(litellm_error(400, f"what? {keys[0]} {keys[1]} {keys[2]} {other}"))
    headers = {"Authorization": f"Bearer {keys[1]}", "X-Api-Key": keys[1]}
    more = {"api_key": "hidden-1", "extra_headers": {"a": "hidden-2"}, "user": f"Bearer {other}"}
    response = await ask(proxy, headers, **more)
    assert response.status_code == 400
    (record,) = await captured(folder, 1)
    text = (folder / failure_capture.FILE).read_text()
    for key in (*keys, other, "hidden-1", "hidden-2"):
        assert key not in text
    assert record["reply"]["body"].count("[key removed]") == 4
    assert record["request"]["user"] == "Bearer [key removed]"
    assert "quokka" in text, "all else is there"


KEYS = (
    "hf_" + "aB3" * 11,
    "ghp_" + "aB3" * 12,
    "github_pat_" + "aB3" * 12,
    "xoxb-" + "123-" * 8,
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "Sy-ab" * 7,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghijkl",
)


async def test_what_looks_like_a_key_is_taken_out_of_what_was_said(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    proxy = await start_proxy(capturing)
    upstream.always(litellm_error(400, "what?"))
    pem = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIB\n" * 20 + "-----END PRIVATE KEY-----"
    said = f"My .env: {' '.join(f'A={key}' for key in KEYS)} {pem} a skeleton-key-of-a-quokka"
    router = {"model_list": [{"litellm_params": {"model": "m", "api_key": "hidden-1"}}]}
    more = {"user_config": router, "metadata": {"tags": ["a"], "auth_token": "hidden-2"}}
    await ask(proxy, messages=[{"role": "user", "content": said}], **more)
    (record,) = await captured(folder, 1)
    text = (folder / failure_capture.FILE).read_text()
    for key in (*KEYS, "MIIEvQIB", "hidden-1", "hidden-2"):
        assert key not in text
    kept = record["request"]["messages"][0]["content"]
    assert kept.count("[key removed]") == len(KEYS) + 1
    assert kept.endswith("[key removed]-----END PRIVATE KEY----- a skeleton-key-of-a-quokka")
    assert record["request"]["metadata"] == {"tags": ["a"]}
    assert record["request"]["user_config"]["model_list"] == [{"litellm_params": {"model": "m"}}]


async def test_a_key_in_bytes_that_are_no_text(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    proxy = await start_proxy(capturing)
    upstream.always(Reply.json(b"\xff sk-0123456789abcdefXYZ", status=400))
    await ask(proxy)
    (record,) = await captured(folder, 1)
    assert base64.b64decode(record["reply"]["body_base64"]) == b"\xff [key removed]"


async def test_a_tools_argument_of_that_name_is_what_was_said(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    """Taken out it would be missing, and the call replayed to another verdict."""
    proxy = await start_proxy(capturing)
    login = tool("login", parameters("password", password="string"))
    call = stream(with_role(delta('{"password": {"a": 1}}', name="login"), finish="tool_calls"))
    upstream.will(call, call, text_stream())
    await ask(proxy, tools=[login])
    records = await captured(folder, 3)
    assert records[0]["request"]["tools"] == [login]
    assert [one.get("differs") for one in replayed(proxy, records)] == [None] * 3


async def test_a_long_reply_is_cut_off(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    capturing: Json,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(failure_capture, "MOST_RAW", 1000)
    proxy = await start_proxy(capturing)
    upstream.will(endless({"content": STUCK}), text_stream())
    assert (await ask(proxy)).status_code == 200
    (record, _) = await captured(folder, 2)
    assert record["reply"]["cut_off"] and len(record["reply"]["stream"]) <= 1000


async def test_switched_off_nothing_is_done(
    upstream: ScriptedServer, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Callable[..., Any]] = []
    proxy = await start_proxy(SETTINGS)
    monkeypatch.setattr(failure_capture._Recorded, "__init__", seen.append)
    assert proxy.services.capture is None and proxy.services.observers == ()
    upstream.will(calling(BAD), calling(GOOD))
    assert (await ask(proxy, tools=TOOLS)).status_code == 200
    assert seen == []


# Its files: private, bounded, and no line spoilt


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def with_one_captured(
    start_proxy: StartProxy, capturing: Json, upstream: ScriptedServer, folder: Path
) -> tuple[RunningProxy, Json]:
    """A proxy whose upstream refuses all it is asked, and the record of the first refusal."""
    proxy = await start_proxy(capturing)
    upstream.always(litellm_error(400, "what?"))
    await ask(proxy)
    (record,) = await captured(folder, 1)
    return proxy, record


async def test_only_this_user_may_read_it(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    proxy, _ = await with_one_captured(start_proxy, capturing, upstream, folder)
    file = folder / failure_capture.FILE
    assert (mode(folder), mode(file)) == (0o700, 0o600)
    file.chmod(0o644)
    await ask(proxy)
    await captured(folder, 2)
    assert mode(file) == 0o600


async def test_a_disk_that_fills_up_spoils_no_line(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    capturing: Json,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proxy, first = await with_one_captured(start_proxy, capturing, upstream, folder)
    write, room = os.write, [100, 0]

    def little(file: int, data: Any) -> int:
        if not (most := room.pop(0)):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:most])

    monkeypatch.setattr(os, "write", little)
    await ask(proxy)
    await until_metric(proxy, "mlx_stack_stage_faults_total", 1, stage="capture")
    monkeypatch.undo()
    await ask(proxy)
    again, last = await captured(folder, 2)
    assert again == first and last["outcome"] == "client_error"


async def test_files_are_bounded_and_the_oldest_go(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    capturing["observability"]["capture_max_bytes"] = 10_000
    proxy = await start_proxy(capturing)
    upstream.always(litellm_error(400, "what?"))
    asked = []
    for number in range(40):
        messages = [{"role": "user", "content": f"Question {number}"}]
        asked.append((await ask(proxy, messages=messages)).headers["x-request-id"])
    await proxy.services.capture.close()  # type: ignore[union-attr]
    files = [folder / failure_capture.OLD_FILE, folder / failure_capture.FILE]
    assert sorted(os.listdir(folder)) == sorted(file.name for file in files)
    assert all(0 < file.stat().st_size <= 5_000 for file in files)
    kept = [json.loads(line)["request_id"] for f in files for line in f.read_text().splitlines()]
    assert kept == asked[-len(kept) :], "the newest, in order, none missing"


async def test_a_folder_that_can_not_be_written_breaks_no_reply(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    capturing: Json,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "private").write_text("a file, no folder")
    proxy = await start_proxy(capturing)
    upstream.will(*[calling(BAD), calling(GOOD)] * 2)
    for _ in range(2):
        assert (await ask(proxy, AGENT, tools=TOOLS)).status_code == 200
    await until_metric(proxy, "mlx_stack_stage_faults_total", 2, stage="capture")
    said = [line for line in capfd.readouterr().err.splitlines() if "capture_fault" in line]
    assert len(said) == 1 and "Not a directory" in said[0]


async def test_a_link_is_not_followed(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json, folder: Path, tmp_path: Path
) -> None:
    target = tmp_path / "precious"
    target.write_text("as it was")
    os.makedirs(folder)
    (folder / failure_capture.FILE).symlink_to(target)
    proxy = await start_proxy(capturing)
    upstream.always(litellm_error(400, "what?"))
    assert (await ask(proxy)).status_code == 400
    await until_metric(proxy, "mlx_stack_stage_faults_total", 1, stage="capture")
    assert target.read_text() == "as it was"
