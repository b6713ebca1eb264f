"""The image: built by the Dockerfile, run, killed, run again."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.deploy.test_serving import SERVICE
from tests.deployed.base import GENEROUS
from tests.deployed.image import Image
from tests.support.ports import free_port

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def config(built: Image) -> str:
    """A configuration file in the image, with a port of its own; its path there."""
    file = built.root / "etc/mlx-stack/config.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"server: {{port: {free_port()}}}")
    return "/etc/mlx-stack/config.yaml"


def test_it_runs_is_killed_and_runs_again(built: Image, config: str, tmp_path: Path) -> None:
    """With the port in its file, where the health check finds it; and beside a Service."""
    log = tmp_path / "log"
    with built.running(log, "serve", "--config", config, **SERVICE) as process:
        process.wait_healthy(log)
        number = process.number
        assert number is not None
        status = Path(f"/proc/{number}/status").read_text().splitlines()
        assert "Uid:\t10001\t10001\t10001\t10001" in status
        assert "Gid:\t10001\t10001\t10001\t10001" in status
        assert "service_links_passed_over" in log.read_text()
        os.kill(number, signal.SIGKILL)
        assert process.parent.wait(GENEROUS) != 0
        assert not process.healthy()

    with built.running(log, "serve", "--config", config) as process:
        process.wait_healthy(log)
        number = process.number
        assert number is not None
        os.kill(number, signal.SIGTERM)
        assert process.parent.wait(GENEROUS) == 0, "it ends in order"
    assert '"stopping"' in log.read_text()


def test_its_state_is_kept_where_the_volume_is(built: Image, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with built.running(log, MLX_STACK_SERVER__PORT=str(free_port())) as process:
        process.wait_healthy(log)
        kept = Path(f"/proc/{process.number}/root/data/reliability.db").stat()
        assert kept.st_uid == 10001


def test_a_bad_configuration_ends_it_with_a_sentence(built: Image, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with built.running(log, MLX_STACK_SERVR__PORT="1") as process:
        assert process.parent.wait(GENEROUS) != 0
    assert "unknown section `servr`" in log.read_text()


def test_there_is_nothing_to_build_with(built: Image) -> None:
    inside = built.root / "opt/proxy/bin"
    assert (inside / "mlx-stack-proxy").exists()
    assert not list(inside.glob("pip*"))
    assert not (built.root / "src").exists()
