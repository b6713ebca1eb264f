"""No key, prompt or reply in any log line or error; one line per exchange."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from tests.server.asking import CHAT, ask, ask_raw
from tests.server.conftest import StartProxy
from tests.support.replies import TOOLS, data, litellm_error, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import RESET, Reply, ScriptedServer

SECRETS = ("quokka", "wombat", "sk-client-secret", "sk-upstream-secret", "Traceback")
HEADERS = {"Authorization": "Bearer sk-client-secret", "X-MLX-Stack-Session": "quokka-session"}


@pytest.fixture
async def proxy(
    capfd: pytest.CaptureFixture[str], start_proxy: StartProxy, monkeypatch: pytest.MonkeyPatch
) -> RunningProxy:
    """Started when `capfd` is there already: the log goes to the standard error of that time."""
    monkeypatch.setenv("LITELLM_MASTER_KEY", "sk-upstream-secret")
    return await start_proxy({"observability.log_level": "debug"})


def lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Everything logged, which must be JSON, without a secret."""
    out, err = capfd.readouterr()
    for secret in SECRETS:
        assert secret not in out + err
    return [json.loads(line) for line in (out + err).splitlines() if line.startswith("{")]


async def test_one_line_an_exchange(proxy: RunningProxy, capfd: pytest.CaptureFixture[str]) -> None:
    proxy.upstream.always(text_stream("A wombat ", "says hello."))
    seen = [await ask(proxy, HEADERS), await ask(proxy, HEADERS, stream=True)]
    logged = lines(capfd)
    for response in seen:
        number = response.headers["x-request-id"]
        about = [line for line in logged if number in line.values()]
        assert len([line for line in about if line.get("level") == "info"]) == 1
        assert any("fast" in line.values() for line in about)


ROLE, TEXT, _ = (data(one) for one in text_chunks("A wombat"))
FAULTS: dict[str, Reply] = {
    "500": litellm_error(500, "wombat sk-upstream-secret"),
    "400": litellm_error(400, "bad wombat"),
    "reset": Reply.sse(ROLE, TEXT, RESET),
    "not JSON": Reply.sse(ROLE, b'data: {"wombat\n\n'),
    "HTML": Reply(200, (("content-type", "text/html"),), (b"<p>wombat</p>",)),
    "an error event": Reply.sse(ROLE, TEXT, data({"error": {"message": "wombat"}})),
}


async def test_faults_are_logged_without_what_was_said(
    proxy: RunningProxy, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, streamed in itertools.product(FAULTS, (False, True)):
        proxy.upstream.always(FAULTS[name])
        response = await ask(proxy, HEADERS, stream=streamed, tools=TOOLS)
        number = response.headers["x-request-id"]
        assert any(number in line.values() for line in lines(capfd)), name
        for secret in SECRETS[2:]:
            assert secret not in response.text or name == "400"


async def test_bad_input_is_not_quoted(
    upstream: ScriptedServer, proxy: RunningProxy, capfd: pytest.CaptureFixture[str]
) -> None:
    for content in (b'{"quokka', b'{"messages": "quokka"}', b'{"quokka": NaN}'):
        response = await ask_raw(proxy, content, **HEADERS)
        assert response.status_code == 400
    (refused,) = [line for line in lines(capfd) if line.get("event") == "refused"]
    assert refused["status"] == 400 and refused["why"].startswith("the request body is not valid")
    await proxy.client.post(CHAT + "?key=sk-client-secret", json={})
    await proxy.client.get("/v1/files/quokka?key=sk-client-secret", headers=HEADERS)
    lines(capfd)
