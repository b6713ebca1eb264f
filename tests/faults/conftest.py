"""Real LiteLLMs for the tests of this folder, each for the whole run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.conftest import CRASHED, missing
from tests.faults.catalogue import inside_settings
from tests.faults.litellm import LiteLLM
from tests.faults.places import Behind, Inside
from tests.support.ports import free_port

STATE = "state.db"
REFUSED = {**inside_settings(), "server": {"api_keys": ["sk-1"]}}


@pytest.fixture(scope="session")
def all_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LiteLLM]]:
    """Started at once, because each takes a quarter of a minute. `refused` will not get ready."""
    if importlib.util.find_spec("litellm") is None:
        missing("the package litellm")
    folders = {name: tmp_path_factory.mktemp(name) for name in ("before", "inside", "refused")}
    settings = {
        "before": None,
        "inside": {**inside_settings(), "state": {"path": str(folders["inside"] / STATE)}},
        "refused": REFUSED,
    }
    started: dict[str, LiteLLM] = {}
    try:
        for name, folder in folders.items():
            first = free_port(3)
            tiers = {"fast": first + 1, "standard": first + 2}
            started[name] = LiteLLM(folder, first, tiers, inside=settings[name])
            CRASHED.append(started[name].revive)
        for name in ("before", "inside"):
            started[name].wait_ready()
        yield started
    finally:
        CRASHED.clear()
        for one in started.values():
            one.stop()


@pytest.fixture(scope="session")
def litellm(all_three: dict[str, LiteLLM]) -> LiteLLM:
    """The one behind a proxy."""
    return all_three["before"]


@pytest.fixture(scope="session")
def litellm_inside(all_three: dict[str, LiteLLM]) -> LiteLLM:
    """The one with the reliability layer in its process, which keeps its state in a file."""
    return all_three["inside"]


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
