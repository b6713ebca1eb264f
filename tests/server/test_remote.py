"""`mlx-stack-proxy status`, `sessions` and `events` against a proxy that runs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from mlx_stack_proxy.operator.cli import main
from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, session
from tests.support.ports import free_port
from tests.support.replies import text_stream
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import Reply, ScriptedServer

TWO_TIERS = {
    "reliability.escalation.chain": ["fast", "standard"],
    "reliability.escalation.sticky_seconds": 0,
}


async def said(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy, *words: str
) -> tuple[int, str, str]:
    """The command's exit code, and what it printed."""
    capsys.readouterr()
    code = await asyncio.to_thread(main, [*words, "--url", proxy.url])
    out, err = capsys.readouterr()
    return code, out, "\n".join(line for line in err.splitlines() if not line.startswith("{"))


async def test_status(capsys: pytest.CaptureFixture[str], proxy: RunningProxy) -> None:
    code, out, _ = await said(capsys, proxy, "status")
    assert code == 0
    assert "fast     ok      0/4     0     -        0      0       0     0" in out
    assert "\x1b" not in out
    address = proxy.url.removeprefix("http://")
    code = await asyncio.to_thread(main, ["status", "--url", address, "--json"])
    out, _ = capsys.readouterr()
    assert code == 0 and json.loads(out)["tiers"]["fast"]["in_flight"] == 0


async def test_sessions_shown_and_reset(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy
) -> None:
    proxy.upstream.always(lambda _: text_stream("Hello"))
    header = (await ask(proxy, AGENT)).headers["x-mlx-stack-session"]
    short = header.partition(";")[2]
    code, out, _ = await said(capsys, proxy, "sessions")
    assert code == 0 and short in out and out.rstrip().endswith("1 of 1")
    assert "agent-one" in out and "req_" in out
    code, out, _ = await said(capsys, proxy, "sessions", "--agent", "agent-one")
    assert code == 0 and short in out and out.rstrip().endswith("1 of 1")
    code, out, _ = await said(capsys, proxy, "sessions", "--agent", "somebody-else")
    assert code == 0 and out.rstrip().endswith("0 of 0")
    code, out, _ = await said(capsys, proxy, "sessions", short)
    assert json.loads(out)["used"] == 13
    code, out, _ = await said(capsys, proxy, "sessions", "agent-one", "--delete")
    assert code == 0 and json.loads(out)["reset"]
    code, out, err = await said(capsys, proxy, "sessions", "agent-one")
    assert (code, out) == (1, "") and "there is no session" in err


async def test_after_a_restart_the_sessions_of_an_agent_are_known(
    upstream: ScriptedServer, tmp_path: Path
) -> None:
    upstream.always(lambda _: text_stream("Hello"))
    state = {"state.backend": "sqlite", "state.path": str(tmp_path / "state.db")}
    async with running_proxy(upstream.url, state) as proxy:
        for number in range(3):
            last = await ask(proxy, {**session(number), "X-MLX-Stack-Agent": "agent-one"})
        await ask(proxy, {**session(3), "X-MLX-Stack-Agent": "agent-two"})
    async with running_proxy(upstream.url, state) as again:
        query = {"agent": "agent-one", "limit": "2"}
        page = (await again.client.get("/mlx-stack/sessions", params=query)).json()
    assert (page["total"], len(page["sessions"])) == (3, 2)
    newest = page["sessions"][0]
    assert newest["agent"] == "agent-one"
    assert newest["request_id"] == last.headers["x-request-id"]


@pytest.mark.specification(154)
async def test_all_sessions_reset(capsys: pytest.CaptureFixture[str], proxy: RunningProxy) -> None:
    proxy.upstream.always(lambda _: text_stream("Hello"))
    for name in ("one", "two", "three"):
        await ask(proxy, {"X-MLX-Stack-Session": name})
    code, out, _ = await said(capsys, proxy, "sessions", "--delete", "--all")
    assert (code, json.loads(out)) == (0, {"sessions": 3, "reset": True})
    code, out, _ = await said(capsys, proxy, "sessions")
    assert code == 0 and out.rstrip().endswith("0 of 0")
    for wrong in ("--delete", "--all"):
        code, _, err = await said(capsys, proxy, "sessions", wrong)
        assert code == 1 and "--delete" in err


async def test_events(capsys: pytest.CaptureFixture[str], start_proxy: StartProxy) -> None:
    """How they are shown: tests/operator/remote/test_events.py."""
    proxy = await start_proxy(TWO_TIERS)
    ids = []
    for _ in range(2):
        proxy.upstream.will(Reply.json({}, status=500), text_stream("Hello"))
        ids.append((await ask(proxy, AGENT)).headers["x-mlx-stack-request-id"])
    code, out, err = await said(capsys, proxy, "events", "--limit", "2")
    assert code == 0 and "fast > standard, server_error" in out
    assert "2 of 4 shown" in err
    _, out, _ = await said(capsys, proxy, "events", "--request", ids[1], "--json", "--all")
    found = [(one["request_id"], one["kind"]) for one in map(json.loads, out.splitlines())]
    assert found == [(ids[1], "escalated"), (ids[1], "recovered")]
    for options, count in ((["--since", "30m"], 4), (["--kind", "loop_break"], 0)):
        _, out, _ = await said(capsys, proxy, "events", *options)
        assert len(out.splitlines()) == count
    _, out, _ = await said(capsys, proxy, "events", "--agent", "agent-one")
    assert len(out.splitlines()) == 4 and f"agent-one {ids[0]}" in out
    _, out, _ = await said(capsys, proxy, "events", "--agent", "somebody-else")
    assert out == ""
    code, _, err = await said(capsys, proxy, "events", "--since", "yesterday")
    assert code == 1 and "`since`" in err


async def test_agents(capsys: pytest.CaptureFixture[str], start_proxy: StartProxy) -> None:
    """What the running proxy says, in the shape that the command takes."""
    proxy = await start_proxy({"server.api_keys": ["*"], "tiers.fast.context_window": 50_000})
    code, out, err = await said(capsys, proxy, "agents", "claude-code")
    assert code == 0 and f"export ANTHROPIC_BASE_URL={proxy.url}\n" in out
    assert "# Windows in tokens: auto 50000, fast 50000." in err


@pytest.mark.parametrize("word", ["events", "report", "sessions", "status"])
@pytest.mark.parametrize(
    ("waits", "first"),
    [
        (
            (["tiers: a", "x"], []),
            "configuration refused; the old one stays in force: tiers: a, and 1 more",
        ),
        (([], ["server.port"]), "restart needed for: server.port"),
    ],
)
async def test_what_waits_in_the_configuration_is_said_first(
    word: str,
    waits: tuple[list[str], list[str]],
    first: str,
    capsys: pytest.CaptureFixture[str],
    proxy: RunningProxy,
) -> None:
    life = proxy.services.life
    life.bad_settings, life.restart_due = waits
    code, out, err = await said(capsys, proxy, word)
    assert code == 0 and (out if word == "status" else err).startswith(first)


async def test_where_a_key_is_needed_it_says_where_that_comes_from(
    capsys: pytest.CaptureFixture[str], start_proxy: StartProxy, tmp_path: Path
) -> None:
    proxy = await start_proxy({"server.admin_key": "secret"})
    code, _, err = await said(capsys, proxy, "status")
    assert code == 1 and "--config" in err
    file = tmp_path / "config.yaml"
    file.write_text("server: {admin_key: secret}")
    assert (await said(capsys, proxy, "status", "--config", str(file)))[0] == 0


async def test_an_address_where_no_proxy_is(
    capsys: pytest.CaptureFixture[str], upstream: ScriptedServer
) -> None:
    upstream.routes["GET", "/mlx-stack/status"] = Reply.json({"detail": "Not Found"}, status=404)
    nobody = f"http://127.0.0.1:{free_port()}"
    for url, said in (
        (nobody, f"no proxy answers at {nobody}: Connection refused; "),
        ("x://there", "no proxy answers at x://there: "),
        (upstream.url, f"{upstream.url}/mlx-stack/status answers with status 404"),
    ):
        assert await asyncio.to_thread(main, ["status", "--url", url]) == 1
        assert said in capsys.readouterr().err


async def test_report(capsys: pytest.CaptureFixture[str], proxy: RunningProxy) -> None:
    proxy.upstream.will(text_stream("Hello"))
    await ask(proxy, AGENT)
    _, out, _ = await said(capsys, proxy, "status")
    assert "1 session, memory" in out
    code, out, _ = await said(capsys, proxy, "report")
    assert code == 0 and "1 request, all by agent-one" in out
    assert "The reply was right at once." in out
    _, out, _ = await said(capsys, proxy, "report", "--night", "--json")
    assert json.loads(out)["agent"] is None
    _, out, _ = await said(capsys, proxy, "report", "--agent", "nobody", "--markdown")
    assert "\n\n## Requests\n\n- There were no requests.\n" in out
    code, _, err = await said(capsys, proxy, "report", "--since", "yesterday")
    assert code == 1 and "`since`" in err
