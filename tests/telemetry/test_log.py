"""The log: a line that can't be written is nobody's trouble."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime, timedelta

import pytest

from mlx_stack_proxy import log
from mlx_stack_proxy.settings import ObservabilitySettings


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


def test_a_time_is_written_as_iso_8601_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    log.configure(ObservabilitySettings(log_format="json"))
    log.get().warning("ours")
    logging.getLogger("theirs").warning("a library's")
    said = [json.loads(line)["timestamp"] for line in "".join(pieces).splitlines()]
    for one in said:
        assert one.endswith("Z")
        at = datetime.fromisoformat(one)
        assert timedelta() <= datetime.now(UTC) - at < timedelta(minutes=1)
    assert len(said) == 2


def test_no_line_has_a_control_character(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = Pieces()
    monkeypatch.setattr(sys, "stderr", pieces)
    log.configure(ObservabilitySettings(log_format="json"))
    text = "".join(map(chr, range(256))) + "\u2028é"
    log.get().warning("said", text=text)
    (line,) = pieces
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", line[:-1])
    assert json.loads(line)["text"] == text
