"""A child that dies, and a second `up`."""

from __future__ import annotations

import subprocess
import sys

import httpx

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
        f"port {stack.port} (for the proxy) is in use by another `mlx-stack-proxy up`"
        in done.stderr
    )


def test_litellm_dies_and_is_restarted(stack: RunningStack) -> None:
    stack.children()["litellm"].kill()
    stack.wait_said(r"^  litellm +died +killed by SIGKILL; restarting in 1 s; log: ", 10)
    assert httpx.get(f"{stack.url}/ready", timeout=30).status_code == 503
    assert httpx.get(f"{stack.url}/health").status_code == 200
    stack.wait_said(r"^  litellm +ready +again, after [\d.]+ s$", RESTART_SECONDS)

    def ready() -> bool:
        return httpx.get(f"{stack.url}/ready", timeout=30).status_code == 200

    wait_until(ready, 30, "the proxy's readiness")
    body = {"model": "fast", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5}
    reply = httpx.post(f"{stack.url}/v1/chat/completions", json=body, timeout=60)
    assert reply.status_code == 200
