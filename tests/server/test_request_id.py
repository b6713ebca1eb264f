"""One id from the client to LiteLLM: in every log line, event and answer of a request."""

from __future__ import annotations

import json
import re

import pytest

from tests.server.asking import ask, ask_raw
from tests.server.conftest import StartProxy
from tests.support.replies import litellm_error, text_stream
from tests.support.running_proxy import RunningProxy

SETTINGS = {
    "observability.log_level": "debug",
    "reliability.escalation.chain": ["fast", "standard"],
    "reliability.escalation.degrade": {"failures": 1},
    "reliability.token_budget.per_session": 10,
}
ID = "run-7:step.12_a"


@pytest.fixture
async def proxy(capfd: pytest.CaptureFixture[str], start_proxy: StartProxy) -> RunningProxy:
    return await start_proxy(SETTINGS)


async def test_the_clients_id_is_everywhere(
    proxy: RunningProxy, capfd: pytest.CaptureFixture[str]
) -> None:
    """A tier breaks down, another answers, a budget is passed: all of it is of this request."""
    capfd.readouterr()  # the line of the start, which belongs to no request
    proxy.upstream.will(litellm_error(500, "no"), text_stream())
    response = await ask(proxy, {"X-Request-Id": ID, "X-LiteLLM-Call-Id": "another"})
    assert response.headers["x-mlx-stack-request-id"] == response.headers["x-request-id"] == ID
    assert [call.header("x-litellm-call-id") for call in proxy.upstream.calls] == [ID, ID]
    kept = (await proxy.client.get("/mlx-stack/events")).json()["events"]
    assert {one["kind"] for one in kept} == {
        "tier_degraded",
        "escalated",
        "budget_exceeded",
        "recovered",
    } | {"budget_warning"}
    assert {one["request_id"] for one in kept} == {ID}
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    written = {line["event"]: line.get("request_id") for line in lines}
    wanted = dict.fromkeys(("tier_degraded", "budget_warning", "budget_exceeded", "exchange"), ID)
    assert written == wanted


async def test_an_id_that_is_none_is_replaced(proxy: RunningProxy) -> None:
    proxy.upstream.always(text_stream())
    none = ["", "two words", "x" * 129, 'a"b', "<script>", "a/b", "é"]
    sent = [await ask(proxy, {"X-Request-Id": given.encode("latin-1")}) for given in none]
    ids = [response.headers["x-request-id"] for response in sent]
    assert all(re.fullmatch(r"req_[0-9a-f]{24}", one) for one in ids)
    assert len(set(ids)) == len(none)
    assert [call.header("x-litellm-call-id") for call in proxy.upstream.calls] == ids


async def test_errors_and_an_operators_answers_carry_it(proxy: RunningProxy) -> None:
    headers = {"X-Request-Id": ID, "X-LiteLLM-Call-Id": "another"}
    proxy.upstream.always(litellm_error(500, "no"))
    answers = [
        await ask_raw(proxy, b"{", **headers),
        await ask(proxy, headers),
        await ask(proxy, {**headers, "X-MLX-Stack-Tier": "nowhere"}),
        await proxy.client.get("/v1/files", headers=headers),
        *[
            await proxy.client.get(path, headers=headers)
            for path in ("/health", "/metrics", "/v1/models", "/mlx-stack/events?limit=x", "/x")
        ],
    ]
    assert [one.headers.get_list("x-request-id") for one in answers] == [[ID]] * len(answers)
    named = [one.headers.get_list("x-mlx-stack-request-id") for one in answers]
    assert named == [[ID]] * len(answers)
    assert {call.header("x-litellm-call-id") for call in proxy.upstream.calls} == {ID}
