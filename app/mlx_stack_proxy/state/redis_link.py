"""The connection to a Redis or Valkey server: scripts, bounded waits, and a circuit breaker.

The link never repeats a call, because a call whose answer was lost may have been carried out.
When a connection fails, the link counts as lost: calls fail at once, without waiting, until a ping
in the background succeeds. The link pings at once, then each second. A call that gets no answer in
time doesn't lose the link, but has it ping, to find out whether the server is at fault.

The link also counts as lost when the server has become a replica (a planned failover, Sentinel),
though the connections stay open: new connections lead to the new master. So a ping is a write,
which a replica refuses.
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
from .store import NotSent, StoreError
from .trouble import Trouble

CALL_SECONDS = 1.0  # for a call, the wait for a free connection included
RETRY_SECONDS = 1.0  # between two pings while the link is lost
PING_LASTS = 60  # seconds until the key that a ping writes expires, as all our keys do
MAX_CONNECTIONS = 16  # more gain nothing: the server runs one command at a time

_DEMOTED = (ReadOnlyError, MasterDownError)  # how a replica refuses a write
_NO_ANSWER = "Redis gave no answer in time"
_NOT_ASKED = "Redis was not asked yet"


class RedisLink:
    """The connection to one server, with the Lua scripts that it runs for ``RedisStore``."""

    def __init__(self, url: str, prefix: str, names: Iterable[str]) -> None:
        """``names``: the scripts' names in ``lua/``. Raises ``ValueError`` for a bad URL.

        ``prefix``: all keys begin with it; a script gets no other key as an argument.
        """
        # Untyped in part. No `socket_timeout`: with one redis-py sends within `asyncio.wait_for`,
        # which loses cancellations in Python 3.11.
        self._redis: Any = Redis.from_url(
            url,
            socket_timeout=None,
            socket_connect_timeout=CALL_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            driver_info=None,  # no CLIENT SETINFO, which would delay each new connection
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
        self._slots = asyncio.Semaphore(MAX_CONNECTIONS)  # first come, first served
        self.health = Trouble(_NOT_ASKED)
        self._lost: str | None = _NOT_ASKED  # why calls fail at once; None: the link works
        # By script or command: the error with which the server has refused its last call.
        self._refused: dict[str, str] = {}
        self._ping_due = asyncio.Event()  # set: `_watch` is to ping the server
        self._watcher: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self._ping()
        self._watcher = asyncio.create_task(self._watch())

    async def close(self) -> None:
        await tasks.end(self._watcher)
        with contextlib.suppress(Exception):
            await self._redis.aclose()
        self._lost = self.health.sentence = "Redis is closed"

    async def run(self, name: str, *args: str | bytes | int) -> Any:
        """Run a script; return its answer. Raises StoreError, NotSent."""
        return await self._guarded(name, lambda: self.scripts[name]([self._prefix], args))

    async def command(self, *args: str | bytes | int) -> Any:
        """Run one command on a key, given with its prefix. Raises StoreError, NotSent."""
        return await self._guarded(str(args[0]), lambda: self._redis.execute_command(*args))

    async def _guarded(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        if self._lost is not None:
            raise NotSent(self._lost)
        try:
            async with asyncio.timeout(CALL_SECONDS), self._slots:
                if self._lost is not None:  # lost while this call waited for its place
                    raise NotSent(self._lost)
                answer = await call()
        except (TimeoutError, RedisTimeout):
            self._ping_due.set()  # our own process may have been too busy: a ping finds out
            raise StoreError(_NO_ANSWER) from None
        except _DEMOTED as error:  # a replica has done nothing
            self._lose(error)
            raise NotSent(self._lost) from error
        except (LostConnection, OSError) as error:
            self._lose(error)
            raise StoreError(self._lost) from error
        except RedisError as error:
            sentence = f"Redis refuses: {error}"
            if name not in self._refused:  # else it is the same failure
                self.health.begin(sentence, what=name)
            self._refused[name] = sentence
            raise StoreError(sentence) from error
        if name in self._refused:
            del self._refused[name]
            self._works()
        return answer

    def _works(self) -> None:
        if self._lost is not None:
            return
        if self._refused:
            self.health.sentence = next(iter(self._refused.values()))
        else:
            self.health.end()

    def _lose(self, error: BaseException) -> None:
        state = "is a replica now" if isinstance(error, _DEMOTED) else "can't be reached"
        if self._lost in (None, _NOT_ASKED):  # else it is the same failure, in other words
            self._lost = f"Redis {state}: {error}"
            self.health.begin(self._lost)
        self._ping_due.set()

    async def _watch(self) -> None:
        while True:
            await self._ping_due.wait()
            self._ping_due.clear()
            if self._lost is not None:  # else other calls are taking idle connections
                with contextlib.suppress(Exception):
                    await self._redis.connection_pool.disconnect(inuse_connections=False)
            if not await self._ping():
                await asyncio.sleep(RETRY_SECONDS)

    async def _ping(self) -> bool:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._write()
        except Exception as error:  # whatever failed, there is no answer
            timed_out = isinstance(error, (TimeoutError, RedisTimeout))
            self._lose(StoreError("no answer") if timed_out else error)
            return False
        self._lost = None
        self._works()
        return True

    async def _write(self) -> None:
        """Write a key. A refusal proves that the server is there, unless it is a replica."""
        try:
            await self._redis.set(f"{self._prefix}:ping", "1", ex=PING_LASTS)
        except _DEMOTED:
            raise
        except ResponseError:
            pass
