"""A limit on the reply that upstream ignores: what is cut, and that nothing else is."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.asking import WITH_USAGE, ask, payloads, text_of, without_notes
from tests.server.calling import finishes, note_of
from tests.server.conftest import StartProxy
from tests.server.counting import AGENT, session_of
from tests.support.replies import DONE, END, ROLE, chunk, completion, data, usage_chunk
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer

Json = dict[str, Any]
NOTE = {"type": "function", "function": {"name": "note", "parameters": {"type": "object"}}}
WORDS = [f"w{n}" for n in range(3000)]


def calls_note(text: str) -> Json:
    arguments = '{"text": "' + text + '"}'
    function = {"name": "note", "arguments": arguments}
    return {"id": "call_1", "type": "function", "function": function}


def endless(deltas: list[Json]) -> Reply:
    """A reply in these pieces, and no end."""
    return Reply.sse(ROLE, *(data(chunk(delta)) for delta in deltas), SILENCE)


@pytest.mark.parametrize("streams", [True, False])
async def test_a_limit_that_upstream_ignores_is_kept(
    streams: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.always(lambda _: endless([{"content": f"{word} "} for word in WORDS[:50]]))
    response = await ask(proxy, max_tokens=10, **(WITH_USAGE if streams else {}))
    if streams:
        text, finish = text_of(response.content), finishes(response)
        (usage,) = usages(response)
        assert without_notes(response.content).endswith(DONE)
    else:
        (choice,) = response.json()["choices"]
        text, finish = choice["message"]["content"], [choice["finish_reason"]]
        usage = response.json()["usage"]
    assert (text.split(), finish) == (WORDS[:10], ["length"])
    said = response.headers.get("x-mlx-stack-truncated") or note_of(response)["truncated"]
    assert said == "max_output_tokens"
    # Clients count on it, and what was cut off can't say it.
    assert usage["completion_tokens"] > 0 < usage["prompt_tokens"]
    assert usage["total_tokens"] == usage["completion_tokens"] + usage["prompt_tokens"]


def usages(response: httpx.Response) -> list[Json]:
    return [p["usage"] for p in payloads(response.content) if p != "[DONE]" and p.get("usage")]


async def test_each_choice_has_the_limit(upstream: ScriptedServer, proxy: RunningProxy) -> None:
    long = [data(chunk({"content": f"a{n} "}, index=0)) for n in range(19)]
    short = [data(chunk({"content": "b"}, index=1)), data(chunk({}, finish="stop", index=1))]
    ends = data(chunk({}, finish="stop", index=0))
    upstream.always(lambda _: Reply.sse(ROLE, *short, *long, ends, DONE))
    response = await ask(proxy, max_tokens=10, n=2)
    first, second = response.json()["choices"]
    assert first["message"]["content"].split() == [f"a{n}" for n in range(10)]
    assert (second["message"]["content"], second["finish_reason"]) == ("b", "stop")
    assert first["finish_reason"] == "length"


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_content": " ".join(WORDS), "content": "The answer is 4."},
        {"reasoning_content": " ".join(WORDS), "tool_calls": [calls_note("four")]},
        {"content": " ".join(WORDS), "tool_calls": [calls_note("four")]},
    ],
)
async def test_who_thinks_too_long_answers_all_the_same(
    more: Json, streams: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    """A whole reply that can be used is not thrown away for what came before it."""
    finish = "tool_calls" if "tool_calls" in more else "stop"
    upstream.always(lambda _: Reply.json(completion({"role": "assistant", **more}, finish)))
    response = await ask(proxy, tools=[NOTE], stream=streams)
    assert response.status_code == 200 and len(upstream.calls) == 1
    if streams:
        assert finishes(response) == [finish]
        assert ("four" in response.text) is ("tool_calls" in more)
    else:
        (choice,) = response.json()["choices"]
        assert choice["finish_reason"] == finish
        assert choice["message"].get("tool_calls") == more.get("tool_calls")
    if finish == "stop":
        assert "The answer is 4." in response.text


async def pieces_of(
    proxy: RunningProxy, upstream: ScriptedServer, pieces: list[str], tokens: int
) -> tuple[str, str, bool]:
    """A reply in these pieces: its text, its finish reason, and whether it was cut."""
    usage = {"prompt_tokens": 9, "completion_tokens": tokens}
    words = [data(chunk({"content": piece})) for piece in pieces]
    upstream.always(lambda _: Reply.sse(ROLE, *words, END, data(usage_chunk(usage)), DONE))
    response = await ask(proxy, max_tokens=10)
    (choice,) = response.json()["choices"]
    cut = "x-mlx-stack-truncated" in response.headers
    return choice["message"]["content"], choice["finish_reason"], cut


@pytest.mark.parametrize(
    "pieces",
    [
        # o200k and its like have tokens of marks that go on in the next line.
        ["x", " =", " f", "(", "y", " );\n//", " then", " )\n\n/*", " more", " */\n/"],
        # A relay may cut words in two.
        ["one two ", "three fo", "ur five ", "six seve", "n eight ", "nine ten"],
        [" " * 40, "\n\n\n", "a"],
    ],
)
async def test_what_keeps_to_the_limit_is_left_alone(
    pieces: list[str], upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    assert await pieces_of(proxy, upstream, pieces, 10) == ("".join(pieces), "stop", False)


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("text", ["hello", "\u5c0f\u888b\u9f20" * 20])
async def test_nothing_is_cut_by_upstreams_count(
    text: str, local: bool, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    """It may be wrong, or of thoughts that nobody sees."""
    proxy = await start_proxy({"tiers.fast.local": local})
    for tokens in (60, 20_000, 2**64 - 1):
        assert await pieces_of(proxy, upstream, [text], tokens) == (text, "stop", False)


@pytest.mark.parametrize(
    ("pieces", "most", "counted"),
    [
        ([{"refusal": f"no{n} "} for n in range(100)], 10, range(1, 13)),
        ([{"content": str(n % 10)} for n in range(100)], 30, range(30, 32)),
    ],
    ids=["a refusal", "pieces"],
)
async def test_so_is_one_that_is_no_text_in_words(
    pieces: list[Json], most: int, counted: range, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    upstream.always(lambda _: endless(pieces))
    response = await ask(proxy, max_tokens=most)
    assert response.headers["x-mlx-stack-truncated"] == "max_output_tokens"
    assert response.json()["usage"]["completion_tokens"] in counted


async def test_usage_that_came_at_first_is_not_the_whole(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    early = data(usage_chunk({"prompt_tokens": 9, "completion_tokens": 1}))
    words = [data(chunk({"content": f"w{n} "})) for n in range(100)]
    upstream.always(lambda _: Reply.sse(ROLE, early, *words, SILENCE))
    response = await ask(proxy, AGENT, max_tokens=30)
    usage = response.json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"] >= 30) == (9, True)
    found = await session_of(proxy)
    assert found["used"] == found["estimated"] == usage["total_tokens"]


@pytest.mark.parametrize("streams", [True, False])
async def test_usage_that_counts_along_is_believed(
    streams: bool, upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    words = [
        data(
            {**chunk({"content": "-" * 60}), "usage": {"prompt_tokens": 9, "completion_tokens": n}}
        )
        for n in range(1, 50)
    ]
    upstream.always(lambda _: Reply.sse(ROLE, *words, SILENCE))
    response = await ask(proxy, AGENT, max_tokens=10, **(WITH_USAGE if streams else {}))
    assert (await session_of(proxy))["used"] == 9 + 11
    if not streams:
        counts = {"prompt_tokens": 9, "completion_tokens": 11, "total_tokens": 20}
        assert response.json()["usage"] == counts


async def test_the_whole_usage_in_the_piece_that_is_one_too_many(
    upstream: ScriptedServer, proxy: RunningProxy
) -> None:
    words = [data(chunk({"content": f"w{n} "})) for n in range(10)]
    usage = {"prompt_tokens": 9, "completion_tokens": 11, "prompt_tokens_details": {"x": 1}}
    last = data({**chunk({"content": "w10"}, "stop"), "usage": usage})
    upstream.always(lambda _: Reply.sse(ROLE, *words, last, DONE))
    response = await ask(proxy, max_tokens=10, **WITH_USAGE)
    assert usages(response) == [{**usage, "total_tokens": 20}]
