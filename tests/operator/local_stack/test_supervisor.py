from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest
from msgspec.structs import force_setattr

from mlx_stack_proxy.operator.local_stack import supervisor
from mlx_stack_proxy.operator.local_stack.children import ChildSpec
from mlx_stack_proxy.operator.local_stack.supervisor import StartFailed

from .conftest import MakeSpec, Stack, members, mentioning, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "HEALTH_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "FIRST_DELAY_SECONDS", 0.05)


def serving(spec: ChildSpec) -> int:
    """The process that serves this child's port."""
    (found,) = (pid for pid in mentioning(spec.command[3]) if os.getpgid(pid) == pid)
    return found


async def test_the_last_started_ends_first(stack: Stack, make_spec: MakeSpec) -> None:
    first, second = make_spec("first"), make_spec("second", "--deaf", end_grace=0.2)
    await stack.supervisor.start([first])
    await stack.supervisor.start([second])
    pid = serving(first)
    stopping = asyncio.create_task(stack.supervisor.stop())
    await asyncio.sleep(0.1)
    assert pid in stack.children()
    await stopping
    assert stack.processes() == []


async def test_a_child_that_is_never_ready_is_waited_for_and_said(
    stack: Stack, make_spec: MakeSpec
) -> None:
    with pytest.raises(
        StartFailed, match=r"not ready after 1 s, waiting for GET http\S+ \(the connection was ref"
    ):
        await stack.supervisor.start([make_spec("mute", "--mute", start_limit=1)])
    assert re.search(
        r"^  mute +waiting +0 s, for GET \S+ \(the connection was refused\)$", stack.said, re.M
    )


async def test_a_child_that_dies_is_restarted_and_said(stack: Stack, make_spec: MakeSpec) -> None:
    spec = make_spec("a", "--grandchild")
    await stack.supervisor.start([spec])
    for _ in range(2):
        before = stack.said.count("again, after")
        dead = serving(spec)
        os.kill(dead, signal.SIGKILL)
        await until(lambda before=before: stack.said.count("again, after") > before)
        assert not members(dead)  # what it had started is gone, too
    assert stack.said.count("died       killed by SIGKILL; ") == 2


async def test_a_child_that_is_ill_is_restarted(
    stack: Stack, make_spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick = tmp_path / "sick"
    spec = make_spec("a", "--sick-file", str(sick))
    await stack.supervisor.start([spec])
    force_setattr(spec, "model", "a model server's")
    sick.touch()
    await until(lambda: "died       its model thread has died" in stack.said)
    force_setattr(spec, "model", "")
    sick.unlink()
    await until(lambda: "again, after" in stack.said)


async def test_a_child_that_hangs_is_restarted(
    stack: Stack, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stopped process still takes connections, and answers none."""
    monkeypatch.setattr(supervisor, "ANSWER_SECONDS", 0.5)
    monkeypatch.setattr(supervisor, "MOST_UNANSWERED", 2)
    spec = make_spec("a", end_grace=0.1)
    await stack.supervisor.start([spec])
    os.kill(serving(spec), signal.SIGSTOP)
    await until(lambda: "again, after" in stack.said)
    assert "died       it hangs: 2 consecutive requests got no answer" in stack.said


async def test_a_restart_that_fails_is_tried_again(
    stack: Stack, make_spec: MakeSpec, tmp_path: Path
) -> None:
    sick = tmp_path / "sick"
    spec = make_spec("a", "--sick-file", str(sick), start_limit=20)
    await stack.supervisor.start([spec])
    force_setattr(spec, "start_limit", 0.3)
    sick.touch()
    os.kill(serving(spec), signal.SIGKILL)
    await until(lambda: stack.said.count("restarting") == 3)
    assert "not ready after 0 s" in stack.said


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "ended with exit code 0"), (-9, "killed by SIGKILL"), (-250, "killed by signal 250")],
)
def test_exit_codes_in_words(code: int, words: str) -> None:
    assert supervisor.how_it_ended(code) == words


def test_only_the_end_of_a_long_log_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {i}\n" for i in range(10_000)))
    assert supervisor.tail(log, 2) == ["line 9998", "line 9999"]
    log.write_text("")
    assert supervisor.tail(log) == ["(empty)"]
    assert supervisor.tail(tmp_path / "none") == []
