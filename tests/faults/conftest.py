"""A real LiteLLM for the tests of this folder, one for the whole run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.faults.litellm import LiteLLM
from tests.faults.places import Behind
from tests.support.ports import free_port

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            # Enough for LiteLLM's start, too, which falls to the first of them.
            item.add_marker(pytest.mark.timeout(420))


@pytest.fixture(scope="session")
def behind_ports() -> dict[str, int]:
    first = free_port(3)
    return {"litellm": first, "fast": first + 1, "standard": first + 2}


@pytest.fixture(scope="session")
def litellm(
    behind_ports: dict[str, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiteLLM]:
    if importlib.util.find_spec("litellm") is None:
        missing("the package litellm")
    ports = {name: behind_ports[name] for name in ("fast", "standard")}
    litellm = LiteLLM(tmp_path_factory.mktemp("litellm"), behind_ports["litellm"], ports)
    try:
        litellm.wait_ready()
        yield litellm
    finally:
        litellm.stop()


@pytest.fixture
def behind(litellm: LiteLLM, behind_ports: dict[str, int]) -> Behind:
    return Behind(litellm, {name: behind_ports[name] for name in ("fast", "standard")})
