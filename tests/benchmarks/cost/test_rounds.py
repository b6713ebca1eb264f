"""The bench on real servers, as small as it gets."""

import sys
import time
from pathlib import Path

import pytest

from benchmarks.cost import __main__ as command
from benchmarks.cost import contestants, rounds
from benchmarks.cost.contestants import HTTPX, PORTKEY, PROXY, Contestant, Missing
from benchmarks.cost.rounds import Bench, Clock
from benchmarks.measure import servers
from tests.support.ports import free_port


def absent(_port: int, _folder: Path) -> servers.Server:
    raise Missing("not installed (say how)")


def forever() -> float:
    return time.monotonic() + 600


async def test_nothing_is_begun_when_the_time_is_up(tmp_path: Path) -> None:
    upstream = servers.start_upstream(tmp_path)
    relay = [one for one in contestants.ALL if one.name == HTTPX]
    bench = Bench(upstream, tmp_path, relay, frozenset({"plain"}), print, time.monotonic())
    try:
        await bench.round(0, 0.05, {})
    finally:
        upstream.stop()

    assert not bench.samples.values(HTTPX, "cpu.plain")


async def test_a_round_measures_what_is_there_and_names_what_is_not(tmp_path: Path) -> None:
    there = [one for one in contestants.ALL if one.name in (HTTPX, PROXY)]
    kinds = frozenset({"plain", "call", "seen", "start"})
    said: list[str] = []
    upstream = servers.start_upstream(tmp_path)
    try:
        who = [*there, Contestant(PORTKEY, absent)]
        bench = Bench(upstream, tmp_path, who, kinds, said.append, forever())
        await bench.round(0, 0.05, {})
    finally:
        upstream.stop()

    for figure in ("cpu.plain", "wall.plain", "cpu.call", "cpu.seen", "start.wall", "start.cpu"):
        assert bench.samples.ratios(PROXY, HTTPX, figure), figure
    assert bench.notes == ["Portkey: not installed (say how)"]
    assert not bench.unexpected


async def test_a_server_that_fails_is_left_out_of_what_it_failed_at(tmp_path: Path) -> None:
    def refusing(_port: int, folder: Path) -> servers.Server:
        port = free_port()
        argv = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
        server = servers.start("refusing", port, argv, folder)
        server.wait_ready("/", 60)
        return server

    upstream = servers.start_upstream(tmp_path)
    said: list[str] = []
    bench = Bench(
        upstream,
        tmp_path,
        [Contestant("refusing", refusing)],
        frozenset({"plain"}),
        said.append,
        forever(),
    )
    try:
        await bench.round(0, 0.05, {})
        count = len(bench.notes)
        await bench.round(1, 0.05, {})
    finally:
        upstream.stop()

    assert "501" in bench.notes[0]
    assert len(bench.notes) == count  # it is not asked again
    assert not bench.samples.values("refusing", "cpu.plain")


def test_rounds_get_smaller_where_the_time_is_short() -> None:
    clock = Clock(until=time.monotonic() + 100)

    assert clock.after_round(took=40, left=4, reserved=0)
    assert clock.scale == pytest.approx(0.625, abs=0.01)


def test_rounds_stay_as_they_are_where_there_is_time() -> None:
    clock = Clock(until=time.monotonic() + 1000)

    assert clock.after_round(took=40, left=4, reserved=100)
    assert clock.scale == 1.0


def test_there_is_an_end_to_getting_smaller() -> None:
    assert not Clock(until=time.monotonic() + 10).after_round(took=100, left=4, reserved=0)


def test_parts_of_names_choose_the_servers() -> None:
    options = command.arguments(["--only", "proxy,httpx", "--kinds", "plain,growth.tools"])

    assert [one.name for one in options.contestants] == [HTTPX, PROXY]
    assert command.wanted_kinds(options) == (frozenset({"plain"}), frozenset({"tools"}))


@pytest.mark.parametrize("argv", [["--only", "nginx"], ["--kinds", "plian"]])
def test_an_unknown_name_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.arguments(argv)

    assert argv[1] in capsys.readouterr().err


def test_what_is_unexpected_is_found_in_the_metrics() -> None:
    text = (
        'mlx_stack_retries_total{reason="empty",tier="fast"} 3.0\n'
        "# HELP mlx_stack_loops_total Loops\n"
        'mlx_stack_requests_total{tier="fast"} 10.0\n'
        "mlx_stack_stage_faults_total 0.0\n"
    )

    assert rounds.UNEXPECTED.findall(text) == [("retries", "3.0"), ("stage_faults", "0.0")]
