"""Headers, keys, model names and other paths, through all of the stack."""

from __future__ import annotations

import re

import httpx
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


def test_a_name_without_a_tier_begins_at_the_first(stack: RunningStack) -> None:
    reply = ask(stack, "gpt-4o-mini")
    assert reply.status_code == 200
    assert reply.headers["X-MLX-Stack-Tier"] == "fast"


@pytest.mark.parametrize("key", [None, "sk-anything"])
def test_any_key_or_none_is_let_in_and_litellms_own_is_put_in(
    stack: RunningStack, key: str | None
) -> None:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    assert ask(stack, "standard", headers=headers).status_code == 200
    behind = f"http://127.0.0.1:{stack.litellm_port}/v1/models"
    assert httpx.get(behind, headers=headers).is_error


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_other_paths_pass_through(stack: RunningStack, stream: bool) -> None:
    body = {"model": "standard", "prompt": "Hello", "max_tokens": 3, "stream": stream}
    reply = httpx.post(f"{stack.url}/v1/completions", json=body, timeout=60)
    assert reply.status_code == 200
    assert reply.headers["X-MLX-Stack-Mode"] == "passthrough"
    if stream:
        assert reply.text.rstrip().endswith("data: [DONE]")
    else:
        assert reply.json()["object"] == "text_completion"


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
