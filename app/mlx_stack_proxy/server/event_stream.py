"""``GET /mlx-stack/events`` as a stream of server-sent events.

Each stream polls the store once a second, and so sees the events of every process that shares the
store. A stream reads the next page only when its client has taken the last one, so that a slow
client holds one page in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import orjson
from fastapi.responses import StreamingResponse
from msgspec.structs import replace

from ..driver.services import Services
from ..engine.downstream import EVENT_STREAM
from ..errors import ProxyError
from ..state.store import EventQuery, StoreError
from ..telemetry import accounts
from ..wire.sse import comment_frame

POLL_SECONDS: Final = 1.0
KEEPALIVE_SECONDS: Final = 15.0  # without an event; a comment then keeps the connection open
RETRY_MS: Final = 1000  # how long clients are asked to wait before they reconnect
MAX_FOLLOWERS: Final = 32  # streams at once in this process
PAGE: Final = 200  # how many events are read and sent at a time

Events = list[tuple[int, Any]]


async def follow(services: Services, query: EventQuery) -> StreamingResponse:
    """Stream the events that the query finds, then each matching event that the store gets.

    A client that reconnects gives ``query.after``, and gets every event beyond that number. A
    number beyond the newest event comes from an earlier store, and is ignored.

    Raises ``ProxyError`` (503) if too many clients follow or the proxy stops, and ``StoreError``.
    """
    life = services.life
    if life.followers >= MAX_FOLLOWERS or life.stopping:
        sentence = f"{life.followers} clients follow the events, which is the limit"
        raise ProxyError(503, "upstream_unavailable", sentence, retry_after=5)
    life.followers += 1  # before the first await: others may check meanwhile
    try:
        newest = await newest_number(services)
        first: Events = []
        position = query.after
        if position is None or position > newest:
            first = await services.store.events(replace(query, after=None))
            position = max(newest, first[-1][0] if first else 0)
        return _Following(services, _stream(services, query, first, position))
    except BaseException:
        life.followers -= 1
        raise


class _Following(StreamingResponse):
    """A response that counts as a follower until it ends."""

    def __init__(self, services: Services, stream: AsyncIterator[bytes]) -> None:
        headers = {name.decode(): value.decode() for name, value in EVENT_STREAM}
        super().__init__(stream, headers=headers)
        self._life = services.life

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._life.followers -= 1


async def _stream(
    services: Services, query: EventQuery, first: Events, position: int
) -> AsyncIterator[bytes]:
    """Send ``first``, then the events beyond the number ``position`` until the proxy stops."""
    yield b"retry: %d\n\n" % RETRY_MS + _frames(first)
    clock = asyncio.get_running_loop().time
    last_sent = clock()
    while not services.life.stopping:
        page: Events = []
        try:
            newest = await newest_number(services)
            if newest != position:  # a smaller number is a new store's
                after, limit = (position, PAGE) if newest > position else (None, query.limit)
                page = await services.store.events(replace(query, after=after, limit=limit))
                last = page[-1][0] if page else 0
                position = last if len(page) == PAGE else max(newest, last)
        except StoreError as error:  # the next poll asks the store again
            accounts.store_failed(services, error)
        if page or clock() - last_sent >= KEEPALIVE_SECONDS:
            yield _frames(page) or comment_frame("keep-alive")
            last_sent = clock()
        if len(page) < PAGE:
            await asyncio.sleep(POLL_SECONDS)


async def newest_number(services: Services, kind: str | None = None) -> int:
    """Return the number of the newest event, of a kind; 0 if there is none. Raises StoreError."""
    newest = await services.store.events(EventQuery(kind=kind, limit=1))
    return newest[-1][0] if newest else 0


def _frames(events: Events) -> bytes:
    return b"".join(
        b"id: %d\ndata: %s\n\n" % (number, orjson.dumps({"number": number, **event}))
        for number, event in events
    )
