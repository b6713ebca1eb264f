"""The end of it all: the last file here, because it stops the stack that the others share."""

from __future__ import annotations

from mlx_stack_proxy.operator.local_stack.ports import is_free

from .running_stack import RunningStack, wait_until


def test_ctrl_c_leaves_nothing_behind(stack: RunningStack) -> None:
    assert set(stack.children()) == {"fast", "standard", "litellm", "proxy"}
    assert len(stack.left()) > 4
    assert stack.stop() == 0
    assert stack.said.endswith("Stopping …\nAll stopped.\n")
    wait_until(lambda: not stack.left(), 5, "the end of every process")
    ports = [stack.port, stack.litellm_port, *stack.model_ports.values()]
    assert all(is_free(port) for port in ports)
