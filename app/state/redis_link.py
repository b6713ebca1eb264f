"""The way to a Redis or Valkey server: scripts, bounded waits, and a short circuit.

No call is made twice here: one whose answer was lost may have happened.
When the connection ends, or an answer doesn't come, another is made in the background at once, for
which calls wait. Where that fails, they fail at once, without waiting, until one of the tries of
each second succeeds.
"""

from __future__ import annotations

import asyncio
import contextlib
from hashlib import sha1
from importlib import resources
from typing import Any

from .. import log
from .redis_line import ErrorReply, Line, NoAnswer, Word, connect, told_by
from .store import NotSent, StoreError

SOCKET_SECONDS = 0.5  # for the server's answer, and for a connection
CALL_SECONDS = 2.0  # for a connection that comes and goes
RETRY_SECONDS = 1.0

_NO_ANSWER = "Redis gave no answer in time"
_NOT_ASKED = "Redis was not asked yet"
_LUA = resources.files(__package__) / "lua"


class Script:
    """One of the files in ``lua/``, after what they share."""

    def __init__(self, name: str) -> None:
        self.name = name
        common = (_LUA / "common.lua").read_text("utf-8")
        self.text = f"{common}\n{(_LUA / f'{name}.lua').read_text('utf-8')}"
        self.sha = sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RedisLink:
    """``prefix``: what all keys begin with; it is the scripts' only key.

    Raises ``ValueError`` for a URL that is none.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self._told = told_by(url)
        self._prefix = prefix
        self._line: Line | None = None
        self._lost: str | None = _NOT_ASKED  # why calls fail at once; else one is being made
        self._refused: dict[str, str] = {}  # by script: what the server said instead
        self._ended = asyncio.Event()
        self._tried = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str | None:
        return self._lost or next(iter(self._refused.values()), None)

    async def open(self) -> None:
        if not await self._connect():
            self._ended.set()
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
        self._lost = "Redis is closed"
        if self._line is not None:
            self._line.close()

    async def run(self, script: Script, *args: Word) -> Any:
        """The script's answer. Raises StoreError."""
        try:
            return await self._call(script.name, "EVALSHA", script.sha, 1, self._prefix, *args)
        except _NoScript:  # the server doesn't know it yet, or was started anew; nothing has run
            return await self._call(script.name, "EVAL", script.text, 1, self._prefix, *args)

    async def command(self, *args: Word) -> Any:
        """One command on a key of ours, by its whole name. Raises StoreError."""
        return await self._call(str(args[0]), *args)

    async def _call(self, name: str, *words: Word) -> Any:
        line = self._line or await self._next_line()
        try:
            answer = await line.call(*words)
        except NoAnswer:
            raise StoreError(_NO_ANSWER) from None
        except ConnectionError as error:
            raise StoreError(_unreachable(error)) from error
        except ErrorReply as error:
            if str(error).startswith("NOSCRIPT"):
                raise _NoScript from None
            sentence = f"Redis refuses: {error}"
            if self._refused.get(name) != sentence:
                log.get().error("store_fails", reason=sentence, what=name)
            self._refused[name] = sentence
            raise StoreError(sentence) from error
        if name in self._refused:
            del self._refused[name]
            log.get().info("store_works", what=name)
        return answer

    # Connections

    async def _next_line(self) -> Line:
        """The one that is being made. Raises NotSent."""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                while self._line is None:
                    if self._lost is not None:
                        raise NotSent(self._lost)
                    await self._tried.wait()
        except TimeoutError:
            raise NotSent(_NO_ANSWER) from None
        return self._line

    def _line_ended(self, line: Line) -> None:
        if line is self._line:
            self._line = None
            self._tried.clear()
            self._ended.set()

    async def _watch(self) -> None:
        while True:
            await self._ended.wait()
            self._ended.clear()
            while not await self._connect():  # noqa: ASYNC110
                await asyncio.sleep(RETRY_SECONDS)

    async def _connect(self) -> bool:
        try:
            async with asyncio.timeout(SOCKET_SECONDS):
                self._line = await connect(self._told, SOCKET_SECONDS, self._line_ended)
        except Exception as error:  # whatever it is, it is no answer
            timed_out = isinstance(error, (TimeoutError, NoAnswer))
            sentence = _unreachable("no answer" if timed_out else error)
            if self._lost in (None, _NOT_ASKED):
                log.get().error("store_fails", reason=sentence)
            self._lost = sentence
            self._tried.set()
            return False
        if self._lost not in (None, _NOT_ASKED):
            log.get().info("store_works")
        self._lost = None
        self._tried.set()
        return True


class _NoScript(Exception):
    pass


def _unreachable(why: object) -> str:
    return f"Redis can't be reached: {why}"
