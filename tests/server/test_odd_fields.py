"""Well-formed JSON with a field of an odd type, or nested deeply: never a fault of ours.

Each field of a rich request in each dialect is replaced by each odd value in turn. Whatever the
answer is, no code of ours raises, and no stage is left out.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from mlx_stack_proxy import log
from mlx_stack_proxy.wire.fields import MAX_DEPTH
from tests.server.conftest import StartProxy
from tests.support.messages import call_piece, called, gave, tool_call
from tests.support.replies import stream, with_role
from tests.support.running_proxy import RunningProxy

Json = dict[str, Any]
SCHEMA: Json = {
    "type": "object",
    "properties": {"at": {"type": "string", "enum": ["a"], "description": "where"}},
    "required": ["at"],
}


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


FUNCTION = {"name": "f", "description": "d", "parameters": SCHEMA}
CHOSEN = {"type": "function", "function": {"name": "f"}}
ODD: list[Any] = [[], 5]  # no key of a dict, and no text

CHAT: Json = {
    "model": "fast",
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "name": "u", "content": [{"type": "text", "text": "x"}]},
        called(tool_call("c1", arguments='{"at":1}'), reasoning_content="hm"),
        gave("c1", "done"),
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]},
    ],
    "tools": [{"type": "function", "function": {**FUNCTION, "strict": True}}],
    "tool_choice": CHOSEN,
    "parallel_tool_calls": True,
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "stream_options": {"include_usage": True},
    "metadata": {"user_id": "u", "tags": ["x"]},
    "stop": ["x"],
    "user": "u",
    "n": 1,
    "max_tokens": 9,
    "temperature": 1,
    "timeout": 60,
    "prompt_cache_key": "k",
    "logit_bias": {"1": 1},
}
LEGACY: Json = {
    "model": "fast",
    "messages": [
        {"role": "user", "content": "x"},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "x"},
    ],
    "functions": [FUNCTION],
    "function_call": {"name": "f"},
}
ALLOWED: Json = {
    **{key: CHAT[key] for key in ("model", "messages", "tools")},
    "tool_choice": {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [CHOSEN]},
    },
}
MESSAGES: Json = {
    "model": "auto",
    "max_tokens": 9,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x"},
                {"type": "image", "source": {"type": "base64", "media_type": "m", "data": "d"}},
                {"type": "document", "title": "t", "source": {"type": "text", "data": "d"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "tool_use", "id": "c1", "name": "f", "input": {"at": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c1",
                    "is_error": True,
                    "content": [
                        {"type": "text", "text": "x"},
                        {"type": "tool_reference", "tool_name": "g"},
                    ],
                },
                {"type": "search_result", "title": "t", "source": "s", "content": []},
                {"type": "zzz", "x": 1},
            ],
        },
    ],
    "tools": [
        {"name": "f", "description": "d", "input_schema": SCHEMA},
        {"name": "g", "input_schema": SCHEMA, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
    "metadata": {"user_id": "u"},
    "stop_sequences": ["x"],
    "thinking": {"type": "enabled", "budget_tokens": 5},
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    "temperature": 1,
    "top_k": 1,
}
OF_C1 = {"call_id": "c1"}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: a\na: "x"'}
RESPONSES: Json = {
    "model": "auto",
    "instructions": "s",
    "input": [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "x"},
                {"type": "input_image", "image_url": "data:,", "detail": "auto"},
                {"type": "input_file", "file_data": "d", "filename": "n"},
                {"type": "input_audio", "input_audio": {"data": "d", "format": "wav"}},
            ],
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]},
        {**OF_C1, "type": "function_call", "name": "f", "arguments": "{}", "namespace": "n"},
        {**OF_C1, "type": "function_call_output", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "custom_tool_call", "call_id": "c2", "name": "p", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "x", "status": "completed"},
        {"type": "zzz_call", "call_id": "c3", "id": "i", "x": 1},
        {"type": "zzz_call_output", "call_id": "c3", "output": "x"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
    ],
    "tools": [
        {"type": "function", **FUNCTION, "strict": True},
        {"type": "custom", "name": "p", "description": "d", "format": GRAMMAR},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "h"}]},
        {"type": "web_search"},
    ],
    "tool_choice": {"type": "function", "name": "f"},
    "parallel_tool_calls": True,
    "metadata": {"a": "b"},
    "reasoning": {"effort": "low"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
    "max_output_tokens": 9,
    "user": "u",
    "prompt_cache_key": "k",
    "include": ["x"],
    "store": False,
}
RESPONSES_ALLOWED: Json = {
    **RESPONSES,
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "f"}],
    },
}
EMBEDDINGS: Json = {"model": "fast", "input": ["x"], "metadata": {"tags": ["x"]}, "tags": ["x"]}
REQUESTS = {
    "chat": ("/v1/chat/completions", CHAT),
    "legacy": ("/v1/chat/completions", LEGACY),
    "allowed": ("/v1/chat/completions", ALLOWED),
    "messages": ("/v1/messages", MESSAGES),
    "count": ("/v1/messages/count_tokens", MESSAGES),
    "responses": ("/v1/responses", RESPONSES),
    "responses, allowed": ("/v1/responses", RESPONSES_ALLOWED),
    "embeddings": ("/v1/embeddings", EMBEDDINGS),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value inside an object or array."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in pairs:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def changed(body: Json, path: tuple[Any, ...], value: Any) -> Json:
    body = copy.deepcopy(body)
    place: Any = body
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return body


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The faults of our own that are logged."""
    found: list[str] = []

    def fault(event: str, error: BaseException, **fields: Any) -> None:
        found.append(f"{event} {error!r}")

    monkeypatch.setattr(log, "fault", fault)
    return found


BAD_CALL = stream(with_role(call_piece("nosuch", '{"a": ', "c9"), finish="tool_calls"))


async def send(proxy: RunningProxy, path: str, body: Json) -> httpx.Response:
    headers = {"content-type": "application/json"}  # httpx's own encoder refuses deep nesting
    return await proxy.client.post(path, content=json.dumps(body).encode(), headers=headers)


@pytest.mark.parametrize("name", REQUESTS)
async def test_no_odd_field_makes_our_own_code_raise(
    start_proxy: StartProxy, faults: list[str], name: str
) -> None:
    proxy = await start_proxy({"upstream.api_key_env": "PATH"})  # a key of ours: bodies are read
    proxy.upstream.always(BAD_CALL)
    path, body = REQUESTS[name]
    await send(proxy, path, body)
    assert proxy.upstream.calls or path.endswith("count_tokens"), "as it is, a model is asked"
    bad = []
    for place in places(body):
        for odd in ODD:
            reply = await send(proxy, path, changed(body, place, odd))
            if faults or reply.status_code == 500:
                bad.append((place, odd, reply.status_code, *faults))
                faults.clear()
    assert bad == []


ODD_TYPES: list[tuple[str, tuple[Any, ...], Any]] = [
    ("chat", ("tools", 0, "type"), []),
    ("chat", ("tools", 0, "function", "description"), 5),
    ("chat", ("tool_choice",), {"type": []}),
    ("chat", ("tool_choice", "function"), 5),
    ("chat", ("tool_choice", "function", "name"), []),
    ("allowed", ("tool_choice", "allowed_tools", "mode"), {}),
    ("allowed", ("tool_choice", "allowed_tools", "tools", 0, "type"), []),
    ("legacy", ("functions", 0, "description"), []),
    ("legacy", ("function_call", "name"), []),
    ("messages", ("tools", 1, "name"), []),
    ("messages", ("tools", 2, "type"), {}),
    ("messages", ("tool_choice", "type"), []),
    ("responses", ("tools", 1, "description"), 5),
    ("responses", ("tools", 2, "tools", 0, "description"), []),
    ("responses", ("tool_choice", "name"), []),
    ("responses, allowed", ("tool_choice", "mode"), {"type": []}),
]


async def test_odd_types_are_refused(proxy: RunningProxy) -> None:
    """Each is named, and nothing is asked of a model, so that no stage sees it."""
    for name, place, odd in ODD_TYPES:
        path, body = REQUESTS[name]
        reply = await send(proxy, path, changed(body, place, odd))
        assert reply.status_code == 400, (name, place)
        named = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)[1:]
        assert f"`{named}" in reply.text
    assert proxy.upstream.calls == []


@pytest.mark.parametrize("name", REQUESTS)
async def test_nesting_ends_at_the_edge(
    start_proxy: StartProxy, faults: list[str], name: str
) -> None:
    proxy = await start_proxy({"upstream.api_key_env": "PATH"})
    proxy.upstream.always(BAD_CALL)
    path, body = REQUESTS[name]
    parts = [key for key, value in body.items() if isinstance(value, dict | list)]
    for key in [*parts, "x"]:
        deepest = deep(MAX_DEPTH - 1)
        for odd in (deepest, [deepest["a"]]):
            assert (await send(proxy, path, {**body, key: odd})).status_code != 500
        reply = await send(proxy, path, {**body, key: {"a": deepest}})
        assert reply.status_code == 400
        assert "nested more than 128 levels" in reply.text
    assert faults == []


STRINGS: list[tuple[str, tuple[Any, ...]]] = [
    ("chat", ("messages", 2, "tool_calls", 0, "function", "arguments")),
    ("chat", ("messages", 3, "content")),
    ("responses", ("input", 2, "arguments")),
    ("responses", ("input", 3, "output")),
]


async def test_json_in_a_string_may_be_nested_as_it_likes(
    proxy: RunningProxy, faults: list[str]
) -> None:
    """It is text to the protocol, and whoever reads it expects anything."""
    proxy.upstream.always(BAD_CALL)
    for levels in (300, 20_000):
        nested = "[" * levels + "]" * levels
        for name, place in STRINGS:
            path, body = REQUESTS[name]
            asked = len(proxy.upstream.calls)
            await send(proxy, path, changed(body, place, f'{{"at": {nested}}}'))
            assert len(proxy.upstream.calls) > asked
    assert faults == []
