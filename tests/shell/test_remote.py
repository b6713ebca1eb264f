"""`mlx-stack-proxy status`, `sessions` and `events` against a proxy that runs."""

from __future__ import annotations

import asyncio
import json

import pytest

from app.cli import main
from tests.shell.asking import ask
from tests.shell.conftest import StartProxy
from tests.support.ports import free_port
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer

AGENT = {"X-MLX-Stack-Session": "agent-one"}


async def said(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy, *words: str
) -> tuple[int, str, str]:
    """The command's exit code, and what it printed."""
    capsys.readouterr()
    code = await asyncio.to_thread(main, [*words, "--url", proxy.url])
    out, err = capsys.readouterr()
    return code, out, "\n".join(line for line in err.splitlines() if not line.startswith("{"))


async def test_status(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy, upstream: ScriptedServer
) -> None:
    code, out, _ = await said(capsys, proxy, "status")
    assert code == 0
    assert "fast      fast      0          0        ok" in out
    code, out, _ = await said(capsys, proxy, "status", "--json")
    assert json.loads(out)["tiers"]["fast"]["in_flight"] == 0


async def test_sessions_shown_and_reset(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy, upstream: ScriptedServer
) -> None:
    upstream.always(lambda _: text_stream("Hello"))
    header = (await ask(proxy, AGENT)).headers["x-mlx-stack-session"]
    short = header.partition(";")[2]
    code, out, _ = await said(capsys, proxy, "sessions")
    assert code == 0 and short in out and out.rstrip().endswith("1 of 1")
    code, out, _ = await said(capsys, proxy, "sessions", short)
    assert json.loads(out)["used"] == 13
    code, out, _ = await said(capsys, proxy, "sessions", "agent-one", "--delete")
    assert code == 0 and json.loads(out)["reset"]
    code, out, err = await said(capsys, proxy, "sessions", "agent-one")
    assert (code, out) == (1, "") and "there is no session" in err


async def test_events(
    capsys: pytest.CaptureFixture[str], start_proxy: StartProxy, upstream: ScriptedServer
) -> None:
    proxy = await start_proxy({"reliability.escalation.chain": ["fast", "standard"]})
    upstream.will(Reply.json({}, status=500), text_stream("Hello"))
    assert (await ask(proxy, AGENT)).status_code == 200
    code, out, _ = await said(capsys, proxy, "events")
    assert code == 0 and "escalated" in out and "from=fast to=standard reason=server_error" in out
    code, out, _ = await said(capsys, proxy, "events", "--kind", "loop_break", "--json")
    assert (code, out) == (0, "")


async def test_no_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert await asyncio.to_thread(main, ["status", "--url", url]) == 1
    assert f"no proxy answers at {url}" in capsys.readouterr().err
