"""A child that dies, a second `up`, and the end of it all."""

from __future__ import annotations

import subprocess
import sys

import httpx
import pytest

from mlx_stack_proxy.operator.local_stack.ports import is_free

from .running_stack import REPOSITORY, RunningStack, wait_until

RESTART_SECONDS = 120


def test_a_second_up_says_which_port_is_taken(stack: RunningStack) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mlx_stack_proxy", "up", *stack.options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert (
        f"port {stack.port} (for the proxy) is taken by another `mlx-stack-proxy up`" in done.stderr
    )


def test_children_that_die_are_restarted_and_said(stack: RunningStack) -> None:
    """At once, for each takes a quarter of a minute to be ready again."""
    children = stack.children()
    children["fast"].kill()
    children["litellm"].kill()
    stack.wait_said(r"^  fast +died +killed by SIGKILL; restarting in 1 s; log: ", 10)
    stack.wait_said(r"^  litellm +died +killed by SIGKILL", 10)
    assert httpx.get(f"{stack.url}/ready", timeout=30).status_code == 503
    assert httpx.get(f"{stack.url}/health").status_code == 200
    stack.wait_said(r"^  fast +ready +again, after [\d.]+ s$", RESTART_SECONDS)
    stack.wait_said(r"^  litellm +ready +again", RESTART_SECONDS)

    def ready() -> bool:
        return httpx.get(f"{stack.url}/ready", timeout=30).status_code == 200

    wait_until(ready, 30, "the proxy's readiness")
    body = {"model": "fast", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    reply = httpx.post(f"{stack.url}/v1/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200


@pytest.mark.stops_the_stack
def test_ctrl_c_leaves_nothing_behind(stack: RunningStack) -> None:
    assert set(stack.children()) == {"fast", "standard", "litellm", "proxy"}
    assert len(stack.left()) > 4
    assert stack.stop() == 0
    assert stack.said.endswith("Stopping …\nAll stopped.\n")
    wait_until(lambda: not stack.left(), 5, "the end of every process")
    ports = [stack.port, stack.litellm_port, *stack.model_ports.values()]
    assert all(is_free(port) for port in ports)
