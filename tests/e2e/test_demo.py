"""`demo` as a newcomer runs it, against the real stack."""

from __future__ import annotations

import re
import shlex
import subprocess

from .running_stack import RunningStack


def test_the_printed_command_shows_what_the_proxy_does(stack: RunningStack) -> None:
    printed = re.search(r"^  (\S+ demo .*)$", stack.said, re.M)
    assert printed, stack.said
    ended = subprocess.run(
        shlex.split(printed[1]), capture_output=True, text=True, timeout=240, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = re.search(
        r"Usable replies: (\d+) of 10 directly, (\d+) of 10 through the proxy", ended.stdout
    )
    assert found, ended.stdout
    assert int(found[1]) < int(found[2]) == 10, ended.stdout


def test_the_printed_request_is_visibly_helped(stack: RunningStack) -> None:
    printed = re.search(r"^  (curl -i .*)$", stack.said, re.M)
    assert printed, stack.said
    ended = subprocess.run(
        shlex.split(printed[1]), capture_output=True, text=True, timeout=120, check=False
    )
    assert "x-mlx-stack-repairs: rescued" in ended.stdout, ended.stdout
