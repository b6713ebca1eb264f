"""A request's fields besides its items and tools."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.dialect import SessionName
from mlx_stack_proxy.wire.responses.request import to_chat

Json = dict[str, Any]
TEXT = [{"role": "user", "content": "Hi"}]


def chat(**body: Any) -> Json:
    found = to_chat({"input": "Hi", **body}, {}).body
    assert found.pop("messages") == TEXT
    return found


SAME = {"model": "fast", "temperature": 0.1, "top_p": 0.5, "metadata": {"a": "b"}, "user": "u"}
TUNED = {"reasoning": {"effort": "high"}, "truncation": "auto", "store": True, "include": ["x"]}
SCHEMA = {"name": "n", "schema": {"type": "object"}, "strict": True}
FIELDS: list[tuple[Json, Json]] = [
    ({**SAME, "prompt_cache_key": "k"}, {**SAME, "prompt_cache_key": "k"}),
    ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}),
    ({"stream": False}, {"stream": False}),
    ({"max_output_tokens": 64}, {"max_tokens": 64}),
    ({"max_output_tokens": None}, {}),
    (
        {"text": {"format": {"type": "json_schema", **SCHEMA}, "verbosity": "low"}},
        {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
    ),
    (
        {"text": {"format": {"type": "json_object"}}},
        {"response_format": {"type": "json_object"}},
    ),
    ({"text": {"format": {"type": "text"}, "verbosity": "low"}}, {}),
    ({**TUNED, "client_metadata": {"a": "b"}, "service_tier": "flex", "unheard_of": 1}, {}),
]


@pytest.mark.parametrize(("body", "expected"), FIELDS)
def test_fields(body: Json, expected: Json) -> None:
    """What only tunes is left out."""
    assert chat(**body) == expected


@pytest.mark.parametrize("given", [0, -1, "64", 1.5, True, [64]])
def test_a_wrong_limit_is_refused_by_the_name_that_the_client_gave_it(given: Any) -> None:
    with pytest.raises(ProxyError) as refused:
        chat(max_output_tokens=given)
    assert (refused.value.status, refused.value.param) == (400, "max_output_tokens")
    assert "`max_output_tokens`" in refused.value.message


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_not_found"),
        ({"conversation": "conv_1"}, "conversation_not_found"),
        ({"prompt": {"id": "p"}}, "prompt_not_found"),
        ({"background": True}, "not_supported"),
    ],
)
def test_what_wants_a_store_is_refused(body: Json, code: str) -> None:
    with pytest.raises(ProxyError) as refused:
        chat(**body)
    assert (refused.value.status, refused.value.code) == (400, code)
    assert refused.value.param == next(iter(body))
    assert chat(**dict.fromkeys(body)) == {}


@pytest.mark.parametrize("given", [{}, {"input": None}, {"input": []}])
def test_a_request_without_input_is_refused(given: Json) -> None:
    with pytest.raises(ProxyError) as refused:
        to_chat({"model": "fast", **given}, {})
    assert (refused.value.status, refused.value.param) == (400, "input")


@pytest.mark.parametrize(
    ("headers", "session"),
    [
        ({"thread-id": "t", "session-id": "s"}, SessionName("thread-id", "t", "s")),
        ({"thread-id": "t", "session-id": "t"}, SessionName("thread-id", "t")),
        ({"session-id": "s"}, SessionName("session-id", "s")),
        ({"x-session-id": "s"}, None),
    ],
)
def test_the_session_that_the_client_names(headers: Any, session: SessionName | None) -> None:
    assert to_chat({"input": "Hi"}, headers).session == session
