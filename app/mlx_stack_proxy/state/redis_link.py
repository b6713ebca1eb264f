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
from collections.abc import Awaitable, Callable, Iterable
from importlib import resources
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import MasterDownError, ReadOnlyError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeout

from .. import tasks
from ..telemetry import log
from .store import NotSent, StoreError

CALL_SECONDS = 1.0  # for a call, waiting for a free connection included
RETRY_SECONDS = 1.0
PING_LASTS = 60  # seconds: every key of ours expires
MAX_CONNECTIONS = 16  # the server does one thing at a time; more only cost

_DEMOTED = (ReadOnlyError, MasterDownError)
_NO_ANSWER = "Redis gave no answer in time"
_NOT_ASKED = "Redis was not asked yet"


class RedisLink:
    """``prefix``: what all keys begin with; it is the scripts' only key. ``names``: of the scripts.

    Raises ``ValueError`` for a URL that is none.
    """

    def __init__(self, url: str, prefix: str, names: Iterable[str]) -> None:
        # Untyped in part. No `socket_timeout`: with one redis-py sends within `asyncio.wait_for`,
        # which loses cancellations in Python 3.11.
        self._redis: Any = Redis.from_url(
            url,
            socket_timeout=None,
            socket_connect_timeout=CALL_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            driver_info=None,  # nothing to say but the command: a connection is made in no time
        )
        lua = resources.files(__package__) / "lua"
        common = (lua / "common.lua").read_text("utf-8")
        self.scripts: dict[str, Any] = {
            name: self._redis.register_script(
                f"{common}\n{(lua / f'{name}.lua').read_text('utf-8')}"
            )
            for name in names
        }
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
            await self._redis.aclose()
        self._lost = "Redis is closed"

    async def run(self, name: str, *args: str | bytes | int) -> Any:
        """A script's answer. Raises StoreError."""
        return await self._guarded(name, lambda: self.scripts[name]([self._prefix], args))

    async def command(self, *args: str | bytes | int) -> Any:
        """One command on a key of ours, by its whole name. Raises StoreError."""
        return await self._guarded(str(args[0]), lambda: self._redis.execute_command(*args))

    async def _guarded(self, name: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        if self._lost is not None:
            raise NotSent(self._lost)
        try:
            async with asyncio.timeout(CALL_SECONDS), self._places:
                if self._lost is not None:  # while this one waited for its place
                    raise NotSent(self._lost)
                answer = await ask()
        except (TimeoutError, RedisTimeout):
            self._check.set()  # a busy process of ours may be the reason: a ping finds out
            raise StoreError(_NO_ANSWER) from None
        except _DEMOTED as error:  # it has done nothing
            self._lose(error)
            raise NotSent(self._lost) from error
        except (LostConnection, OSError) as error:
            self._lose(error)
            raise StoreError(self._lost) from error
        except RedisError as error:
            sentence = f"Redis refuses: {error}"
            if self._refused.get(name) != sentence:
                log.get().error("store_fails", reason=sentence, what=name)
            self._refused[name] = sentence
            raise StoreError(sentence) from error
        if name in self._refused:
            del self._refused[name]
            log.get().info("store_works", what=name)
        return answer

    def _lose(self, error: BaseException) -> None:
        what = "is a replica now" if isinstance(error, _DEMOTED) else "can't be reached"
        sentence = f"Redis {what}: {error}"
        if self._lost in (None, _NOT_ASKED):
            log.get().error("store_fails", reason=sentence)
        self._lost = sentence
        self._check.set()

    async def _watch(self) -> None:
        while True:
            await self._check.wait()
            self._check.clear()
            if self._lost is not None:  # else others are taking idle connections
                with contextlib.suppress(Exception):
                    await self._redis.connection_pool.disconnect(inuse_connections=False)
            if not await self._ping():
                await asyncio.sleep(RETRY_SECONDS)

    async def _ping(self) -> bool:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._write()
        except Exception as error:  # whatever it is, it is no answer
            timed_out = isinstance(error, (TimeoutError, RedisTimeout))
            self._lose(StoreError("no answer") if timed_out else error)
            return False
        if self._lost not in (None, _NOT_ASKED):
            log.get().info("store_works")
        self._lost = None
        return True

    async def _write(self) -> None:
        """Write something; what the server refuses for another reason is an answer, too."""
        try:
            await self._redis.set(f"{self._prefix}:ping", "1", ex=PING_LASTS)
        except _DEMOTED:
            raise
        except ResponseError:
            pass
