"""The limit of open files: raised as far as the system lets us, whatever it says."""

from __future__ import annotations

import resource

import pytest

from mlx_stack_proxy.server import open_files

UNLIMITED = resource.RLIM_INFINITY


class System:
    """What `resource` would say: the two limits, and the most that is taken in truth."""

    def __init__(self, soft: int, hard: int, most: int) -> None:
        self.limits = (soft, hard)
        self._most = most

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.limits

    def setrlimit(self, _: int, limits: tuple[int, int]) -> None:
        if limits[0] > self._most:
            raise ValueError("current limit exceeds maximum limit")
        assert limits[1] == self.limits[1], "the hard one is not ours to lower"
        self.limits = limits


@pytest.mark.parametrize(
    ("soft", "hard", "most", "expected"),
    [
        (1024, 524_288, 524_288, 65_536),  # systemd's own
        (1024, 4096, 4096, 4096),
        (256, UNLIMITED, 245_760, 65_536),  # a shell on macOS
        (256, UNLIMITED, 61_440, 10_240),  # where kern.maxfilesperproc is lower
        (256, UNLIMITED, 256, 256),
        (1_000_000, 1_000_000, 1_000_000, 1_000_000),  # containers'
        (UNLIMITED, UNLIMITED, 0, UNLIMITED),
        (512, 512, 512, 512),
    ],
)
def test_it_is_raised_as_far_as_it_goes(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int, expected: int
) -> None:
    system = System(soft, hard, most)
    monkeypatch.setattr(resource, "getrlimit", system.getrlimit)
    monkeypatch.setattr(resource, "setrlimit", system.setrlimit)
    assert open_files.raise_limit() == expected
