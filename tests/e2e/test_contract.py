"""Headers, keys, model names and other paths, through all of the stack."""

from __future__ import annotations

import re

import httpx
import openai
import pytest

from .running_stack import RunningStack

QUESTION = [{"role": "user", "content": "Who are you?"}]


def ask(stack: RunningStack, model: str, **more: object) -> httpx.Response:
    headers = more.pop("headers", None)
    body = {"model": model, "messages": QUESTION, "max_tokens": 40, **more}
    return httpx.post(
        f"{stack.url}/v1/chat/completions",
        json=body,
        headers=headers,  # type: ignore[arg-type]
        timeout=60,
    )


@pytest.mark.parametrize("stream", [False, True])
def test_the_headers_that_are_always_there(stack: RunningStack, stream: bool) -> None:
    headers = ask(stack, "standard", stream=stream).headers
    assert headers["X-MLX-Stack-Tier"] == "standard"
    assert headers["X-MLX-Stack-Retries"] == "0"
    assert headers["X-MLX-Stack-Attempts"] == "1"
    assert re.fullmatch(r"derived;[0-9a-f]{12}", headers["X-MLX-Stack-Session"])
    assert headers["X-MLX-Stack-Request-Id"] == headers["x-request-id"]
    assert headers["x-litellm-call-id"] == headers["x-request-id"], "LiteLLM has taken it over"
    assert headers["x-litellm-model-group"] == "standard"
    assert "set-cookie" not in headers
    assert not [name for name in headers if name.endswith("-api-base")]
    assert headers["content-type"].startswith("text/event-stream" if stream else "application/json")


def test_a_named_session(stack: RunningStack) -> None:
    headers = ask(stack, "standard", headers={"X-MLX-Stack-Session": "my-agent-7"}).headers
    assert "my-agent-7" not in str(headers)
    assert re.fullmatch(r"[^;]+;[0-9a-f]{12}", headers["X-MLX-Stack-Session"])


@pytest.mark.parametrize("model", ["auto", "gpt-4o-mini"])
def test_names_without_a_tier_begin_at_the_first(stack: RunningStack, model: str) -> None:
    reply = ask(stack, model)
    assert reply.status_code == 200
    assert reply.headers["X-MLX-Stack-Tier"] == "fast"


def test_a_tier_asked_for_in_a_header(stack: RunningStack) -> None:
    reply = ask(stack, "auto", headers={"X-MLX-Stack-Tier": "standard"})
    assert reply.headers["X-MLX-Stack-Tier"] == "standard"
    refused = ask(stack, "auto", headers={"X-MLX-Stack-Tier": "gigantic"})
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert "gigantic" in refused.json()["error"]["message"]


@pytest.mark.parametrize("key", [None, "local", "sk-anything"])
def test_any_key_or_none_is_let_in_and_litellms_own_is_put_in(
    stack: RunningStack, key: str | None
) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    assert ask(stack, "standard", headers=headers).status_code == 200
    behind = f"http://127.0.0.1:{stack.litellm_port}/v1/models"
    assert httpx.get(behind, headers=headers).is_error


def test_models_are_auto_and_the_tiers_first(client: openai.OpenAI) -> None:
    names = [model.id for model in client.models.list()]
    assert names[:3] == ["auto", "fast", "standard"]
    assert len(names) == len(set(names))


def test_bad_input_is_refused_with_a_sentence(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="standard", messages=[])
    assert caught.value.param == "messages"
    assert caught.value.response.headers["x-should-retry"] == "false"


def test_other_paths_pass_through(stack: RunningStack) -> None:
    body = {"model": "standard", "prompt": "Hello", "max_tokens": 3}
    reply = httpx.post(f"{stack.url}/v1/completions", json=body, timeout=60)
    assert reply.status_code == 200
    assert reply.headers["X-MLX-Stack-Mode"] == "passthrough"
    assert reply.json()["object"] == "text_completion"


def test_other_paths_pass_through_streamed(stack: RunningStack) -> None:
    body = {"model": "standard", "prompt": "Hello", "max_tokens": 3, "stream": True}
    reply = httpx.post(f"{stack.url}/v1/completions", json=body, timeout=60)
    assert reply.headers["X-MLX-Stack-Mode"] == "passthrough"
    assert reply.headers["content-type"].startswith("text/event-stream")
    assert reply.text.rstrip().endswith("data: [DONE]")


def test_responses_and_messages_are_served_by_litellm(stack: RunningStack) -> None:
    responses = {"model": "standard", "input": "Who are you?", "max_output_tokens": 40}
    reply = httpx.post(f"{stack.url}/v1/responses", json=responses, timeout=60)
    assert reply.status_code == 200, reply.text
    assert "demo model" in reply.json()["output"][0]["content"][0]["text"]
    messages = {"model": "standard", "messages": QUESTION, "max_tokens": 40}
    reply = httpx.post(f"{stack.url}/v1/messages", json=messages, timeout=60)
    assert reply.status_code == 200, reply.text
    assert "demo model" in reply.json()["content"][0]["text"]


def test_an_unknown_path_is_litellms_to_refuse(stack: RunningStack) -> None:
    reply = httpx.get(f"{stack.url}/v1/no-such-thing")
    assert reply.status_code == 404


def test_health_ready_and_metrics(stack: RunningStack) -> None:
    assert httpx.get(f"{stack.url}/health").status_code == 200
    ready = httpx.get(f"{stack.url}/ready")
    assert ready.status_code == 200
    assert set(ready.json()["tiers"]) == {"fast", "standard"}
    assert "mlx_stack_requests_total" in httpx.get(f"{stack.url}/metrics").text
