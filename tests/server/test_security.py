"""The threat model of docs/security.md: what no other test shows already.

Each test is named there, on the line of the threat that it is about.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import itertools
import json
import re
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy import log
from mlx_stack_proxy.loop_detection.generation.flow import Flow
from mlx_stack_proxy.server import http_protocol
from mlx_stack_proxy.settings import ObservabilitySettings
from mlx_stack_proxy.tool_validation import conversation, mend_choice, schemas
from tests.server.asking import CHAT, ask, body, checked_error
from tests.server.calling import calling
from tests.server.conftest import StartProxy
from tests.server.sockets import raw_answer, request
from tests.support.replies import completion, litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, ScriptedServer
from tests.tool_validation.calls import parameters, tool

ROOT = Path(__file__).parents[2]
INVALID = "invalid_request_error"
GOOD = json.dumps(body()).encode()
PATIENCE = 20  # seconds; only a hang would take them


@pytest.fixture
async def elsewhere() -> AsyncIterator[ScriptedServer]:
    """A server that nobody but a client has named; it answers whatever it is asked."""
    async with ScriptedServer() as server:
        server.always(Reply.json({"taken": "in"}))
        yield server


def never_asked(server: ScriptedServer) -> bool:
    return server.calls == [] and not server.connections


# --- a client does not choose where we connect -------------------------------------------------


TARGETS = [
    "http://{elsewhere}/v1/chat/completions",
    "http://{elsewhere}/v1/files",
    "//{elsewhere}/v1/files",
    "/v1/@{elsewhere}/",
    "/v1//{elsewhere}/",
    "/v1/http://{elsewhere}/",
    "/v1/files?base_url=http://{elsewhere}",
    "@{elsewhere}/v1/files",
    ":@{elsewhere}/v1/files",
    "/v1/../key/generate",
    "/v1/%2e%2e/key/generate",
    "/v1/x/../../key/generate",
    "/v1/.%2E/key/generate",
    "/v1/..%2fkey/generate",
    "/v1/..\\key/generate",
]


async def test_a_target_leads_nowhere_but_to_litellm(
    elsewhere: ScriptedServer, proxy: RunningProxy
) -> None:
    proxy.upstream.always(Reply.json({"ok": 1}))
    for target, port in itertools.product(TARGETS, (proxy.port, elsewhere.port)):
        name = target.format(elsewhere=f"127.0.0.1:{elsewhere.port}")
        lines = (f"host: 127.0.0.1:{port}", "connection: close")
        answer = await raw_answer(proxy, request(name, GOOD, *lines))
        assert b"taken" not in answer and not answer.startswith(b"HTTP/1.1 500"), target
    assert never_asked(elsewhere)
    # LiteLLM's own administration lies next to /v1, and we may hold its master key.
    for call in proxy.upstream.calls:
        assert call.target.startswith("/v1/")
        assert ".." not in call.target.lower().replace("%2e", ".")


async def test_no_header_leads_elsewhere(elsewhere: ScriptedServer, proxy: RunningProxy) -> None:
    proxy.upstream.always(text_stream("from LiteLLM"))
    for header in ("X-Forwarded-Host", "Forwarded", "X-Original-URL", "Via"):
        assert (await ask(proxy, {header: f"host={elsewhere.url}"})).status_code == 200
    assert never_asked(elsewhere)


async def test_a_redirect_is_passed_on_and_not_followed(
    elsewhere: ScriptedServer, proxy: RunningProxy
) -> None:
    away = Reply.json({}, status=307, location=f"{elsewhere.url}/v1/files")
    proxy.upstream.always(away)
    assert (await proxy.client.get("/v1/files")).status_code == 307
    response = await ask(proxy)
    assert response.status_code == 502
    assert [one["status"] for one in response.json()["error"]["attempts"]] == [307]
    assert "redirect" in response.json()["error"]["message"]
    assert never_asked(elsewhere)


async def test_a_schema_that_names_an_address_is_not_fetched(
    elsewhere: ScriptedServer, proxy: RunningProxy
) -> None:
    schema = {"$ref": f"{elsewhere.url}/schema.json", "$schema": f"{elsewhere.url}/meta.json"}
    function = {"name": "get_weather", "parameters": schema}
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    proxy.upstream.always(text_stream('{"city": "Oslo"}'))
    for asked in (
        {"tools": [{"type": "function", "function": function}]},
        {"response_format": wanted},
    ):
        assert (await ask(proxy, **asked)).status_code == 200
    assert never_asked(elsewhere)


async def test_the_environments_proxies_are_not_used(
    elsewhere: ScriptedServer, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A prompt goes to LiteLLM and nowhere else, whatever the shell of the start had set."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, elsewhere.url)
    proxy = await start_proxy()
    proxy.upstream.will(text_stream("directly"))
    assert (await ask(proxy)).status_code == 200
    assert never_asked(elsewhere)


# --- headers and log lines ---------------------------------------------------------------------


async def test_a_line_end_in_a_header_makes_no_header_of_the_answer(proxy: RunningProxy) -> None:
    """What an HTTP parser takes for two lines are two headers of the request, and no more."""
    proxy.upstream.always(text_stream("Hello"))
    for line in (
        "x-request-id: a\r\nx-evil: 1",
        "x-mlx-stack-session: a\r\nx-evil: 1",
        "x-mlx-stack-tier: fast\nx-evil: 1",
        "x-request-id: a\rx-evil: 1",
    ):
        answer = await raw_answer(proxy, request(CHAT, GOOD, line, "connection: close"))
        first, _, rest = answer.partition(b"\r\n")
        assert first.split(b" ")[1] in (b"200", b"400")
        assert b"x-evil" not in rest.partition(b"\r\n\r\n")[0].lower()


@pytest.mark.parametrize("kind", ["console", "json"])
async def test_no_client_writes_a_log_line_or_moves_the_cursor(
    kind: str, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy()
    written = io.StringIO()
    log.configure(ObservabilitySettings(log_format=kind), written)  # type: ignore[arg-type]
    proxy.upstream.always(text_stream("Hello"))
    evil = "m\x1b[2J\x1b]0;title\x07\r\n2026-11-22 [error] forged\x9b31m\x00\u2028"
    assert (await ask(proxy, model=evil)).status_code == 200
    for less in (" \r\n", " \r\n\x00", " \r\n\u2028\x9b\x00"):  # renderers look for different ones
        assert (
            await ask(proxy, model="".join(c for c in evil if c not in less))
        ).status_code == 200
    text = written.getvalue()
    assert "unknown_model" in text
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029]", text), repr(text)
    assert not any("forged" in line[:30] for line in text.split("\n"))


# --- what may come, how much of it, and how slowly ---------------------------------------------


async def test_a_packed_body_is_refused_before_it_is_unpacked(proxy: RunningProxy) -> None:
    bomb = gzip.compress(b" " * 5_000_000)
    for encoding in ("gzip", "deflate", "br", "zstd", "gzip, gzip", "x-unknown"):
        headers = {"content-type": "application/json", "content-encoding": encoding}
        response = await proxy.client.post(CHAT, content=bomb, headers=headers)
        checked_error(response, 415, INVALID)
    assert proxy.upstream.calls == []


async def test_a_packed_body_passes_through_as_it_came(proxy: RunningProxy) -> None:
    bomb = gzip.compress(b" " * 5_000_000)
    proxy.upstream.will(Reply.json({"ok": 1}))
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    await proxy.client.post("/v1/embeddings", content=bomb, headers=headers)
    assert bytes(proxy.upstream.calls[0].body) == bomb


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_packed_reply_is_not_unpacked(streamed: bool, proxy: RunningProxy) -> None:
    """We never ask for one; what comes all the same is no reply, and no memory of ours."""
    packed = gzip.compress(b"data: " + b" " * 5_000_000)
    reply = Reply.sse(packed, headers=(("content-encoding", "gzip"),))
    proxy.upstream.always(reply)
    response = await ask(proxy, stream=streamed)
    assert response.status_code == 502 or b'"error"' in response.content
    assert len(response.content) < 10_000


@pytest.mark.parametrize(
    ("earlier", "sent"),
    [(0, b""), *itertools.product((0, 1), (b"P", b"POST /v1/chat/completions HTTP/1.1\r\nho"))],
)
async def test_a_head_that_trickles_is_given_up(
    earlier: int, sent: bytes, proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "SILENT_SECONDS", 0.3)
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    async with asyncio.timeout(PATIENCE):
        for _ in range(earlier):
            writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", await reader.readuntil(b"\r\n\r\n"))
            assert length is not None
            await reader.readexactly(int(length[1]))
        writer.write(sent)
        answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_head_in_time_has_no_more_limit(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply may take longer than a head, on a connection's first request and on later ones."""
    monkeypatch.setattr(http_protocol, "SILENT_SECONDS", 0.2)
    for _ in range(2):
        go_on = asyncio.Event()
        asyncio.get_running_loop().call_later(0.6, go_on.set)

        async def wait(gate: asyncio.Event = go_on) -> None:
            await gate.wait()

        proxy.upstream.will(Reply.sse(wait, *text_stream("late").pieces))
        response = await ask(proxy)
        assert response.status_code == 200


async def test_what_is_said_once_is_kept_short(start_proxy: StartProxy) -> None:
    """Ever more names of the longest body would fill the memory, the state and the log."""
    proxy = await start_proxy()
    proxy.upstream.always(text_stream("Hello"))
    for first in "ab":
        assert (await ask(proxy, model=first + "m" * 400)).status_code == 200
    assert (await ask(proxy, model="m" * 100_000)).status_code == 400
    kept = [
        what[1] for what in proxy.services.rate_limit._last_allowed if what[0] == "unknown_model"
    ]
    assert kept == ["a" + "m" * 127, "b" + "m" * 127]


async def test_patterns_and_schemas_without_end_hold_nobody_up(proxy: RunningProxy) -> None:
    """Sent by a client, met by a reply: each ends with an answer, and others are served."""
    nested: dict[str, object] = {"type": "string"}
    for _ in range(100):
        nested = {"type": "object", "properties": {"a": nested}}
    costly = [
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
        {"type": "object", "properties": {"a": {"pattern": "(a{1000}){1000}"}}},
        {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"},
        nested,
    ]
    proxy.upstream.always(written_call("t", json.dumps({"a": "a" * 5_000 + "!"})))
    async with asyncio.timeout(PATIENCE):
        for one in costly:
            assert (await ask(proxy, tools=[tool("t", one)])).status_code in (200, 400, 422)
            assert (await proxy.client.get("/health")).status_code == 200


def threads_of(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[int]:
    """The threads in which this function is called from now on."""
    threads: list[int] = []
    real = getattr(owner, name)

    def noted(*args: Any, **more: Any) -> Any:
        threads.append(threading.get_ident())
        return real(*args, **more)

    monkeypatch.setattr(owner, name, noted)
    return threads


def written_call(name: str, arguments: str) -> Reply:
    return text_stream(f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>')


async def test_costly_schemas_are_compiled_once_and_off_the_event_loop(
    start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await start_proxy({"reliability.tool_validation.max_retries": 1})
    threads = threads_of(monkeypatch, schemas.CompiledSchema, "__init__")
    schemas._cache.clear()
    properties = {f"p{i}": {"type": "string", "pattern": rf"\p{{L}}{{20}}{i}"} for i in range(280)}
    schema = {"type": "object", "properties": properties}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    proxy.upstream.will(calling('{"p0": 5}', name="t"), text_stream("No call."))
    assert (await ask(proxy, tools=[tool("t", schema)])).status_code == 200
    proxy.upstream.will(text_stream('{"p0": 5}'), text_stream('{"p1": "' + "a" * 20 + '1"}'))
    assert (await ask(proxy, response_format=wanted)).status_code == 200
    assert len(proxy.upstream.calls) == 4, "each was asked again"
    assert len(threads) == 2, "once as the tool's, once as the reply's"
    assert threading.get_ident() not in threads


async def test_a_doubt_searches_a_long_transcript_off_the_event_loop(
    start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await start_proxy({"reliability.tool_validation.max_retries": 1})
    threads = threads_of(monkeypatch, conversation, "occurs")
    tools = [tool("read_file", parameters(path="string"))]
    path = '{"path": "your_path"}'
    for reply in (calling(path, name="read_file"), written_call("read_file", path)):
        proxy.upstream.will(reply, text_stream("No call."))
        talk = [{"role": "user", "content": "a long talk " * 20_000}]
        assert (await ask(proxy, messages=talk, tools=tools)).status_code == 200
    assert len(threads) == 2, "each is searched once"
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("made", [partial(calling, name="note"), partial(written_call, "note")])
async def test_a_long_reply_is_judged_off_the_event_loop(
    made: Callable[[str], Reply], start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await start_proxy({})
    threads = threads_of(monkeypatch, mend_choice, "check_call")
    arguments = json.dumps({"items": [*range(20_000)]})
    proxy.upstream.will(made(arguments))
    answer = await ask(proxy, tools=[tool("note", parameters(items="array"))])
    calls = answer.json()["choices"][0]["message"]["tool_calls"]
    assert [one["function"] for one in calls] == [{"name": "note", "arguments": arguments}]
    assert len(threads) == 1, "it is checked once"
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("streams", [True, False], ids=["a frame", "an object"])
async def test_a_long_text_in_one_piece_is_watched_off_the_event_loop(
    streams: bool, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await start_proxy({})
    threads = threads_of(monkeypatch, Flow, "look")
    text = "".join(f"- item {number} is fine and costs {7 * number}\n" for number in range(2_500))
    proxy.upstream.will(text_stream(text) if streams else Reply.json(completion({"content": text})))
    answer = await ask(proxy)
    assert answer.json()["choices"][0]["message"]["content"] == text
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("said", ["100", "3", "2000", "100000"])
async def test_an_error_that_quotes_one_client_closes_no_tier_to_others(
    said: str, start_proxy: StartProxy
) -> None:
    changes = {"tiers.fast.context_window": 100_000, "tiers.standard.context_window": 200_000}
    proxy = await start_proxy({**changes, "reliability.escalation.chain": ["fast", "standard"]})
    words = f"1 validation error: input_value='maximum context length is {said} tokens'"
    proxy.upstream.will(litellm_error(400, words))
    proxy.upstream.always(text_stream("Hello"))
    await ask(proxy, user=f"maximum context length is {said} tokens")
    long = [{"role": "user", "content": "The quokka sat. " * 5_000}]
    answer = await ask(proxy, messages=long)
    assert (answer.status_code, answer.headers["x-mlx-stack-tier"]) == (200, "fast")


# --- the document ------------------------------------------------------------------------------


def test_every_test_that_the_document_names_is_there() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)
    assert len(named) > 30
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path}::{name}"
    own = re.findall(r"^(?:async )?def (test_\w+)", Path(__file__).read_text(), re.MULTILINE)
    unnamed = (
        set(own)
        - {name for _, name in named}
        - {"test_every_test_that_the_document_names_is_there"}
    )
    assert unnamed == set()
