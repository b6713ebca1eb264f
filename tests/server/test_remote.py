"""`mlx-stack-proxy status`, `sessions` and `events` against a proxy that runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mlx_stack_proxy.operator.cli import main
from mlx_stack_proxy.operator.remote.events import events_in
from mlx_stack_proxy.state.store import Change
from tests.server.asking import CHAT, ask, body
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT
from tests.support.ports import free_port
from tests.support.proxy_process import ProxyProcess
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer
from tests.support.storing import add_events, commit

GENEROUS = 30  # seconds; what takes longer hangs


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
    assert "fast     ok      0/4     0     -        0      0       0     0" in out
    assert "\x1b" not in out
    address = proxy.url.removeprefix("http://")
    code = await asyncio.to_thread(main, ["status", "--url", address, "--json"])
    out, _ = capsys.readouterr()
    assert code == 0 and json.loads(out)["tiers"]["fast"]["in_flight"] == 0


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
    assert code == 0 and "escalated" in out and "fast > standard, server_error" in out
    code, out, _ = await said(capsys, proxy, "events", "--kind", "loop_break", "--json")
    assert (code, out) == (0, "")


async def test_events_of_a_request(
    capsys: pytest.CaptureFixture[str], start_proxy: StartProxy, upstream: ScriptedServer
) -> None:
    within = "reliability.escalation"
    changes = {f"{within}.chain": ["fast", "standard"], f"{within}.sticky_seconds": 0}
    proxy = await start_proxy(changes)
    ids = []
    for _ in range(2):
        upstream.will(Reply.json({}, status=500), text_stream("Hello"))
        ids.append((await ask(proxy, AGENT)).headers["x-mlx-stack-request-id"])
    _, out, _ = await said(capsys, proxy, "events", "--request", ids[1], "--json")
    events = [json.loads(line) for line in out.splitlines()]
    found = [(one["request_id"], one["kind"]) for one in events]
    assert found == [(ids[1], "escalated"), (ids[1], "recovered")]


LOOP = {"kind": "loop_warning", "session": "ab" * 16, "tier": "fast"}
REPEATED = {"detector": "repetition", "pattern": "e9838d9ec5ad1f0b"}
OPINION = {**REPEATED, "action": "second_opinion", "tool": "look"}
STALLS = {"from": "warning", "to": "critical", "cause": "stalls"}
NOBODYS = {"kind": "pressure_changed", "request_id": "", "session": "", "tier": ""}


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({**LOOP, "detail": {**REPEATED, "action": "warning", "tool": ""}}, "detector=repetition"),
        ({**LOOP, "detail": OPINION}, "detector=repetition action=second_opinion tool=look"),
        ({**NOBODYS, "detail": STALLS}, "pressure_changed   warning > critical, stalls"),
    ],
)
async def test_what_the_kind_says_already_is_not_told_again(
    event: dict[str, Any], told: str, capsys: pytest.CaptureFixture[str], proxy: RunningProxy
) -> None:
    await add_events(proxy.services.store, [{**event, "time": time.time()}])
    _, out, _ = await said(capsys, proxy, "events")
    who = "abababababab " if event["session"] else ""
    assert out.endswith(f"{who}{told}\n")


async def test_events_since(capsys: pytest.CaptureFixture[str], proxy: RunningProxy) -> None:
    store, now = proxy.services.store, time.time()
    common = {"kind": "escalated", "session": "ab" * 16, "tier": "fast"}
    await add_events(store, [{**common, "time": now - ago} for ago in (7200, 60)])
    for given, count in (("3h", 2), ("90m", 1), ("30s", 0), ("1d", 2), ("2001-01-01", 2)):
        _, out, _ = await said(capsys, proxy, "events", "--since", given)
        assert len(out.splitlines()) == count, given
    code, _, err = await said(capsys, proxy, "events", "--since", "yesterday")
    assert code == 1 and "`since`" in err


async def test_a_clients_text_moves_no_cursor_and_begins_no_line(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy, upstream: ScriptedServer
) -> None:
    """A tool's name is the client's; so is the name of a model that passes through."""
    store, evil = proxy.services.store, "look\x1b[2J\n2026-11-22 08:00:00 escalated"
    detail = {"detector": "repetition", "tool": evil}
    common = {"time": time.time(), "tier": evil, "session": "ab" * 16}
    await add_events(store, [{**common, "kind": "loop_warning", "detail": detail}])
    await commit(store, "ab" * 16, Change(turns=1, tier=evil), time.time())
    for words in (["events"], ["sessions"]):
        _, out, _ = await said(capsys, proxy, *words)
        assert "\x1b" not in out and r"look\u001b[2J\u000a2026" in out, words
        assert len(out.splitlines()) == (1 if words == ["events"] else 3)


async def test_events_are_followed_over_a_restart(upstream: ScriptedServer, tmp_path: Path) -> None:
    """None is missing and none comes twice; that the proxy was gone is said, apart from them."""
    changes = {
        "reliability.escalation.chain": ["fast", "standard"],
        "reliability.escalation.sticky_seconds": 0,
        "state": {"backend": "sqlite", "path": str(tmp_path / "state.db")},
    }
    async with ProxyProcess(tmp_path, upstream.url, changes) as proxy:

        async def escalate() -> None:
            upstream.will(Reply.json({}, status=500), text_stream("Hello"))
            async with proxy.client() as client:
                assert (await client.post(CHAT, json=body())).status_code == 200

        await proxy.start()
        await escalate()
        async with command("events", "--follow", "--json", "--config", str(proxy.file)) as follower:
            assert json.loads(await line(follower.stdout))["number"] == 1
            await escalate()
            assert json.loads(await line(follower.stdout))["number"] == 2
            await proxy.end(signal.SIGTERM)
            assert b"waiting for the proxy" in await line(follower.stderr)
            await proxy.start()
            assert b"the proxy is back" in await line(follower.stderr)
            await escalate()
            assert json.loads(await line(follower.stdout))["number"] == 3


@contextlib.asynccontextmanager
async def command(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """`mlx-stack-proxy` with these words, until the block ends."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mlx_stack_proxy", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def line(stream: asyncio.StreamReader | None) -> bytes:
    assert stream is not None
    async with asyncio.timeout(GENEROUS):
        return await stream.readline()


def test_a_line_separator_within_an_event_ends_no_line() -> None:
    pieces = [b'data: {"tool": "a\xe2\x80', b'\xa8b"}\n\n: keepalive\n\n']
    assert list(events_in(httpx.Response(200, content=iter(pieces)))) == [{"tool": "a\u2028b"}]


async def test_no_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert await asyncio.to_thread(main, ["status", "--url", url]) == 1
    assert f"no proxy answers at {url}" in capsys.readouterr().err


async def test_where_a_key_is_needed_it_says_where_that_comes_from(
    capsys: pytest.CaptureFixture[str], start_proxy: StartProxy, tmp_path: Path
) -> None:
    proxy = await start_proxy({"server.admin_key": "secret"})
    code, _, err = await said(capsys, proxy, "status")
    assert code == 1 and "--config" in err
    file = tmp_path / "config.yaml"
    file.write_text("server: {admin_key: secret}")
    assert (await said(capsys, proxy, "status", "--config", str(file)))[0] == 0


async def test_an_address_that_is_none_or_somebody_elses(
    capsys: pytest.CaptureFixture[str], upstream: ScriptedServer
) -> None:
    upstream.routes["GET", "/mlx-stack/status"] = Reply.json({"detail": "Not Found"}, status=404)
    for url, said in (
        ("x://there", "no proxy answers at x://there: "),
        (upstream.url, f"{upstream.url}/mlx-stack/status answers with status 404"),
    ):
        assert await asyncio.to_thread(main, ["status", "--url", url]) == 1
        assert said in capsys.readouterr().err


async def test_all_events_page_by_page(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy
) -> None:
    now = time.time()
    common = {"kind": "escalated", "session": "ab" * 16, "tier": "fast", "detail": {}}
    events = [{**common, "time": now, "request_id": f"req_{n}"} for n in range(2300)]
    await add_events(proxy.services.store, events)
    _, out, err = await said(capsys, proxy, "events", "--json")
    assert len(out.splitlines()) == 50 and "50 of 2300 shown" in err
    for options, count in ((["--all"], 2300), (["--limit", "1500"], 1500)):
        _, out, err = await said(capsys, proxy, "events", "--json", *options)
        numbers = [json.loads(line)["number"] for line in out.splitlines()]
        assert numbers == list(range(2301 - count, 2301))
    assert "1500 of 2300 shown" in err


async def test_report(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy, upstream: ScriptedServer
) -> None:
    upstream.will(text_stream("Hello"))
    await ask(proxy, AGENT)
    code, out, _ = await said(capsys, proxy, "report")
    assert code == 0 and "1 request, all by agent-one" in out
    assert "The reply was right at once." in out
    _, out, _ = await said(capsys, proxy, "report", "--night", "--json")
    assert json.loads(out)["agent"] is None
    _, out, _ = await said(capsys, proxy, "report", "--agent", "nobody", "--markdown")
    assert "\n\n## Requests\n\n- Nobody asked for anything.\n" in out
    code, _, err = await said(capsys, proxy, "report", "--since", "yesterday")
    assert code == 1 and "`since`" in err
