"""What a tier's answers say that it can do."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.upstream import Upstream
from mlx_stack_proxy.operator.prober import CODE, Probe
from mlx_stack_proxy.settings_source import from_mapping
from tests.support.replies import (
    DONE,
    completion,
    data,
    litellm_error,
    stream,
    stream_bytes,
    text_chunks,
    text_stream,
    with_role,
)
from tests.support.scripted_server import RESET, SILENCE, Reply, ScriptedServer

ONE = Reply.json(completion({"content": "1"}, "length"))
COUNT = text_stream("1", " 2")
Lines = list[tuple[str, str]]


async def probed(litellm: ScriptedServer, **tier: Any) -> Lines:
    """Mark and text of each line, without the seconds."""
    upstream = {"base_url": litellm.url, "api_key_env": None}
    settings = from_mapping({"upstream": upstream, "tiers": {"fast": tier}})
    connection = Upstream(settings.upstream)
    try:
        return [
            (mark, text.partition(" (")[0] if mark == "ok" else text)
            async for mark, text in Probe(settings, connection).tier("fast")
        ]
    finally:
        await connection.aclose()


def called(arguments: str, name: str = "get_weather") -> Reply:
    function = {"name": name, "arguments": arguments}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    return stream(with_role({"tool_calls": [call]}, finish="tool_calls"))


def guided(text: str) -> Reply:
    return Reply.json(completion({"content": text}))


async def test_a_tier_that_can_do_all(litellm: ScriptedServer) -> None:
    litellm.will(ONE, COUNT, called('{"city": "Lima"}'), guided(f'{{"code": "{CODE}"}}'))
    assert await probed(litellm, model="m", params={"temperature": 0.1}) == [
        ("ok", "answers"),
        ("ok", "streams"),
        ("ok", "calls tools"),
        ("ok", "obeys a JSON schema, so retries can be guided"),
    ]
    one, streamed, tool, schema = [call.json() for call in litellm.calls]
    assert schema["response_format"]["type"] == "json_schema"
    assert (one["max_tokens"], "stream" in one) == (1, False)
    assert streamed["stream"] and streamed["stream_options"] == {"include_usage": True}
    assert [t["function"]["name"] for t in tool["tools"]] == ["get_weather"]
    for body in (one, streamed, tool, schema):
        assert (body["model"], body["temperature"]) == ("m", 0.1)
        assert (body["num_retries"], body["disable_fallbacks"]) == (0, True)


@pytest.mark.parametrize(
    ("reply", "line"),
    [
        (called('{"city": "Lima",}'), ("ok", "calls tools, after repair: trailing_comma")),
        (
            text_stream(
                '<tool_call>{"name": "get_weather", "arguments": {"city": "Lima"}}</tool_call>'
            ),
            ("ok", "calls tools, but writes them as text: hermes_json"),
        ),
        (text_stream("It rains."), ("note", "asked for a tool call, it answered with text")),
        (
            called('{"town": 1}', "get_time"),
            ("note", "asked for a tool call, it sent no usable one: "),
        ),
        (
            Reply.sse(data({"error": {"message": "out of memory"}}), DONE),
            ("note", "asked for a tool call, it sent no usable one: "),
        ),
        (litellm_error(400, "no tools here"), ("FAIL", "a streamed completion: status 400: ")),
    ],
)
async def test_tool_calls(reply: Reply, line: tuple[str, str], litellm: ScriptedServer) -> None:
    litellm.will(ONE, COUNT, reply, guided("1"))
    mark, text = (await probed(litellm))[2]
    assert mark == line[0]
    assert text.startswith(line[1])


NO_RETRY = "so retries are not guided"
SCHEMA = f'<think>Hm.</think>{{"code": "{CODE}"}}'


@pytest.mark.parametrize(
    ("reply", "reasoning", "said"),
    [
        (guided("1 2 3"), False, f"ignores a JSON schema, {NO_RETRY}"),
        (guided(""), True, f"ignores a JSON schema, {NO_RETRY}"),
        (litellm_error(400, "no grammar"), False, f"accepts no JSON schema, {NO_RETRY}"),
        (litellm_error(502, "an empty reply"), False, "gave no reply to a JSON schema request"),
        (guided(SCHEMA), True, "can be guided; set tiers.fast.guided: retry"),
    ],
)
async def test_schemas(reply: Reply, reasoning: bool, said: str, litellm: ScriptedServer) -> None:
    """A model that thinks first is guided only where somebody says so."""
    litellm.will(ONE, COUNT, called('{"city": "Lima"}'), reply)
    mark, text = (await probed(litellm, reasoning=reasoning))[-1]
    assert mark == "ok" and text.endswith(said)


async def test_no_tool_call_is_asked_of_a_tier_without_tools(litellm: ScriptedServer) -> None:
    litellm.will(ONE, COUNT)
    last = (await probed(litellm, tools=False))[-1]
    assert last == ("note", "not asked for a tool call: `tools: false`")


@pytest.mark.parametrize(
    ("reply", "mark", "said"),
    [
        (ONE, "FAIL", "the stream broke off before the reply began"),
        (
            Reply.sse(*(data(chunk) for chunk in text_chunks("1")[:2])),
            "FAIL",
            "server_error: the stream broke off before the reply was finished",
        ),
        (
            Reply.sse(stream_bytes(text_chunks("1"), usage=False)),
            "note",
            "but reports no usage: budgets count the text's length",
        ),
        (
            Reply.sse(data({"error": {"message": "boom"}}), DONE),
            "FAIL",
            "a streamed completion: server_error: an error inside the answer: boom",
        ),
    ],
)
async def test_streams(reply: Reply, mark: str, said: str, litellm: ScriptedServer) -> None:
    litellm.will(ONE, reply, called('{"city": "Lima"}'), guided("1"))
    found = (await probed(litellm))[1]
    assert found[0] == mark
    assert found[1].endswith(said)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (litellm_error(429, "slow down"), "a one-token completion: status 429: slow down"),
        (Reply.json({"error": {"message": "no"}}), "a one-token completion: "),
        (Reply.json(b"<html>"), "a one-token completion: upstream's answer is not JSON"),
        (Reply.raw(RESET), "a one-token completion: the connection"),
    ],
)
async def test_no_answer_ends_the_questions(
    reply: Reply, said: str, litellm: ScriptedServer
) -> None:
    litellm.will(reply)
    ((mark, text),) = await probed(litellm)
    assert (mark, text[: len(said)]) == ("FAIL", said)


async def test_an_answer_that_takes_too_long(litellm: ScriptedServer) -> None:
    litellm.will(Reply.sse(SILENCE))
    ((mark, text),) = await probed(litellm, total_timeout=0.2)
    assert (mark, text) == ("FAIL", "a one-token completion: not complete after 0.2 s")
