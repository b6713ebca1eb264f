"""Two real LiteLLMs for the tests of this folder, each for the whole run."""

from __future__ import annotations

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
STATE = "state.db"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            # Enough for LiteLLM's start, too, which falls to the first of them.
            item.add_marker(pytest.mark.timeout(420))


@pytest.fixture(scope="session")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiteLLM, LiteLLM]]:
    """Started at once, for each takes a quarter of a minute."""
    if importlib.util.find_spec("litellm") is None:
        missing("the package litellm")
    inside = tmp_path_factory.mktemp("inside")
    settings = {**inside_settings(), "state": {"path": str(inside / STATE)}}
    started = _start(tmp_path_factory.mktemp("litellm")), _start(inside, settings)
    try:
        for one in started:
            one.wait_ready()
        yield started
    finally:
        for one in started:
            one.stop()


@pytest.fixture(scope="session")
def litellm(both: tuple[LiteLLM, LiteLLM]) -> LiteLLM:
    """The one behind a proxy."""
    return both[0]


@pytest.fixture(scope="session")
def litellm_inside(both: tuple[LiteLLM, LiteLLM]) -> LiteLLM:
    """The one with the reliability layer in its process, which keeps its state in a file."""
    return both[1]


def _start(folder: Path, inside: Json | None = None) -> LiteLLM:
    first = free_port(3)
    return LiteLLM(folder, first, {"fast": first + 1, "standard": first + 2}, inside=inside)


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
