"""The log: a line that can't be written is nobody's trouble."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime, timedelta

import pytest

from mlx_stack_proxy import log
from mlx_stack_proxy.engine.outcome import Outcome, Remarks
from mlx_stack_proxy.engine.record import record_of
from mlx_stack_proxy.engine.steps import Deliver
from mlx_stack_proxy.main import build_services
from mlx_stack_proxy.settings import ObservabilitySettings, Settings
from mlx_stack_proxy.telemetry import accounts
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
