"""Connections to a Redis or Valkey server: one for each call that runs, kept for the next one.

redis-py's connections, but neither its pool nor its limits on time. The pool closes idle
connections while others take them, which breaks calls that a server answers. With a limit on time
it sends within ``asyncio.wait_for``, which loses cancellations in Python 3.11. So who calls bounds
the time.

A connection that was closed is kept, too, and opened again when it is needed: it and its parser
know each other, so that one which is let go stays in memory, 20 kB, until the garbage collector's
next look at all that is old.
"""

from __future__ import annotations

from typing import Any

from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import MasterDownError, ReadOnlyError, ResponseError

# Redis before 7 puts the error of a script's command into a sentence of its own.
_DEMOTED_INSIDE = ("-READONLY ", "-MASTERDOWN ")


class Demoted(LostConnection):
    """The server is no master any more, and has done nothing: another one is to be asked."""


class Connections:
    """``seconds``: for opening and closing one. Raises ValueError for a URL that is none."""

    def __init__(self, url: str, seconds: float) -> None:
        # It knows how to make one, and whether one is still good. Untyped there.
        self._maker: Any = ConnectionPool.from_url(
            url,
            socket_timeout=None,
            socket_connect_timeout=seconds,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            driver_info=None,  # nothing to say but the command: a connection is made in no time
        )
        self._idle: list[Any] = []  # those that are closed come first, and are taken last

    async def ask(self, *command: str | bytes | int) -> Any:
        """The answer to one command. Raises RedisError, OSError, :class:`Demoted`."""
        idle = self._idle
        connection = idle.pop() if idle else self._maker.make_connection()
        try:
            await self._maker.ensure_connection(connection)
            await connection.send_command(*command)
            answer = await connection.read_response()
        except ResponseError as error:
            if _is_demoted(error):
                await self._close(connection)
                raise Demoted(str(error)) from error
            await self._put_back(connection, idle)
            raise
        except BaseException:  # an answer may still come, and be taken for that of the next call
            await self._close(connection)
            raise
        await self._put_back(connection, idle)
        return answer

    async def drop(self) -> None:
        """Close all: at once those that are idle, the others when their calls end."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await self._close(connection)

    async def _put_back(self, connection: Any, idle: list[Any]) -> None:
        if idle is self._idle:
            idle.append(connection)
        else:  # dropped meanwhile
            await self._close(connection)

    async def _close(self, connection: Any) -> None:
        try:
            await connection.disconnect(nowait=True)
        finally:
            self._idle.insert(0, connection)


def _is_demoted(error: ResponseError) -> bool:
    if isinstance(error, (ReadOnlyError, MasterDownError)):
        return True
    return any(code in str(error) for code in _DEMOTED_INSIDE)
