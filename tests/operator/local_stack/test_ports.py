from __future__ import annotations

import socket

import pytest

from mlx_stack_proxy.operator import CommandError
from mlx_stack_proxy.operator.local_stack import ports
from mlx_stack_proxy.operator.local_stack.ports import require_free
from tests.support.ports import free_port


def test_free_ports_pass() -> None:
    require_free([(free_port(), "the proxy", "--port")])


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_taken_port_is_said_with_its_owner(address: str) -> None:
    with socket.socket() as taken:
        taken.bind((address, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            CommandError, match=rf"port {port} \(for LiteLLM\).*--litellm-port"
        ) as why:
            require_free([(port, "LiteLLM", "--litellm-port")])
    assert "\n" not in str(why.value)


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        (["python", "/venv/bin/mlx-stack-proxy", "up", "--port", "1"], "up"),
        (["python3", "-m", "mlx_stack_proxy", "up"], "up"),
        (["python3", "/src/app/mlx_stack_proxy/__main__.py", "up"], "up"),
        (["python", "/venv/bin/mlx-stack-proxy", "serve"], "serve"),
        (["docker", "compose", "up"], ""),
        ([], ""),
    ],
)
def test_which_command_line_is_one_of_ours(command: list[str], ours: str) -> None:
    assert ports.our_command(command) == ours


def test_one_port_for_two_is_said() -> None:
    port = free_port()
    with pytest.raises(CommandError, match="both the proxy and LiteLLM"):
        require_free([(port, "the proxy", "--port"), (port, "LiteLLM", "--litellm-port")])


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_what_is_no_port_is_said(port: int) -> None:
    with pytest.raises(CommandError, match="not a port number"):
        require_free([(port, "the proxy", "--port")])
