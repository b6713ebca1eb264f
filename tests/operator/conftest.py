"""`mlx-stack-proxy` as somebody types it: in an empty home, with no settings of the machine's."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

from mlx_stack_proxy.operator import cli
from tests.support.ports import free_port
from tests.support.scripted_server import ScriptedServer


class Ran(NamedTuple):
    """What a command came to: its exit code, and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard error without its line breaks."""
        return " ".join(self.err.split())


@dataclass
class Typed:
    """Runs commands. ``home``: the home and the working folder."""

    home: Path
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __call__(self, *words: str) -> Ran:
        self.capsys.readouterr()
        code = cli.main(words)
        return Ran(code, *self.capsys.readouterr())

    async def beside(self, *words: str) -> Ran:
        """In a thread, while this loop answers it."""
        return await asyncio.to_thread(self, *words)

    def write(self, text: str, name: str = "config.yaml") -> Path:
        file = self.home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file


@pytest.fixture
def typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Typed:
    for name in list(os.environ):
        if name.startswith(("MLX_STACK_", "LITELLM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Typed(tmp_path, capsys, monkeypatch)


@pytest.fixture
def litellm(upstream: ScriptedServer) -> ScriptedServer:
    """Has the models `fast` and `standard`."""
    return upstream


@pytest.fixture
def nobody() -> str:
    """An address where nobody listens."""
    return f"http://127.0.0.1:{free_port()}"
