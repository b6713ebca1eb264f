"""The bench on real servers, as small as it gets."""

import sys
import time
from pathlib import Path

import pytest

from benchmarks import servers
from benchmarks.cost import __main__ as command
from benchmarks.cost import contestants, measure, rounds
from benchmarks.cost.contestants import HTTPX, PORTKEY, PROXY, Contestant, Missing
from benchmarks.cost.rounds import Bench, Clock
from tests.support.ports import free_port


def absent(_port: int, _folder: Path) -> servers.Server:
    raise Missing("not installed (say how)")


def refusing(_port: int, folder: Path) -> servers.Server:
    port = free_port()
    argv = [sys.executable, "-m", "http.server", str(port), "--bind", "127.0.0.1"]
    return servers.start("refusing", port, argv, folder, "/")


async def test_rounds_measure_what_is_there_and_name_what_is_not(tmp_path: Path) -> None:
    there = [one for one in contestants.ALL if one.name in (HTTPX, PROXY)]
    who = [*there, Contestant(PORTKEY, absent), Contestant("refusing", refusing)]
    kinds, until = frozenset({"plain", "call-chunk", "start"}), time.monotonic() + 600
    with contestants.start_upstream(tmp_path) as upstream:
        bench = Bench(upstream, tmp_path, who, kinds, until)
        await bench.round(0, 0.05, {})
        missing, failing, *more = bench.notes
        bench.contestants = bench.contestants[2:]
        await bench.round(1, 0.05, {})

    for figure in ("cpu.plain", "cpu.call-chunk", "wall.plain", "start.wall", "start.cpu"):
        assert bench.samples.ratios(PROXY, HTTPX, figure), figure
    assert missing == "Portkey: not installed (say how)"
    assert "501" in failing
    assert bench.notes == [missing, failing, *more], "it is not asked again"
    assert not bench.samples.values("refusing", "cpu.plain")
    assert not bench.unexpected


@pytest.mark.parametrize(
    ("until", "took", "scale"),
    [(100, 40, 0.625), (1000, 40, 1.0), (10, 100, None)],
)
def test_rounds_get_smaller_where_the_time_is_short(
    until: float, took: float, scale: float | None
) -> None:
    clock = Clock(until=time.monotonic() + until)
    assert clock.after_round(took=took, left=4) is (scale is not None)
    assert scale is None or clock.scale == pytest.approx(scale, abs=0.01)


def test_parts_of_names_choose_the_servers(capsys: pytest.CaptureFixture[str]) -> None:
    options = command.arguments(["--only", "proxy,httpx", "--kinds", "plain,growth.stream"])
    assert [one.name for one in options.contestants] == [HTTPX, PROXY]
    assert command.wanted_kinds(options) == (frozenset({"plain"}), [measure.STREAM])
    with pytest.raises(SystemExit):
        command.arguments(["--kinds", "plian"])
    assert "plian" in capsys.readouterr().err


def test_what_is_unexpected_is_found_in_the_metrics() -> None:
    text = (
        'mlx_stack_retries_total{reason="empty",tier="fast"} 3.0\n'
        "# HELP mlx_stack_loops_total Loops\n"
        'mlx_stack_requests_total{tier="fast"} 10.0\n'
        "mlx_stack_stage_faults_total 0.0\n"
    )

    assert rounds.UNEXPECTED.findall(text) == [("retries", "3.0"), ("stage_faults", "0.0")]
