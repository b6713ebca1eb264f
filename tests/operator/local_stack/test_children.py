"""What each child finds in its environment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from mlx_stack_proxy.operator.local_stack import children
from mlx_stack_proxy.operator.local_stack.children import ChildSpec
from mlx_stack_proxy.operator.local_stack.run_directory import RunDirectory
from mlx_stack_proxy.operator.local_stack.tiers import LocalTier

GIVEN = ("DATABASE_URL", "HF_TOKEN", "MLX_STACK_STATE__BACKEND", "MLX_STACK_SERVER__PORT", "PATH")
TIER = LocalTier("fast", "a/b", 8081, False)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda run: children.litellm(1, "key", run, 1), {"PATH"}),
        (
            lambda run: children.litellm(1, "key", run, 1, inside=True),
            {"PATH", "MLX_STACK_STATE__BACKEND"},
        ),
        (lambda run: children.proxy(1, "key", run, 1), {"PATH", "MLX_STACK_STATE__BACKEND"}),
        (lambda run: children.model_server(TIER, run, 1), set(GIVEN)),
    ],
    ids=["litellm", "inside", "proxy", "model server"],
)
def test_nothing_that_is_meant_for_others(
    make: Callable[[RunDirectory], ChildSpec],
    found: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in GIVEN:
        monkeypatch.setenv(name, "given")
    with contextlib.closing(RunDirectory(tmp_path)) as run:
        assert set(GIVEN) & make(run).environment.keys() == found
