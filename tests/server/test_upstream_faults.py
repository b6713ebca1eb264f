"""What an upstream can do wrong, and what a client then gets: an error of ours, never a success."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.asking import (
    KEEP_ALIVE,
    WITH_USAGE,
    ask,
    checked_error,
    checked_error_body,
    payloads,
    without_notes,
)
from tests.server.conftest import StartProxy
from tests.support import replies
from tests.support.ports import free_port
from tests.support.replies import (
    DONE,
    END,
    ROLE,
    TEXT,
    USAGE,
    data,
    litellm_error,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import (
    CLOSE,
    SILENCE,
    Reply,
    ScriptedServer,
)

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_ERROR = data({"error": {"message": "Connection error", "type": None, "code": "500"}})
both = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def asked(streamed: bool) -> dict[str, Any]:
    return dict(WITH_USAGE) if streamed else {}


def check_whole(response: httpx.Response, streamed: bool) -> None:
    assert response.status_code == 200
    if streamed:
        assert without_notes(response.content) == ROLE + TEXT + END + DONE
    else:
        assert response.json()["choices"][0]["message"]["content"] == "Half an answer"


# More of them: tests/faults/catalogue.py, which test_escalation.py plays.
BEFORE_CONTENT: dict[str, Reply] = {
    "closed within the headers": Reply.raw(b"HTTP/1.1 200 OK\r\ncontent-ty", CLOSE),
    "no HTTP at all": Reply.raw(b"\x16\x03\x01 220 smtp ready\r\n\r\n", CLOSE),
    "closed after headers": Reply.sse(CLOSE),
    "an empty stream": Reply.sse(),
    "only comments": Reply.sse(b": keepalive 1/9\n\n", CLOSE),
    "half a chunk": Reply.sse(ROLE, b'data: {"id": "x", "choi', CLOSE),
    "half a transfer chunk": Reply.raw(HEAD, b"ff\r\ndata: {", CLOSE),
    "a broken transfer chunk": Reply.raw(HEAD, b"zz\r\ndata: {}\r\n", CLOSE),
    "an event that is not JSON": Reply.sse(ROLE, b"data: oops\n\n", DONE),
    "an event that is an array": Reply.sse(ROLE, b"data: [1]\n\n", DONE),
    "an error event that is a string": Reply.sse(data({"error": "out of memory"}), DONE),
    "a JSON array, 200": Reply.json(b"[]"),
    "no choices, 200": Reply.json({"id": "x", "object": "chat.completion", "choices": []}),
    "a redirect": Reply(302, (("location", "http://127.0.0.1:1/"),)),
}


@both
@pytest.mark.parametrize("name", BEFORE_CONTENT)
async def test_failures_before_any_content_are_an_error_response(
    name: str, streamed: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.always(BEFORE_CONTENT[name])
    response = await ask(proxy, **asked(streamed))
    error = checked_error(response, 502, "all_tiers_failed")
    assert len(error["attempts"]) == len(upstream.calls)
    for attempt in error["attempts"]:
        assert set(attempt) == {"tier", "reason", "status", "seconds"}
        assert attempt["tier"] == "fast"
    # And the next one is served: no connection is left in a bad state.
    upstream.always(replies.text_stream("Well again."))
    assert (await ask(proxy)).status_code == 200


@both
async def test_a_refused_connection(streamed: bool, start_proxy: StartProxy) -> None:
    proxy = await start_proxy(url=f"http://127.0.0.1:{free_port()}")
    error = checked_error(await ask(proxy, **asked(streamed)), 503, "upstream_unavailable")
    assert [attempt["tier"] for attempt in error["attempts"]] == ["fast"]


AFTER_CONTENT: dict[str, tuple[Any, ...]] = {
    "ended well, no finish, no DONE": (),
    "half a chunk": (b'data: {"id": "x", "choi', CLOSE),
    "half a chunk, ended well": (b'data: {"id": "x", "choi',),
    "not JSON": (b"data: oops\n\n", DONE),
    "an error event, then DONE": (STREAM_ERROR, DONE),
    "an error and nothing more": (STREAM_ERROR, SILENCE),
}


@pytest.mark.parametrize("name", AFTER_CONTENT)
async def test_a_stream_that_fails_after_text_ends_with_an_error_event(
    name: str, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(Reply.sse(ROLE, TEXT, *AFTER_CONTENT[name]))
    response = await ask(proxy, **WITH_USAGE)
    assert response.status_code == 200
    stream = without_notes(response.content)
    assert stream.startswith(ROLE + TEXT)
    *before, error, done = payloads(stream)
    assert done == "[DONE]"
    assert checked_error_body(error, "all_tiers_failed")["attempts"]
    assert not any(choice["finish_reason"] for one in before for choice in one["choices"])


@both
async def test_a_whole_reply_without_done_is_whole(
    streamed: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """Every choice has its finish_reason; only the last line is missing. mlx-lm ends by EOF."""
    usage = data(replies.usage_chunk())
    upstream.will(Reply.sse(ROLE, TEXT, END, usage))
    response = await ask(proxy, **asked(streamed))
    assert response.status_code == 200
    if streamed:
        assert without_notes(response.content) == ROLE + TEXT + END + usage + DONE
    else:
        assert response.json()["choices"][0]["message"]["content"] == "Half an answer"
        assert response.json()["usage"] == USAGE


@both
async def test_a_finished_reply_whose_connection_breaks_is_whole(
    streamed: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.will(Reply.sse(ROLE, TEXT, END, CLOSE))
    response = await ask(proxy, **asked(streamed))
    check_whole(response, streamed)
    assert len(upstream.calls) == 1


@both
async def test_what_is_the_clients_fault_passes_as_it_came(
    streamed: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    reply = litellm_error(400, "max_tokens is too large: 99", "invalid_request_error")
    upstream.always(reply.with_headers(("x-litellm-call-id", "c-1")))
    response = await ask(proxy, **asked(streamed))
    assert response.status_code == reply.status
    assert response.content == reply.pieces[0]
    assert response.headers["x-litellm-call-id"] == "c-1"
    assert response.headers["x-should-retry"] == "false"
    assert len(upstream.calls) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_the_client_sent_and_upstream_refuses_is_the_clients(
    status: int, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    reply = litellm_error(status, "Authentication Error", "auth_error")
    upstream.will(reply)
    response = await ask(proxy, {"Authorization": "Bearer sk-mine"})
    assert (response.status_code, response.content) == (status, reply.pieces[0])


async def test_an_error_that_quotes_a_long_prompt_keeps_its_status(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """A body that is too long to pass on is cut; asked again it would say the same."""
    proxy = await start_proxy({"reliability.escalation.max_retries_before_escalate": 3})
    reply = litellm_error(400, f"Invalid value: '{'x' * 2**21}'")
    upstream.always(reply)
    response = await ask(proxy)
    assert (response.status_code, len(upstream.calls)) == (400, 1)
    (whole,) = reply.pieces
    assert isinstance(whole, bytes) and response.content == whole[: 2**20]


@pytest.mark.parametrize("status", [401, 403])
async def test_a_key_we_put_in_and_upstream_refuses_is_the_tiers_failure(
    status: int,
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-ours")
    proxy = await start_proxy()
    upstream.always(litellm_error(status, "Authentication Error sk-ours", "auth_error"))
    response = await ask(proxy)
    checked_error(response, 502, "all_tiers_failed")
    assert "sk-ours" not in response.text


async def test_a_failure_after_keep_alive_is_an_error_event(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(
        {"stream.keepalive_seconds": 0.05, "tiers.fast.first_token_timeout": 0.4}
    )
    upstream.will(Reply.sse(SILENCE))
    response = await ask(proxy, stream=True)
    assert response.status_code == 200
    assert response.content.startswith(KEEP_ALIVE)
    error, done = payloads(without_notes(response.content))
    checked_error_body(error, "all_tiers_failed")
    assert done == "[DONE]"


@both
async def test_a_finished_reply_whose_stream_stays_open_is_delivered(
    streamed: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """It must not run into the silence limit, which would make a failure of it."""
    proxy = await start_proxy({"tiers.fast.idle_timeout": 0.5})
    upstream.will(Reply.sse(ROLE, TEXT, END, SILENCE))
    response = await ask(proxy, **asked(streamed))
    check_whole(response, streamed)
    assert await (await upstream.next_call()).left_within(1)
