"""Rules for all tests: what may be skipped where, and how property tests run."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.support.scripted_server import ScriptedServer

IN_CI = os.environ.get("CI", "").lower() in ("true", "1")

# On a busy machine the first example may take long: no deadline, in neither profile.
_QUIET = (HealthCheck.too_slow,)
settings.register_profile(
    "ci", max_examples=50, derandomize=True, deadline=None, suppress_health_check=_QUIET
)
settings.register_profile("dev", max_examples=100, deadline=None, suppress_health_check=_QUIET)
settings.load_profile("ci" if IN_CI else "dev")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Property tests run uncounted: counting lines makes them take two and a half times as long.

    What is covered is what the examples written down show.
    """
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(scope="session", autouse=True)
def no_state_at_home() -> Iterator[None]:
    """No test writes the state file that a proxy of this user's own would use."""
    path = Path("~/.mlx-stack/reliability.db").expanduser()
    before = path.exists()
    yield
    assert path.exists() == before, f"a test made {path}"


@pytest.fixture
async def upstream() -> AsyncIterator[ScriptedServer]:
    """What stands behind the proxy, and answers as the test says."""
    async with ScriptedServer() as server:
        yield server


@pytest.fixture
def no_collector() -> Iterator[None]:
    """What is garbage stays, and is there to be looked at."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the test runs: without the config.yaml of whoever runs it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One worker more than there are cores: many tests wait, for sockets and time limits.

    Four at most: a container may show more cores than it is given time on.
    """
    return min((os.cpu_count() or 1) + 1, 4)


def missing(what: str) -> None:
    """End this test because something outside PyPI isn't here: a skip, or in CI a failure."""
    if IN_CI:
        pytest.fail(f"{what} is missing, and CI has to have it", pytrace=False)
    pytest.skip(f"{what} is missing")


def require_program(name: str) -> str:
    """Where a program is that a test needs; without it the test is skipped, or fails in CI."""
    path = shutil.which(name)
    if path is None:
        missing(f"the program {name}")
    assert path is not None
    return path
