"""The files of `observability.capture_failures`: private, bounded, and no line spoilt."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.telemetry import failure_capture
from tests.server.asking import ask
from tests.server.calling import BAD, GOOD, TOOLS, calling
from tests.server.capturing import captured
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT
from tests.server.polling import until_metric
from tests.support.replies import litellm_error
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import ScriptedServer

Json = dict[str, Any]


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
