"""A real Redis server, on a free port, with no data on the disk."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

from tests.conftest import require_program
from tests.support.ports import free_port


class RedisServer:
    """Use as context manager, or start and stop it; it may be started anew after its end.

    ``args``: further options of the server.
    """

    def __init__(self, folder: Path, *args: str) -> None:
        self._program = require_program("redis-server")
        self._folder = folder
        self._args = args
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        listen = ("--port", str(self.port), "--bind", "127.0.0.1")
        keep_nothing = ("--save", "", "--appendonly", "no", "--dir", str(self._folder))
        with (self._folder / "redis.log").open("ab") as output:
            self._process = subprocess.Popen(
                [self._program, *listen, *keep_nothing, *self._args],
                stdout=output,
                stderr=output,
            )
        end = time.monotonic() + 20
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "redis.log").read_text()
            assert time.monotonic() < end, "redis-server does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        """Whether this process answers, and not another server on the same port."""
        assert self._process is not None
        identity = "return tonumber(string.match(redis.call('INFO'), 'process_id:(%d+)'))"
        return self.ask("EVAL", identity, "0") == b":%d" % self._process.pid

    def ask(self, *command: str) -> bytes | None:
        """Send one command; return its answer's first line, None without a connection."""
        request = b"*%d\r\n" % len(command)
        for word in command:
            request += b"$%d\r\n%s\r\n" % (len(word.encode()), word.encode())
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(request)
                return connection.makefile("rb").readline().rstrip()
        except OSError:
            return None

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop the process: it keeps its connections and answers nothing."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _end(self, sig: int) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(sig)
            self._process.wait(20)
            self._process = None
