"""The log: a line that can't be written is nobody's trouble."""

from __future__ import annotations

import sys

import pytest

from app import log
from app.settings import ObservabilitySettings


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


def test_a_line_is_written_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the lines of workers that share a log get into each other."""
    pieces = Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    log.configure(ObservabilitySettings(log_format="json"))
    log.get().warning("said", to="somebody")
    (line,) = pieces
    assert line.startswith("{") and line.endswith("}\n")
