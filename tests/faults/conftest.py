"""Two real LiteLLMs for the tests of this folder, each for the whole run."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.faults.catalogue import Json, inside_settings
from tests.faults.litellm import LiteLLM
from tests.faults.places import Behind, Inside
from tests.support.ports import free_port

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            # Enough for LiteLLM's start, too, which falls to the first of them.
            item.add_marker(pytest.mark.timeout(420))


@pytest.fixture(scope="session")
def litellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiteLLM]:
    """The one behind a proxy."""
    with _running(tmp_path_factory.mktemp("litellm")) as litellm:
        yield litellm


@pytest.fixture(scope="session")
def litellm_inside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiteLLM]:
    """The one with the reliability layer in its process."""
    with _running(tmp_path_factory.mktemp("inside"), inside_settings()) as litellm:
        yield litellm


@contextlib.contextmanager
def _running(folder: Path, inside: Json | None = None) -> Iterator[LiteLLM]:
    if importlib.util.find_spec("litellm") is None:
        missing("the package litellm")
    first = free_port(3)
    ports = {"fast": first + 1, "standard": first + 2}
    litellm = LiteLLM(folder, first, ports, inside=inside)
    try:
        litellm.wait_ready()
        yield litellm
    finally:
        litellm.stop()


@pytest.fixture
def behind(litellm: LiteLLM) -> Behind:
    return Behind(litellm, litellm.ports)


@pytest.fixture(params=["proxy", "inside"])
def column(request: pytest.FixtureRequest) -> Behind:
    """A proxy before LiteLLM, or its reliability layer inside LiteLLM."""
    if request.param == "proxy":
        return request.getfixturevalue("behind")
    litellm = request.getfixturevalue("litellm_inside")
    return Inside(litellm, litellm.ports)
