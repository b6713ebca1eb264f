"""Rules for all tests: what may be skipped where, and how property tests run."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from xdist.scheduler import LoadFileScheduling

from tests.support.scripted_server import ScriptedServer

IN_CI = os.environ.get("CI", "").lower() in ("true", "1")
# Folders whose tests share real servers, which the first test of each folder waits for.
ON_REAL_SERVERS = ("tests/e2e", "tests/faults")
THEIR_TIMEOUT = 420  # seconds, of a test in them; the servers start in half a minute on two cores

# LiteLLM, where a test imports it, does not download its price list.
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")

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
    here = Path(__file__).parents[1]
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.no_cover)
        if any(here / name in item.path.parents for name in ON_REAL_SERVERS):
            item.add_marker(pytest.mark.timeout(THEIR_TIMEOUT))


# Of each real LiteLLM: whether it has crashed since it was last asked. It is started anew.
CRASHED: list[Callable[[], bool]] = []


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a test in which LiteLLM's process crashed: CPython 3.11's contexts do so now and then.

    (``hamt_node_bitmap_assoc``, by the kernel's log.)
    """
    try:
        return (yield)
    except Exception:
        if any(crashed() for crashed in CRASHED):
            pytest.skip("LiteLLM's own process crashed (SIGSEGV)")
        raise
    finally:
        for crashed in CRASHED:
            crashed()


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


class _Scheduling(LoadFileScheduling):
    """Gives a file to one worker, and a folder whose tests share real servers, too.

    xdist 3.8's own `loadgroup` groups nothing under pytest 9.2: it writes the group into a field of
    the test's node that pytest no longer reads.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        folder = file.rpartition("/")[0]
        return folder if folder.endswith(ON_REAL_SERVERS) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """For `--dist loadfile`."""
    return _Scheduling(config, log) if config.getvalue("dist") == "loadfile" else None


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
