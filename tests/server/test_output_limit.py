"""A limit on the reply that upstream ignores. What is cut: tests/token_budget/test_reply_cut.py."""

from __future__ import annotations

import pytest

from tests.server.asking import WITH_USAGE, ask, payloads, text_of, without_notes
from tests.server.calling import finishes, note_of
from tests.server.counting import AGENT, session_of
from tests.support.replies import DONE, ROLE, chunk, data
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer

WORDS = [f"w{n}" for n in range(50)]


@pytest.mark.parametrize("counts_along", [True, False])
@pytest.mark.parametrize("streams", [True, False])
async def test_a_limit_that_upstream_ignores_is_kept(
    streams: bool, counts_along: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """The session has used what the client is told, whoever has counted it."""
    pieces = [chunk({"content": f"{word} "}) for word in WORDS]
    if counts_along:
        for number, piece in enumerate(pieces, 1):
            piece["usage"] = {"prompt_tokens": 9, "completion_tokens": number}
    upstream.always(lambda _: Reply.sse(ROLE, *map(data, pieces), SILENCE))
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
