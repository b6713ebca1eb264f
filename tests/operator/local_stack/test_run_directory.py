from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from mlx_stack_proxy.operator import CommandError
from mlx_stack_proxy.operator.local_stack.run_directory import USUAL, RunDirectory


def test_it_is_ours_alone(tmp_path: Path) -> None:
    with contextlib.closing(RunDirectory(str(tmp_path / "a" / "run"))) as run:
        assert run.path.stat().st_mode & 0o077 == 0
        assert (run.path / "up.lock").stat().st_mode & 0o777 == 0o600
        holder = rf"in use by another .*\(process {os.getpid()}\)"
        with pytest.raises(CommandError, match=holder) as caught:
            RunDirectory(str(run.path))
        assert "\n" not in str(caught.value)
    RunDirectory(str(run.path)).close()


def test_the_home_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with contextlib.closing(RunDirectory(USUAL)) as run:
        assert run.path == tmp_path / ".mlx-stack" / "run"


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="--run-dir"):
        RunDirectory(str(tmp_path / "file" / "run"))


def test_the_last_runs_log_is_kept(tmp_path: Path) -> None:
    with contextlib.closing(RunDirectory(str(tmp_path))) as run:
        run.log_file("fast").write_text("first")
        log = run.log_file("fast")
        assert not log.exists()
        assert (run.logs / "fast.log.old").read_text() == "first"
