"""The way to a Redis or Valkey server: scripts, bounded waits, and a short circuit.

No call is made twice here: one whose answer was lost may have happened.
After a failure of the connection, calls fail at once, without waiting, until a ping in the
background succeeds: at once if the failure was a passing one, else one is sent each second. A call
without an answer is followed by such a ping, which finds out whether it's the server's fault.

A server that is a replica now (a planned failover, Sentinel) is lost, too, though its connections
stay: new ones lead to the new master, wherever the address leads by then. So a ping is a write.
"""

from __future__ import annotations

import asyncio
import contextlib
from hashlib import sha1
from importlib import resources
from typing import Any

from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import (
    NoScriptError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as RedisTimeout

from .. import tasks
from ..telemetry import log
from .patience import Patience
from .redis_connections import Connections, Demoted
from .store import NotSent, StoreError

SOCKET_SECONDS = 0.5  # for the server's answer, a connection included where one is to be made
CALL_SECONDS = 2.0  # for a call as a whole, waiting for a free connection included
RETRY_SECONDS = 1.0
PING_LASTS = 60  # seconds: every key of ours expires
MAX_CONNECTIONS = 16  # the server does one thing at a time; more only cost

_LOST = (LostConnection, OSError)
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
    """``prefix``: what all keys begin with; it is the scripts' only key."""

    def __init__(self, url: str, prefix: str) -> None:
        self._connections = Connections(url, CALL_SECONDS)
        self._execute = self._connections.ask
        self._prefix = prefix
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)  # first come, first served
        self._lost: str | None = _NOT_ASKED  # else why calls fail at once
        self._refused: dict[str, str] = {}  # by script: what the server said instead
        self._check = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str | None:
        return self._lost or next(iter(self._refused.values()), None)

    async def open(self) -> None:
        await self._ping()
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        await tasks.end(self._watcher)
        with contextlib.suppress(Exception):
            await self._connections.drop()
        self._lost = "Redis is closed"

    async def run(self, script: Script, *args: str | bytes | int) -> Any:
        """The script's answer. Raises StoreError."""
        return await self._guarded(script.name, self._evaluate(script, args))

    async def command(self, *args: str | bytes | int) -> Any:
        """One command on a key of ours, by its whole name. Raises StoreError."""
        return await self._guarded(str(args[0]), self._execute(*args))

    async def _evaluate(self, script: Script, args: tuple[str | bytes | int, ...]) -> Any:
        try:
            return await self._execute("EVALSHA", script.sha, 1, self._prefix, *args)
        except NoScriptError:  # the server is new to it, or was started anew; nothing has run
            return await self._execute("EVAL", script.text, 1, self._prefix, *args)

    async def _guarded(self, name: str, call: Any) -> Any:
        if self._lost is not None:
            call.close()
            raise NotSent(self._lost)
        try:
            async with Patience(CALL_SECONDS), self._places:
                if self._lost is not None:  # while this one waited for its place
                    raise NotSent(self._lost)
                async with Patience(SOCKET_SECONDS):
                    answer = await call
        except (TimeoutError, RedisTimeout):
            self._check.set()  # a busy process of ours may be the reason: a ping finds out
            raise StoreError(_NO_ANSWER) from None
        except _LOST as error:
            self._lose(error)
            kind = NotSent if isinstance(error, Demoted) else StoreError
            raise kind(self._lost) from error
        except RedisError as error:
            sentence = f"Redis refuses: {error}"
            if self._refused.get(name) != sentence:
                log.get().error("store_fails", reason=sentence, what=name)
            self._refused[name] = sentence
            raise StoreError(sentence) from error
        finally:
            call.close()  # it may never have begun
        if name in self._refused:
            del self._refused[name]
            log.get().info("store_works", what=name)
        return answer

    def _lose(self, error: BaseException) -> None:
        what = "is a replica now" if isinstance(error, Demoted) else "can't be reached"
        sentence = f"Redis {what}: {error}"
        if self._lost in (None, _NOT_ASKED):
            log.get().error("store_fails", reason=sentence)
        self._lost = sentence
        self._check.set()

    async def _watch(self) -> None:
        while True:
            await self._check.wait()
            with contextlib.suppress(Exception):
                await self._connections.drop()
            await self._ping_until_answered()

    async def _ping_until_answered(self) -> None:
        while True:
            self._check.clear()
            if await self._ping():
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def _write(self) -> None:
        """Write something; what the server refuses for another reason is an answer, too."""
        with contextlib.suppress(ResponseError):
            await self._execute("SET", f"{self._prefix}:ping", "1", "EX", PING_LASTS)

    async def _ping(self) -> bool:
        try:
            async with Patience(SOCKET_SECONDS):
                await self._write()
        except Exception as error:  # whatever it is, it is no answer
            timed_out = isinstance(error, (TimeoutError, RedisTimeout))
            self._lose(StoreError("no answer") if timed_out else error)
            return False
        if self._lost not in (None, _NOT_ASKED):
            log.get().info("store_works")
        self._lost = None
        return True
