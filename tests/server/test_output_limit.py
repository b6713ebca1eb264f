"""A limit on the reply that upstream ignores. What is cut: tests/token_budget/test_reply_cut.py."""

from __future__ import annotations

import pytest

from tests.server.asking import WITH_USAGE, ask, payloads, text_of, without_notes
from tests.server.calling import finishes, note_of
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, budget, session_of
from tests.support.replies import DONE, ROLE, chunk, data, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Reply

WORDS = [f"w{n}" for n in range(50)]


@pytest.mark.parametrize("counts_along", [True, False])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_limit_that_upstream_ignores_is_kept(
    streams: bool, counts_along: bool, proxy: RunningProxy
) -> None:
    """The session has used what the client is told, whoever has counted it."""
    pieces = [chunk({"content": f"{word} "}) for word in WORDS]
    if counts_along:
        for number, piece in enumerate(pieces, 1):
            piece["usage"] = {"prompt_tokens": 9, "completion_tokens": number}
    proxy.upstream.always(lambda _: Reply.sse(ROLE, *map(data, pieces), SILENCE))
    response = await ask(proxy, AGENT, max_tokens=10, **(WITH_USAGE if streams else {}))
    if streams:
        text, finish = text_of(response.content), finishes(response)
        said = [one["usage"] for one in payloads(response.content)[:-1] if one.get("usage")]
        usage = said[-1]
        assert without_notes(response.content).endswith(DONE)
    else:
        (choice,) = response.json()["choices"]
        text, finish = choice["message"]["content"], [choice["finish_reason"]]
        usage = response.json()["usage"]
    assert (text.split(), finish) == (WORDS[:10], ["length"])
    said_so = response.headers.get("x-mlx-stack-truncated") or note_of(response)["truncated"]
    assert said_so == "max_output_tokens"
    session = await session_of(proxy)
    assert session["used"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert session["estimated"] == (0 if counts_along else session["used"])


@pytest.mark.specification(15)
async def test_a_client_whose_limit_is_lowered_is_told_and_so_is_the_log(
    proxy: RunningProxy, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.upstream.always(text_stream())
    for streams in (False, True):
        response = await ask(proxy, max_tokens=100_000, stream=streams)
        assert response.headers["x-mlx-stack-max-tokens"] == "16384;asked=100000"
    assert {call.json()["max_tokens"] for call in proxy.upstream.calls} == {16_384}
    for given in ({"max_tokens": 8000}, {}):
        assert "x-mlx-stack-max-tokens" not in (await ask(proxy, **given)).headers
    log = capsys.readouterr().err
    assert log.count('"event":"max_tokens_lowered"') == 1
    assert '"asked":100000,"sent":16384' in log


@pytest.mark.specification(11, 12)
@pytest.mark.parametrize(
    ("asked", "sent"), [({}, 2048), ({"max_tokens": 8000}, 4096), ({"max_tokens": 1000}, 1000)]
)
async def test_enforced_limits_for_tool_calls_are_sent(
    asked: dict[str, int], sent: int, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(budget(tool_calls={"apply": "enforce"}))
    proxy.upstream.always(text_stream())
    response = await ask(proxy, **asked)
    assert proxy.upstream.calls[0].json()["max_tokens"] == sent
    lowered = response.headers.get("x-mlx-stack-max-tokens")
    assert lowered == ("4096;asked=8000" if sent == 4096 else None)


@pytest.mark.specification(72)
async def test_a_budget_that_is_off_sends_and_counts_nothing(start_proxy: StartProxy) -> None:
    off = budget(enabled=False, max_output_tokens=50, tool_calls={"apply": "enforce"})
    proxy = await start_proxy(off)
    proxy.upstream.always(text_stream())
    for given in ({}, {"max_tokens": 100}, {"max_completion_tokens": 100}):
        response = await ask(proxy, AGENT, **given)
        assert "x-mlx-stack-max-tokens" not in response.headers
        sent = proxy.upstream.calls.pop().json()
        names = ("max_tokens", "max_completion_tokens")
        assert {name: sent[name] for name in names if name in sent} == given
    assert (await session_of(proxy))["used"] == 0
