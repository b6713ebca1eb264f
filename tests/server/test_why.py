"""`mlx-stack-proxy why`: what became of a request, also after a restart and without a store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mlx_stack_proxy.operator.cli import main
from tests.faults.spoken import SPOKEN
from tests.server.asking import ask
from tests.server.calling import BAD, GOOD, RULES, TOOLS, calling
from tests.server.conftest import StartProxy
from tests.support.replies import data, litellm_error, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import CLOSE, Reply, ScriptedServer
from tests.tool_validation.calls import parameters, tool

AGENT = {"X-MLX-Stack-Agent": "codex"}
ONE_TIER = {"reliability.escalation.chain": ["fast"], f"{RULES}.max_retries": 1}


async def said(
    capsys: pytest.CaptureFixture[str], proxy: RunningProxy, *words: str
) -> tuple[int, str]:
    capsys.readouterr()
    code = await asyncio.to_thread(main, ["why", *words, "--url", proxy.url])
    out, err = capsys.readouterr()
    return code, " ".join((out or err).split())


async def test_it_works_after_a_restart(
    capsys: pytest.CaptureFixture[str], upstream: ScriptedServer, tmp_path: Path
) -> None:
    kept = {"state.backend": "sqlite", "state.path": str(tmp_path / "state.db"), **ONE_TIER}
    upstream.will(calling(BAD), calling(BAD), text_stream("Well."))
    async with running_proxy(upstream.url, kept) as proxy:
        failed = await ask(proxy, AGENT, tools=TOOLS)
        assert failed.status_code == 422
        well = await ask(proxy, {"X-MLX-Stack-Agent": "other"})
        for words in ((), ("last",), ("--agent", "codex"), (failed.headers["x-request-id"],)):
            code, text = await said(capsys, proxy, *words)
            assert code == 0
            assert text.startswith(failed.headers["x-request-id"])
            assert "codex asked for fast with 1 message and 3 tools (" in text
            assert "fast wrote a tool call that can't be delivered (search: " in text
            assert "query" in text  # the schema's field
            assert "The client got status 422 (tool_validation_failed)" in text
        code, text = await said(capsys, proxy, well.headers["x-request-id"])
        assert code == 0 and "as the model wrote it" in text and "Nothing needs to be done." in text
        code, text = await said(capsys, proxy, "--agent", "other")
        assert code == 1 and "nothing is kept" in text
        assert "of agent 'other' that did not go right at once" in text
    async with running_proxy(upstream.url, kept) as proxy:
        code, text = await said(capsys, proxy, failed.headers["x-request-id"])
        assert code == 0 and "status 422" in text
        code, text = await said(capsys, proxy, well.headers["x-request-id"])
        assert code == 1 and "went right at once some time ago" in text


async def test_a_record_holds_no_text(start_proxy: StartProxy) -> None:
    proxy = await start_proxy(ONE_TIER)
    proxy.upstream.always(litellm_error(500, "the quokka says: wombat"))
    response = await ask(proxy)
    found = await proxy.client.get("/mlx-stack/exchanges/last")
    assert found.json()["request_id"] == response.headers["x-request-id"]
    assert "quokka" not in found.text and "wombat" not in found.text
    assert found.json()["record"]["attempts"][0]["status"] == 500
    kept = await proxy.services.store.record()
    assert kept is not None
    assert kept.id == response.headers["x-request-id"] and b"all_tiers_failed" in kept.body
    assert b"quokka" not in kept.body and b"wombat" not in kept.body


async def test_a_tools_name_is_cut_wherever_it_is_kept(start_proxy: StartProxy) -> None:
    """Neither memory nor the counters' rows grow with it, and a wrong call counts once."""
    proxy = await start_proxy({**ONE_TIER, f"{RULES}.max_retries": 0})
    name = "n" * 150
    proxy.upstream.will(calling(GOOD, name=name), calling(BAD, name=name))
    tools = [tool(name, parameters("query", query="string"))]
    assert (await ask(proxy, tools=tools)).status_code == 200
    assert (await ask(proxy, tools=tools)).status_code == 422
    kept = name[:64]
    for record in proxy.services.records:
        assert record.tools == (kept,)
        assert [attempt.calls for attempt in record.attempts] == [{kept: 1}]
    (*_, row) = (await proxy.services.store.counts(0, 10**9)).values()
    assert (row["calls"], row[f"calls:{kept}"], row[f"invalid_calls:{kept}"]) == (2, 2, 1)
    events = (await proxy.client.get("/mlx-stack/events")).json()["events"]
    assert [e["detail"]["tool"] for e in events if e["kind"] == "tool_call_invalid"] == [kept]


@pytest.mark.parametrize("speaks", SPOKEN)
async def test_the_status_is_the_one_that_the_client_got(
    start_proxy: StartProxy, speaks: str
) -> None:
    """Each dialect has its own for an error, and upstream's refusal becomes one of them, too."""
    proxy = await start_proxy(ONE_TIER)
    chat = {"model": "fast", "messages": [{"role": "user", "content": "Look."}], "tools": TOOLS}
    spoken = SPOKEN[speaks]

    async def statuses(**more: object) -> tuple[int, object]:
        got = await proxy.client.post(spoken.path, json=spoken.asks({**chat, **more}))
        found = await proxy.client.get(f"/mlx-stack/exchanges/{got.headers['x-request-id']}")
        return got.status_code, found.json()["record"]["status"]

    for reply in (calling(BAD), litellm_error(404, "no such model"), litellm_error(422, "no")):
        proxy.upstream.otherwise = reply
        sent, recorded = await statuses()
        assert sent >= 400 and sent == recorded
    proxy.upstream.otherwise = Reply.sse(*(data(one) for one in text_chunks("Words ")[:2]), CLOSE)
    assert await statuses(stream=True) == (200, 200)
