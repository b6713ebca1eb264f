"""``GET /mlx-stack/events`` as a stream of server-sent events.

The store is asked again whenever this process keeps an event, and each second, for other replicas
write there too. What a client has not taken yet is in the store, not here: a slow reader holds one
page, and is let go when it takes nothing for a minute.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Final

import orjson
from fastapi import Response

from .. import tasks
from ..engine.downstream import EVENT_STREAM, Send
from ..engine.services import Services
from ..engine.watch import Receive
from ..errors import ProxyError
from ..state.store import EventQuery, StoreError
from ..telemetry import accounts
from ..wire.sse import comment_frame

POLL_SECONDS: Final = 1.0
KEEPALIVE_SECONDS: Final = 15.0
STALL_SECONDS: Final = 60.0  # a client that takes nothing for so long is let go
RETRY_MS: Final = 1000  # what clients are told to wait before they come back
PAGE: Final = 200  # events read and sent at a time
FAREWELL_SECONDS: Final = 1.0

Events = list[tuple[int, Any]]


class EventStream(Response):
    """Events as they are kept. Make it with :func:`follow`."""

    def __init__(self, services: Services, query: EventQuery, first: Events, position: int) -> None:
        super().__init__()
        self._services = services
        self._query = query
        self._first = first
        self._position = position  # the number up to which all has been sent

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        feed = self._services.feed
        feed.followers += 1
        writing = asyncio.create_task(self._write(send))
        gone = asyncio.create_task(_until_gone(receive))
        ending = asyncio.create_task(feed.closed())
        try:
            await asyncio.wait({writing, gone, ending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            feed.followers -= 1
            await tasks.end(writing, gone, ending)
        if not gone.cancelled():
            return
        if not writing.cancelled() and not isinstance(writing.exception(), TimeoutError):
            writing.result()  # a bug of ours, which the edge logs
        try:
            async with asyncio.timeout(FAREWELL_SECONDS):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            pass  # it reads too slowly even for that

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_STREAM})
        await _send(send, b"retry: %d\n\n" % RETRY_MS + _frames(self._first))
        clock = asyncio.get_running_loop().time
        last = clock()
        while True:
            found = await self._more()
            if found or clock() - last >= KEEPALIVE_SECONDS:
                await _send(send, _frames(found) or comment_frame("keep-alive"))
                last = clock()
            if len(found) < PAGE:
                await self._services.feed.wait(POLL_SECONDS)

    async def _more(self) -> Events:
        """The next page; empty if nothing is new or the store fails, which may pass."""
        try:
            newest = await newest_number(self._services)
            if newest == self._position:
                return []
            if newest < self._position:  # the store was begun anew
                found = await self._services.store.events(replace(self._query, after=None))
            else:
                query = replace(self._query, after=self._position, limit=PAGE)
                found = await self._services.store.events(query)
        except StoreError as error:
            accounts.store_failed(self._services, error)
            return []
        last = found[-1][0] if found else 0
        self._position = last if len(found) == PAGE else max(newest, last)
        return found


async def follow(services: Services, query: EventQuery) -> EventStream:
    """What the query finds, or all beyond ``query.after``; then what is kept from now on.

    Raises :class:`ProxyError` where too many follow, :class:`StoreError`.
    """
    if services.feed.is_full or services.life.stopping:
        sentence = f"{services.feed.followers} clients follow the events; no more can"
        raise ProxyError(503, "upstream_unavailable", sentence, retry_after=5)
    newest = await newest_number(services)
    if query.after is not None and query.after <= newest:
        return EventStream(services, query, [], query.after)
    first = await services.store.events(replace(query, after=None))
    return EventStream(services, query, first, max(newest, first[-1][0] if first else 0))


async def newest_number(services: Services) -> int:
    """The number of the newest event; 0 if there is none. Raises :class:`StoreError`."""
    found = await services.store.events(EventQuery(limit=1))
    return found[-1][0] if found else 0


def _frames(found: Events) -> bytes:
    return b"".join(
        b"id: %d\ndata: %s\n\n" % (number, orjson.dumps({"number": number, **event}))
        for number, event in found
    )


async def _send(send: Send, data: bytes) -> None:
    async with asyncio.timeout(STALL_SECONDS):
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
