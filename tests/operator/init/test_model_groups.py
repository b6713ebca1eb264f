"""What each source tells of a model group."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.operator.init.model_groups import (
    Deployment,
    ModelGroup,
    filled_in,
    from_entries,
    from_model_list,
    from_stack,
)


def entry(name: str, model: str, base: str | None = None, **info: Any) -> dict[str, Any]:
    params = {"model": model, **({"api_base": base} if base else {})}
    return {"model_name": name, "litellm_params": params, "model_info": info}


def group(model: str, base: str | None = None, **info: Any) -> ModelGroup:
    return from_entries([entry("g", model, base, **info)])["g"]


def test_several_entries_of_one_name_are_one_group_with_the_smallest_window() -> None:
    found = from_entries(
        [
            entry("a", "openai/x", "http://localhost:1/v1", max_input_tokens=9, mode="chat"),
            entry("b", "openai/y"),
            entry("a", "openai/x", "http://localhost:2/v1", max_input_tokens=7.0),
            entry("a", "openai/x", "http://localhost:3/v1", supports_reasoning=True),
        ]
    )
    assert list(found) == ["a", "b"]
    assert (found["a"].window, found["a"].mode, found["a"].reasoning) == (7, "chat", True)
    assert [one.api_base for one in found["a"].deployments] == [
        f"http://localhost:{port}/v1" for port in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "odd",
    [
        None,
        "x",
        [None, 1, "x", []],
        [{}],
        [{"model_name": 7}],
        [{"model_name": ""}],
    ],
    ids=str,
)
def test_what_is_no_list_of_models_tells_nothing(odd: Any) -> None:
    assert from_entries(odd) == {}
    assert from_model_list({"data": odd}) == from_model_list(odd) == {}
    assert from_stack({"tiers": odd}) == from_stack(odd) == {}


@pytest.mark.parametrize("odd", [None, "9", 0, True, -1, {}])
def test_a_window_that_is_none(odd: Any) -> None:
    assert group("openai/x", max_input_tokens=odd).window is None


def test_an_entry_of_odd_parts_is_still_a_name() -> None:
    odd = {"model_name": "a", "litellm_params": 7, "model_info": ["x"]}
    assert from_entries([odd]) == {"a": ModelGroup("a")}


def test_a_model_list_tells_names_windows_and_modes() -> None:
    found = from_model_list(
        {"data": [{"id": "a", "max_input_tokens": 5, "mode": "embedding"}, {"id": "b"}, {"id": 7}]}
    )
    assert found == {"a": ModelGroup("a", window=5, mode="embedding"), "b": ModelGroup("b")}


def test_a_stack_tells_ports_and_reasoning() -> None:
    found = from_stack(
        {
            "tiers": [
                {"name": "fast", "model": "qwen3.5-3b", "port": 8001, "vllm_flags": {}},
                {"name": "standard", "port": 8000, "vllm_flags": {"reasoning_parser": "qwen3"}},
                {"name": "longctx", "port": "8002"},
            ]
        }
    )
    assert found["fast"].deployments == (
        Deployment("openai/qwen3.5-3b", "http://localhost:8001/v1"),
    )
    assert (found["fast"].reasoning, found["standard"].reasoning) == (False, True)
    assert "longctx" not in found


def test_the_first_source_says_which_groups_there_are_the_others_fill_up() -> None:
    first = {"a": ModelGroup("a", window=5), "b": ModelGroup("b")}
    second = {"a": ModelGroup("a", (Deployment("m"),), window=6), "c": ModelGroup("c")}
    third = {"a": ModelGroup("a", (Deployment("n"),), reasoning=True, mode="chat")}
    found = filled_in(first, second, third)
    assert found == {
        "a": ModelGroup("a", (Deployment("m"),), 5, "chat", True),
        "b": ModelGroup("b"),
    }


@pytest.mark.parametrize(
    ("model", "base", "place"),
    [
        ("openai/x", "http://localhost:8000/v1", "here"),
        ("openai/x", "http://127.0.0.1:8000/v1", "here"),
        ("openai/x", "http://[::1]:8000/v1", "here"),
        ("openai/x", "http://host.docker.internal:8000/v1", "here"),
        ("ollama_chat/llama3", None, "here"),
        ("lm_studio/x", None, "here"),
        ("openai/x", "http://192.168.1.7:8000/v1", "network"),
        ("openai/x", "http://studio.local:8000", "network"),
        ("openai/x", "http://studio:8000", "network"),
        ("openai/x", "https://api.example.com/v1", "cloud"),
        ("openai/x", "https://8.8.8.8/v1", "cloud"),
        ("openai/gpt-4o", None, "cloud"),
        ("openrouter/anthropic/claude", None, "cloud"),
        ("openai/x", "os.environ/BASE", "unknown"),
        ("openai/x", "http://[::1", "unknown"),
        # Where a cloud's machine gets its credentials, in each notation that a resolver knows.
        ("openai/x", "http://169.254.169.254/latest", "unknown"),
        ("openai/x", "http://2852039166/latest", "unknown"),
        ("openai/x", "http://0xA9FEA9FE/", "unknown"),
        ("openai/x", "http://169.254.43518", "unknown"),
        ("openai/x", "http://[::ffff:169.254.169.254]/v1", "unknown"),
        ("openai/x", "http://[fe80::1]/v1", "unknown"),
    ],
)
def test_where_requests_go(model: str, base: str | None, place: str) -> None:
    assert group(model, base).place == place


def test_the_farthest_deployment_decides_where_a_group_is() -> None:
    here, away = Deployment("openai/x", "http://localhost:1"), Deployment("openai/gpt-4o")
    assert ModelGroup("g", (here, away)).place == "cloud"
    assert ModelGroup("g", ()).place == "unknown"


@pytest.mark.parametrize(
    ("model", "billions"),
    [
        ("openai/mlx-community/Qwen3-4B-4bit", 4),
        ("openai/qwen3.5-0.8b", 0.8),
        ("openai/Qwen3-30B-A3B", 30),
        ("openai/mixtral-8x7b", 56),
        ("openai/default_model", None),
        ("openai/gpt-4o", None),
        ("openai/llama-4bit", None),
    ],
)
def test_the_size_in_a_name(model: str, billions: float | None) -> None:
    assert group(model).billions == billions


@pytest.mark.parametrize(
    ("model", "info", "chats"),
    [
        ("openai/text-embedding-3-small", {}, False),
        ("openai/bge-reranker", {}, False),
        ("openai/whisper-1", {}, False),
        ("openai/tts-1", {}, False),
        ("openai/qwen3", {}, True),
        ("openai/qwen3", {"mode": "embedding"}, False),
        ("openai/embedded-chat", {"mode": "chat"}, True),
    ],
)
def test_what_is_for_chat(model: str, info: dict[str, str], chats: bool) -> None:
    assert group(model, **info).chats is chats
