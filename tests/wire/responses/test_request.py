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


def test_fields_that_chat_completions_have_too() -> None:
    same = {"model": "fast", "temperature": 0.1, "top_p": 0.5, "metadata": {"a": "b"}, "user": "u"}
    assert chat(**same, prompt_cache_key="k") == {**same, "prompt_cache_key": "k"}


def test_a_stream_is_asked_for_its_usage() -> None:
    assert chat(stream=True) == {"stream": True, "stream_options": {"include_usage": True}}
    assert chat(stream=False) == {"stream": False}


def test_the_limit_on_the_reply() -> None:
    assert chat(max_output_tokens=64) == {"max_tokens": 64}
    assert chat(max_output_tokens=None) == {}


@pytest.mark.parametrize("given", [0, -1, "64", 1.5, True, [64]])
def test_a_wrong_limit_is_refused_by_the_name_that_the_client_gave_it(given: Any) -> None:
    with pytest.raises(ProxyError) as refused:
        chat(max_output_tokens=given)
    assert (refused.value.status, refused.value.param) == (400, "max_output_tokens")
    assert "`max_output_tokens`" in refused.value.message


def test_the_format_of_the_text() -> None:
    schema = {"type": "object"}
    format_ = {"type": "json_schema", "name": "n", "schema": schema, "strict": True}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}}
    assert chat(text={"format": format_, "verbosity": "low"}) == {"response_format": wanted}
    assert chat(text={"format": {"type": "json_object"}}) == {
        "response_format": {"type": "json_object"}
    }
    assert chat(text={"format": {"type": "text"}, "verbosity": "low"}) == {}


def test_what_only_tunes_is_left_out() -> None:
    tuned = {"reasoning": {"effort": "high"}, "truncation": "auto", "store": True, "include": ["x"]}
    assert chat(**tuned, client_metadata={"a": "b"}, service_tier="flex", unheard_of=1) == {}


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
