"""The log: what a line says, and the file: bounded, shared by processes, and nothing lost."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mlx_stack_proxy import log
from mlx_stack_proxy.engine.outcome import Outcome, Remarks
from mlx_stack_proxy.engine.record import record_of
from mlx_stack_proxy.engine.steps import Deliver
from mlx_stack_proxy.main import build_services
from mlx_stack_proxy.settings import ObservabilitySettings, Settings
from mlx_stack_proxy.telemetry import accounts
from mlx_stack_proxy.telemetry.log_file import LogFile
from tests.engine.exchanges import exchange
from tests.support.running_proxy import proxy_config


class Full:
    """A standard error whose disk is full."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None:
        raise OSError(28, "No space left on device")

    def isatty(self) -> bool:
        return False


def test_a_full_disk_breaks_no_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    log.configure(ObservabilitySettings(log_format="json"))
    log.get().warning("said", to="nobody")
    log.fault("internal_error", ValueError("x"), request_id="req_1")


class Pieces(list[str]):
    """A standard error that notes what each write brings."""

    def write(self, text: str) -> int:
        self.append(text)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def logged_to(monkeypatch: pytest.MonkeyPatch) -> Pieces:
    """Where the log goes from now on; no fixture, since pytest replaces standard error after it."""
    pieces = Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    log.configure(ObservabilitySettings(log_format="json"))
    return pieces


def test_a_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the lines of workers that share a log get into each other."""
    pieces = logged_to(monkeypatch)
    log.get().warning("said", to="somebody")
    (line,) = pieces
    assert line.startswith("{") and line.endswith("}\n")


def test_a_time_is_written_as_iso_8601_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = logged_to(monkeypatch)
    log.get().warning("ours")
    logging.getLogger("theirs").warning("a library's")
    said = [json.loads(line)["timestamp"] for line in "".join(pieces).splitlines()]
    for one in said:
        assert one.endswith("Z")
        at = datetime.fromisoformat(one)
        assert timedelta() <= datetime.now(UTC) - at < timedelta(minutes=1)
    assert len(said) == 2


def test_no_line_has_a_control_character(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = logged_to(monkeypatch)
    text = "".join(map(chr, range(256))) + "\u2028é"
    log.get().warning("said", text=text)
    (line,) = pieces
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", line[:-1])
    assert json.loads(line)["text"] == text


def test_the_line_of_an_exchange_says_what_it_took(capsys: pytest.CaptureFixture[str]) -> None:
    """A guided reply is right at once, and so is one that an earlier second opinion confirmed."""
    log.configure(ObservabilitySettings(log_format="json"), libraries=False)
    services = build_services(Settings(**proxy_config("http://127.0.0.1:9")))
    one, guided = exchange(), Remarks(reply_notes={"Repairs": "guided"})
    one.outcomes = [Outcome("fast", reason="loop_detected", remarks=guided)]
    one.steps.append(Deliver())
    accounts.close(services, record_of(one, "ok", 100.0, 1.0), "ok", 2.0)
    line = json.loads(capsys.readouterr().err)
    assert (line["repairs"], line["failed"]) == ("guided", ["fast:loop_detected:200"])
    assert (line["event"], line["attempts"], line["retries"]) == ("exchange", 1, 0)
    assert "escalated_from" not in line and line["seconds"] == 2.0


# In a file

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
