"""One real stack for all e2e tests of a run."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from mlx_stack_proxy.operator.local_stack.tiers import DEMO_TIERS, demo_model
from tests.conftest import missing

from .running_stack import REPOSITORY, RunningStack

HERE = Path(__file__).parent
# The demo tools, which a tool-calling client offers: tests.e2e.test_tools.
sys.path.insert(0, str(REPOSITORY / "deploy" / "local"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "stops_the_stack: ends the shared stack, so it runs last")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.e2e)
        # Enough for the stack's start, too, which falls to the first of them.
        item.add_marker(pytest.mark.timeout(420))
    # The test that stops the stack comes last.
    ours.sort(key=lambda item: item.get_closest_marker("stops_the_stack") is not None)
    places = [place for place, item in enumerate(items) if HERE in item.path.parents]
    for place, item in zip(places, ours, strict=True):
        items[place] = item


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
        yield stack
    finally:
        stack.stop()
        if request.session.testsfailed:
            print(stack.logs())


@pytest.fixture
def client(stack: RunningStack) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(**_how(stack)) as client:
        yield client


@pytest.fixture
async def async_client(stack: RunningStack) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(**_how(stack)) as client:
        yield client


def _how(stack: RunningStack) -> dict[str, Any]:
    return {
        "base_url": f"{stack.url}/v1",
        "api_key": "local",
        "max_retries": 0,
        "timeout": 60,
    }
