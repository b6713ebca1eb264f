"""The log: a line that can't be written is nobody's trouble."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime, tzinfo

import pytest

from mlx_stack_proxy.settings import ObservabilitySettings
from mlx_stack_proxy.telemetry import log


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


class FullForNow(Full):
    """One that takes the beginning of a line, and later has room again."""

    def __init__(self) -> None:
        self.text = ""
        self.room: int | None = None

    def write(self, text: str) -> int:
        self.text += text[: self.room]
        if self.room is not None:
            super().write(text)
        return len(text)


def test_a_line_that_was_broken_off_takes_no_other_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = FullForNow()
    monkeypatch.setattr(sys, "stderr", disk)
    log.configure(ObservabilitySettings(log_format="json"))
    for disk.room, said in ((None, "before"), (9, "half"), (0, "none"), (None, "after")):
        log.get().warning(said)
    log.get().warning("later")
    before, half, *others = disk.text.splitlines()
    assert len(half) == 9
    whole = [json.loads(line)["event"] for line in (before, *others)]
    assert whole == ["before", "after", "later"]


class Pieces(list[str]):
    """A standard error that notes what each write brings."""

    def write(self, text: str) -> int:
        self.append(text)
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False


def test_a_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the lines of workers that share a log get into each other."""
    pieces = Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    log.configure(ObservabilitySettings(log_format="json"))
    log.get().warning("said", to="somebody")
    (line,) = pieces
    assert line.startswith("{") and line.endswith("}\n")


@pytest.mark.parametrize("microsecond", [0, 1, 120_000, 999_999])
def test_a_time_is_written_as_iso_8601_has_it(
    microsecond: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = datetime(2026, 11, 25, 10, 0, 9, microsecond, UTC)

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Stopped:
            return at  # type: ignore[return-value]

    pieces = Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    monkeypatch.setattr(log, "datetime", Stopped)
    log.configure(ObservabilitySettings(log_format="json"))
    log.get().warning("ours")
    logging.getLogger("theirs").warning("a library's")
    said = [json.loads(line)["timestamp"] for line in "".join(pieces).splitlines()]
    assert said == [at.isoformat().replace("+00:00", "Z")] * 2


def test_no_line_has_a_control_character(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    log.configure(ObservabilitySettings(log_format="json"))
    text = "".join(map(chr, range(256))) + "\u2028é"
    log.get().warning("said", text=text)
    (line,) = pieces
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", line[:-1])
    assert json.loads(line)["text"] == text
