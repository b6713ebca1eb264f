"""The YAML of the first document: each of its keys, set to something else, changes what is done.

The keys of `loop_detection` are in test_loops_specified.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from jsonschema import Draft202012Validator

from mlx_stack_proxy import settings
from mlx_stack_proxy.settings import DEFAULT_TIERS
from mlx_stack_proxy.settings_source import SettingsError, from_mapping
from tests.server.asking import ask
from tests.server.calling import BAD, GOOD, TOOLS, calling
from tests.server.climbing import asked
from tests.server.conftest import StartProxy
from tests.support.replies import text_stream
from tests.support.scripted_server import Reply, ScriptedServer

Json = dict[str, Any]
YAML = """
loop_detection: {enabled: true, window_size: 10, similarity_threshold: 0.95, duplicate_threshold: 3}
tool_validation:
  enabled: true
  max_retries: 3
  retry_with_correction: true
  validate_json: true
  validate_schema: true
  validate_tool_names: true
token_budget:
  enabled: true
  per_session: 500000
  per_hour: 2000000
  max_output_tokens: 16384
  policy: warn_and_continue
escalation:
  enabled: true
  chain: [fast, standard, longctx, premium]
  max_retries_before_escalate: 3
  escalate_on: [tool_validation_failure, loop_detected, timeout, server_error]
  cloud_fallback:
    provider: openrouter
    model: anthropic/claude-sonnet-4-6
    api_key_env: OPENROUTER_API_KEY
"""
RULES = "reliability"
SCHEMA = Path(settings.__file__).with_name("config.schema.json")


def specified(**changes: Any) -> Json:
    """Return the document's settings, with keys such as ``escalation__enabled`` set otherwise."""
    given = {
        f"{RULES}.{section}.{key}": value
        for section, keys in yaml.safe_load(YAML).items()
        for key, value in keys.items()
        if key != "cloud_fallback"
    }
    given |= {f"{RULES}.{key.replace('__', '.')}": value for key, value in changes.items()}
    return {"tiers": DEFAULT_TIERS, **given}


@pytest.fixture(autouse=True)
async def models(upstream: ScriptedServer) -> None:
    upstream.models = ("fast", "standard", "longctx", "premium")


async def tiers_asked(
    upstream: ScriptedServer, start_proxy: StartProxy, reply: Reply, **changes: Any
) -> list[str]:
    """Return the tiers that are asked where each reply is this one."""
    upstream.otherwise = lambda call: reply
    await ask(await start_proxy(specified(**changes)), tools=TOOLS)
    return asked(upstream)


INVALID = calling(BAD)
UNKNOWN = calling("{}", name="execute_code")
BROKEN = calling('{"query": quokka, [}')
FAST, STANDARD = ["fast"] * 4, ["standard"] * 4
ALL = [*FAST, *STANDARD, *["longctx"] * 2]  # ten attempts in all


@pytest.mark.parametrize(
    ("changes", "reply", "tiers"),
    [
        ({}, INVALID, ALL),
        ({"tool_validation__enabled": False}, INVALID, ["fast"]),
        ({"tool_validation__max_retries": 1}, INVALID, ["fast", "fast", "standard", "standard"]),
        ({"tool_validation__max_retries": 0}, INVALID, ["fast", "standard", "longctx"]),
        ({"tool_validation__validate_schema": False}, INVALID, ["fast"]),
        ({}, UNKNOWN, ALL),
        ({"tool_validation__validate_tool_names": False}, UNKNOWN, ["fast"]),
        ({}, BROKEN, ALL),
        ({"tool_validation__validate_json": False}, BROKEN, ["fast"]),
        ({"escalation__enabled": False}, INVALID, FAST),
        ({"escalation__chain": ["fast", "longctx"]}, INVALID, [*FAST, *["longctx"] * 4]),
        ({"escalation__max_retries_before_escalate": 1}, INVALID, ["fast", "fast", "standard"]),
        ({"escalation__escalate_on": ["timeout", "server_error"]}, INVALID, FAST),
    ],
)
async def test_which_tiers_are_asked(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    changes: Json,
    reply: Reply,
    tiers: list[str],
) -> None:
    found = await tiers_asked(upstream, start_proxy, reply, **changes)
    assert found[: len(tiers)] == tiers
    assert len(found) == len(tiers) or len(tiers) > 1


@pytest.mark.parametrize("corrects", [True, False])
async def test_retry_with_correction(
    upstream: ScriptedServer, start_proxy: StartProxy, corrects: bool
) -> None:
    upstream.will(INVALID, calling(GOOD))
    await ask(
        await start_proxy(specified(tool_validation__retry_with_correction=corrects)), tools=TOOLS
    )
    first, second = [call.json()["messages"] for call in upstream.calls]
    assert (second != first) is corrects


@pytest.mark.parametrize(
    ("changes", "status", "warned", "limit"),
    [
        ({}, 200, None, None),
        ({"per_session": 20}, 200, "130%", None),
        ({"per_hour": 20}, 200, "130%", None),
        ({"per_session": 20, "enabled": False}, 200, None, None),
        ({"per_session": 20, "policy": "hard_stop"}, 429, "130%", None),
        ({"max_output_tokens": 50}, 200, None, 50),
    ],
)
async def test_the_budget(
    start_proxy: StartProxy, *, changes: Json, status: int, warned: str | None, limit: int | None
) -> None:
    proxy = await start_proxy(specified(**{f"token_budget__{k}": v for k, v in changes.items()}))
    proxy.upstream.otherwise = lambda call: text_stream()
    for _ in range(3):
        response = await ask(proxy)
    assert response.status_code == status
    assert response.headers.get("x-mlx-stack-budget-warning") == warned
    assert limit is None or proxy.upstream.calls[0].json()["max_tokens"] == limit


# The cloud


@pytest.fixture
async def cloud(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedServer]:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-first")
    monkeypatch.setenv("ANOTHER_KEY", "sk-second")
    async with ScriptedServer() as server:
        server.otherwise = lambda call: calling(GOOD)
        yield server


@pytest.mark.parametrize(
    ("changes", "model", "key"),
    [
        ({}, "anthropic/claude-sonnet-4-6", "sk-first"),
        ({"model": "vendor/large"}, "vendor/large", "sk-first"),
        ({"api_key_env": "ANOTHER_KEY"}, "anthropic/claude-sonnet-4-6", "sk-second"),
    ],
)
async def test_the_cloud(
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    cloud: ScriptedServer,
    *,
    changes: Json,
    model: str,
    key: str,
) -> None:
    upstream.models = ("fast", "standard", "longctx")
    fallback = yaml.safe_load(YAML)["escalation"]["cloud_fallback"]
    fallback |= {"base_url": f"{cloud.url}/v1", **changes}
    await tiers_asked(upstream, start_proxy, INVALID, escalation__cloud_fallback=fallback)
    (call,) = cloud.calls
    assert call.json()["model"] == model
    assert call.header("authorization") == f"Bearer {key}"


@pytest.mark.specification(94)
def test_a_key_goes_only_to_its_own_provider() -> None:
    given = {"reliability": yaml.safe_load(YAML)}
    fallback = from_mapping(given).reliability.escalation.cloud_fallback
    assert fallback is not None and fallback.url == "https://openrouter.ai/api/v1"
    given["reliability"]["escalation"]["cloud_fallback"]["provider"] = "openai"
    with pytest.raises(SettingsError, match="provider 'openai' needs its base_url"):
        from_mapping(given)


@pytest.mark.specification(101)
def test_an_editor_takes_it_as_it_is() -> None:
    check = Draft202012Validator(orjson.loads(SCHEMA.read_bytes()))
    given = {"reliability": yaml.safe_load(YAML)}
    check.validate(given)
    given["reliability"]["loop_detection"]["similarity_treshold"] = 0.9
    assert not check.is_valid(given)
