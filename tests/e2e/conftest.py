"""One real stack for all e2e tests of a run."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest

from mlx_stack_proxy.operator.local_stack.tiers import DEMO_TIERS, demo_model
from tests.conftest import CRASHED, missing

from .running_stack import RunningStack

SDK: dict[str, Any] = {"api_key": "local", "max_retries": 0, "timeout": 60}


@pytest.fixture(scope="session")
def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningStack]:
    for module in ("mlx_lm", "litellm"):
        if importlib.util.find_spec(module) is None:
            missing(f"the package {module}")
    for name in DEMO_TIERS:
        if demo_model(name) is None:
            missing(f"the demo model {name}")
    stack = RunningStack(tmp_path_factory.mktemp("run"))
    try:
        stack.wait_ready()
        CRASHED.append(stack.litellm_crashed)
        yield stack
    finally:
        CRASHED.clear()
        stack.stop()
        if request.session.testsfailed:
            print(stack.logs())


@pytest.fixture
def client(stack: RunningStack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{stack.url}/v1", **SDK) as client:
        yield client


@pytest.fixture
async def async_client(stack: RunningStack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{stack.url}/v1", **SDK) as client:
        yield client
