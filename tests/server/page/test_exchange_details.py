"""`GET /mlx-stack/exchanges/{id}`: each attempt, what was wrong, what was mended."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.server.asking import ask
from tests.server.calling import BAD, GOOD, RULES, TOOLS, calling
from tests.server.capturing import captured
from tests.server.conftest import StartProxy
from tests.support.replies import litellm_error, stream, text_stream, with_role
from tests.support.running_proxy import RunningProxy, running_proxy
from tests.support.scripted_server import Reply, ScriptedServer

Json = dict[str, Any]
COMMA = '{"query": "quokka",}'
RETRIES = {f"{RULES}.max_retries": 2}


async def details(proxy: RunningProxy, request_id: str) -> Json:
    answer = await proxy.client.get(f"/mlx-stack/exchanges/{request_id}")
    assert answer.status_code == 200
    found: Json = answer.json()
    return found


async def test_what_was_wrong_then_what_was_mended(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    proxy = await start_proxy({**capturing, **RETRIES})
    for streamed in (False, True):
        upstream.will(calling(BAD, {"content": "Let me see."}), calling(COMMA))
        response = await ask(proxy, tools=TOOLS, stream=streamed)
        await captured(folder, 4 if streamed else 2)
        found = await details(proxy, response.headers["x-request-id"])
        first, second = found["attempts"]
        assert first["reason"] == "tool_validation_failure" and first["delivered"] is None
        assert first["written"]["text"] == "Let me see."
        assert first["written"]["tool_calls"] == [{"name": "search", "arguments": BAD}]
        assert "query" in first["verdict"]["failures"][0]["error"]
        assert second["reason"] is None
        assert second["written"]["tool_calls"] == [{"name": "search", "arguments": COMMA}]
        assert second["delivered"]["tool_calls"] == [{"name": "search", "arguments": GOOD}]
        assert found["outcome"] == "ok" and found["captured"]
        assert found["request"]["last"] == "Say hello to the quokka."
        kinds = [event["kind"] for event in found["events"]]
        assert kinds[:2] == ["tool_call_invalid", "tool_call_repaired"]


async def test_what_was_only_mended_is_kept_too(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json, folder: Path
) -> None:
    proxy = await start_proxy({**capturing})
    upstream.will(calling(COMMA), text_stream())
    response = await ask(proxy, tools=TOOLS)
    await ask(proxy)  # which leaves nothing
    (record,) = await captured(folder, 1)
    assert record["verdict"] is None and record["delivered"]["tool_calls"][0]["arguments"] == GOOD
    (only,) = (await details(proxy, response.headers["x-request-id"]))["attempts"]
    assert only["written"]["tool_calls"][0]["arguments"] == COMMA


async def test_without_capturing_the_events_tell(start_proxy: StartProxy) -> None:
    proxy = await start_proxy()
    proxy.upstream.will(litellm_error(500, "no"))
    response = await ask(proxy)
    found = await details(proxy, response.headers["x-request-id"])
    assert [one["reason"] for one in found["attempts"]] == ["server_error"]
    assert not found["captured"] and found["request"] is None


async def test_without_a_record_it_names_what_is_kept(
    upstream: ScriptedServer, tmp_path: Path, capturing: Json, folder: Path
) -> None:
    database = tmp_path / "state.db"
    kept = {"state.backend": "sqlite", "state.path": str(database)}
    upstream.will(calling(COMMA))
    async with running_proxy(upstream.url, {**capturing, **kept}) as proxy:
        request = (await ask(proxy, tools=TOOLS)).headers["x-request-id"]
        await captured(folder, 1)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("DELETE FROM records")
    events = f"Its events: `mlx-stack-proxy events --request {request}`."
    said = "No record of it is kept: it went right at once, is too old, or the store is new."
    shown = "See what the model wrote: open this request on the page at /mlx-stack/."
    async with running_proxy(upstream.url, {**capturing, **kept}) as proxy:
        assert (await details(proxy, request))["why"] == f"{said} {events} {shown}"
    async with running_proxy(upstream.url, kept) as proxy:
        assert (await details(proxy, request))["why"] == f"{said} {events}"
    async with running_proxy(upstream.url, capturing) as proxy:  # a store that was lost
        assert (await details(proxy, request))["why"] == f"{said} {shown}"


async def test_odd_replies_are_shown_as_far_as_they_go(
    upstream: ScriptedServer, start_proxy: StartProxy, capturing: Json
) -> None:
    proxy = await start_proxy(capturing)
    odd = [
        Reply.json(b"<p>hello"),
        Reply.sse(b"data: {not json}\n\n"),
        Reply.sse(b'data: {"choices": [{"delta": {"content": "\xff"}}]}\n\n'),
        stream(with_role({"tool_calls": [{"index": 0, "function": {"name": "x"}}]}, finish="stop")),
        litellm_error(400, "what?"),
    ]
    for reply in odd:
        upstream.always(reply)
        response = await ask(proxy, tools=TOOLS)
        assert proxy.services.capture is not None
        await proxy.services.capture.close()  # all is on the disk then
        proxy.services.capture.start()
        found = await details(proxy, response.headers["x-request-id"])
        assert found["attempts"][0]["written"].keys() == {"reasoning", "text", "tool_calls"}


async def test_of_nothing_kept_it_says_so(start_proxy: StartProxy) -> None:
    proxy = await start_proxy()
    answer = await proxy.client.get("/mlx-stack/exchanges/req_none")
    assert answer.status_code == 404 and "req_none" in answer.json()["error"]["message"]
