"""What an upstream can do wrong, and what a client then gets: an error of ours, never a success.

tests/faults/catalogue.py has most of it, which test_escalation.py plays for every client. This is
what only a connection shows.
"""

from __future__ import annotations

import pytest

from tests.server.asking import (
    WITH_USAGE,
    ask,
    checked_error,
    checked_error_body,
    payloads,
    without_notes,
)
from tests.server.conftest import StartProxy
from tests.support.replies import (
    DONE,
    END,
    ROLE,
    TEXT,
    data,
    litellm_error,
    text_stream,
)
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import CLOSE, SILENCE, Mark, Reply, ScriptedServer

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BEFORE_CONTENT: dict[str, Reply] = {
    "closed within the headers": Reply.raw(b"HTTP/1.1 200 OK\r\ncontent-ty", CLOSE),
    "no HTTP at all": Reply.raw(b"\x16\x03\x01 220 smtp ready\r\n\r\n", CLOSE),
    "half a transfer chunk": Reply.raw(HEAD, b"ff\r\ndata: {", CLOSE),
    "a broken transfer chunk": Reply.raw(HEAD, b"zz\r\ndata: {}\r\n", CLOSE),
    "a JSON array, 200": Reply.json(b"[]"),
    "no choices, 200": Reply.json({"id": "x", "object": "chat.completion", "choices": []}),
}


@pytest.mark.parametrize("name", BEFORE_CONTENT)
async def test_failures_before_any_content_are_an_error_response(
    name: str, proxy: RunningProxy
) -> None:
    proxy.upstream.always(BEFORE_CONTENT[name])
    error = checked_error(await ask(proxy, **WITH_USAGE), 502, "all_tiers_failed")
    assert len(error["attempts"]) == len(proxy.upstream.calls)
    for attempt in error["attempts"]:
        assert set(attempt) == {"tier", "reason", "status", "seconds"}
    # And the next one is served: no connection is left in a bad state.
    proxy.upstream.always(text_stream("Well again."))
    assert (await ask(proxy)).status_code == 200


async def test_a_stream_that_fails_after_text_ends_with_an_error_event(proxy: RunningProxy) -> None:
    """Also where upstream says its error and then nothing more."""
    failure = data({"error": {"message": "Connection error", "type": None, "code": "500"}})
    proxy.upstream.will(Reply.sse(ROLE, TEXT, failure, SILENCE))
    response = await ask(proxy, **WITH_USAGE)
    assert response.status_code == 200
    stream = without_notes(response.content)
    assert stream.startswith(ROLE + TEXT)
    *before, error, done = payloads(stream)
    assert done == "[DONE]"
    assert checked_error_body(error, "all_tiers_failed")["attempts"]
    assert not any(choice["finish_reason"] for one in before for choice in one["choices"])


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("end", [CLOSE, SILENCE], ids=["it breaks", "it stays open"])
async def test_a_finished_reply_is_whole_however_its_connection_ends(
    end: Mark, streamed: bool, start_proxy: StartProxy
) -> None:
    """It must not run into the silence limit, which would make a failure of it."""
    proxy = await start_proxy({"tiers.fast.idle_timeout": 0.5})
    proxy.upstream.will(Reply.sse(ROLE, TEXT, END, end))
    response = await ask(proxy, **(WITH_USAGE if streamed else {}))
    assert response.status_code == 200
    if streamed:
        assert without_notes(response.content) == ROLE + TEXT + END + DONE
    else:
        assert response.json()["choices"][0]["message"]["content"] == "Half an answer"
    assert await (await proxy.upstream.next_call()).left_within(1)


async def test_an_error_that_quotes_a_long_prompt_keeps_its_status(start_proxy: StartProxy) -> None:
    """A body that is too long to pass on is cut; asked again it would say the same."""
    proxy = await start_proxy({"reliability.escalation.max_retries_before_escalate": 3})
    reply = litellm_error(400, f"Invalid value: '{'x' * 2**21}'")
    proxy.upstream.always(reply)
    response = await ask(proxy)
    assert (response.status_code, len(proxy.upstream.calls)) == (400, 1)
    (whole,) = reply.pieces
    assert isinstance(whole, bytes) and response.content == whole[: 2**20]


async def test_whose_key_is_refused(
    upstream: ScriptedServer, start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's own is the client's fault; one that we put in is the tier's failure."""
    refused = litellm_error(401, "Authentication Error sk-ours", "auth_error")
    upstream.always(refused)
    response = await ask(await start_proxy(), {"Authorization": "Bearer sk-mine"})
    assert (response.status_code, response.content) == (401, refused.pieces[0])
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-ours")
    response = await ask(await start_proxy())
    checked_error(response, 502, "all_tiers_failed")
    assert "sk-ours" not in response.text
