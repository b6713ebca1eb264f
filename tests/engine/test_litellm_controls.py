"""Parameters that steer LiteLLM itself are recognised, and no others are taken for them."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.litellm_controls import (
    is_control,
    is_control_header,
    patience,
    without_controls,
)

# Names that LiteLLM calls its own, and that clients use for what isn't LiteLLM's alone.
_CLIENTS_TOO = {"metadata"}
FUNCTION = {"type": "function", "function": {"name": "f"}}
MCP = {"type": "mcp", "server_label": "litellm", "server_url": "litellm_proxy"}


def test_all_that_the_installed_litellm_calls_its_own_is_known() -> None:
    utils = pytest.importorskip("litellm.types.utils")
    auth = pytest.importorskip("litellm.proxy.auth.auth_utils")
    names = {*utils.all_litellm_params, *auth._BANNED_REQUEST_BODY_PARAMS}
    assert [name for name in sorted(names - _CLIENTS_TOO) if not is_control(name)] == []


def test_what_openais_clients_say_is_none_of_it() -> None:
    from openai.types import completion_create_params, embedding_create_params
    from openai.types.chat import completion_create_params as chat_create_params
    from openai.types.responses import response_create_params

    names: set[str] = set()
    for kind in (
        chat_create_params.CompletionCreateParamsBase,
        completion_create_params.CompletionCreateParamsBase,
        embedding_create_params.EmbeddingCreateParams,
        response_create_params.ResponseCreateParamsBase,
    ):
        names |= set(kind.__annotations__)
    assert len(names) > 40
    assert [name for name in sorted(names) if is_control(name)] == []


@pytest.mark.parametrize(
    "name",
    ["top_k", "min_p", "repetition_penalty", "chat_template_kwargs", "cache_prompt", "drop_params",
     "guided_json", "thinking", "priority", "keep_alive", "system"],
)  # fmt: skip
def test_what_model_servers_know_is_none_of_it(name: str) -> None:
    assert not is_control(name)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ({"model": "m", "messages": []}, {"model": "m", "messages": []}),
        ({"model": "m", "mock_response": "x", "timeout": 1, "api_base": "u"}, {"model": "m"}),
        ({"fallbacks": ["a"], "context_window_fallbacks": [], "num_retries": 9}, {}),
        ({"metadata": {"user_id": "u", "tags": ["t"]}}, {"metadata": {"user_id": "u"}}),
        ({"metadata": {"disable_global_guardrails": True}}, {"metadata": {}}),
        ({"extra_body": {"model": "premium"}, "additional_drop_params": ["stream"]}, {}),
        ({"vector_store_ids": ["v"], "tools": [FUNCTION, MCP]}, {"tools": [FUNCTION]}),
        ({"tools": [MCP, {"type": "file_search"}], "tool_choice": "required"}, {}),
        ({"metadata": "text", "litellm_metadata": {"tags": []}}, {}),
        ({"metadata": '{"tags": ["cloud"], "user_id": "u"}'}, {"metadata": {"user_id": "u"}}),
        ({"metadata": '{"user_id": "u"}'}, {"metadata": {"user_id": "u"}}),
        ({"metadata": '{"tags": ["cloud"], "x": NaN}'}, {}),
        ({"metadata": '"{\\"tags\\": []}"'}, {}),
        ({"metadata": "\ud800"}, {}),
    ],
)
def test_it_is_taken_out(body: dict[str, Any], kept: dict[str, Any]) -> None:
    before = {**body}
    assert without_controls(body) == kept
    assert body == before


def test_a_body_without_any_is_not_copied() -> None:
    body = {"model": "m", "metadata": {"user_id": "u"}}
    assert without_controls(body) is body


def test_headers() -> None:
    assert is_control_header(b"x-litellm-timeout")
    assert is_control_header(b"litellm-disable-message-redaction")
    assert not is_control_header(b"x-request-id")


@pytest.mark.parametrize(
    ("said", "header", "seconds"),
    [
        (None, None, None),
        (5, None, 5.0),
        (0.5, "2", 0.5),
        (3, "2", 2.0),
        ("4", None, 4.0),
        (0, "-1", None),
        (True, "nan", None),
        ("soon", "inf", None),
        ({"connect": 1}, "", None),
        (10**400, None, None),
    ],
)
def test_a_clients_patience(said: Any, header: str | None, seconds: float | None) -> None:
    headers = {} if header is None else {"x-litellm-timeout": header}
    body = {} if said is None else {"timeout": said}
    assert patience(body, headers) == seconds
