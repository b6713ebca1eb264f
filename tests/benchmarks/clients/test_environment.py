"""Where a framework runs."""

from __future__ import annotations

from pathlib import Path

import psutil

from benchmarks.clients.environment import Environment


async def test_daemons_end_with_their_script(tmp_path: Path) -> None:
    script = "setsid sleep 300 >/dev/null 2>&1 </dev/null & echo $!; echo here"
    ended = await Environment(tmp_path).run(script, tmp_path, {}, 60)
    number, said = ended.said.split()
    assert (ended.code, said) == (0, "here")
    assert not psutil.pid_exists(int(number)) or _is_dead(int(number))


def _is_dead(number: int) -> bool:
    try:
        return psutil.Process(number).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_a_script_that_goes_on_is_ended(tmp_path: Path) -> None:
    ended = await Environment(tmp_path).run("echo begun; sleep 300", tmp_path, {}, 1)
    assert ended.code == -9
    assert ended.said.startswith("begun")


async def test_home_is_its_own(tmp_path: Path) -> None:
    ended = await Environment(tmp_path).run("echo $HOME $PWD $MORE", tmp_path, {"MORE": "x"}, 60)
    assert ended.said.split() == [str(tmp_path), str(tmp_path), "x"]
