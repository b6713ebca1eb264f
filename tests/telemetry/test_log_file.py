"""The log in a file: bounded, shared by processes, and nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from mlx_stack_proxy.telemetry.log_file import LogFile

LINE = "x" * 99 + "\n"


def all_text(path: Path) -> str:
    return "".join(file.read_text() for file in path.parent.iterdir())


def test_it_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "proxy.log"
    LogFile(path).write("a line\n")
    assert path.read_text() == "a line\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_old_files_are_numbered_and_the_oldest_go(tmp_path: Path) -> None:
    path = tmp_path / "proxy.log"
    log = LogFile(path, max_bytes=1000, kept=2)
    for number in range(70):
        log.write(f"{number:99d}\n")
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"proxy.log", "proxy.log.1", "proxy.log.2"}
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    text = "".join((tmp_path / f"proxy.log{end}").read_text() for end in (".2", ".1", ""))
    kept = [int(line) for line in text.splitlines()]
    assert kept == list(range(70))[-len(kept) :]
    assert len(kept) >= 20


def test_one_that_is_full_is_set_aside_at_the_start(tmp_path: Path) -> None:
    """A service that fails at once, again and again, never gets to writing much."""
    path = tmp_path / "proxy.log"
    path.write_text(LINE * 11)
    LogFile(path, max_bytes=1000).write("begun\n")
    assert path.read_text() == "begun\n"
    assert (tmp_path / "proxy.log.1").read_text() == LINE * 11


def test_two_of_one_file_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "proxy.log"
    one, other = LogFile(path, 1000, kept=50), LogFile(path, 1000, kept=50)
    for number in range(100):
        one.write(f"one {number:95d}\n")
        other.write(f"two {number:95d}\n")
    lines = all_text(path).splitlines()
    for name in ("one", "two"):
        assert sorted(int(line[4:]) for line in lines if line.startswith(name)) == [*range(100)]


def test_what_others_print_is_in_it_also_after_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "proxy.log"
    code = f"""
import os, sys
from mlx_stack_proxy.telemetry import log_file
log_file.take_over(__import__('pathlib').Path({str(path)!r}))
print("from print")
sys.stderr._max_bytes = 100
sys.stderr.write("y" * 200)
sys.stderr.write("z" * 70000)
os.write(2, b"from a library")
sys.stdout.write("end")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=env())
    assert (done.stdout, done.stderr) == (b"", b"")
    assert "from print" in all_text(path)
    assert path.read_text() == "from a libraryend"


def env() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "app")}
