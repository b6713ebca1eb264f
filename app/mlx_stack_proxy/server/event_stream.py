"""``GET /mlx-stack/events`` as a stream of server-sent events.

The store is asked again each second, for whatever process keeps the events. What a client has not
taken yet is in the store, not here: a slow reader holds one page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import orjson
from fastapi.responses import StreamingResponse

from ..engine.downstream import EVENT_STREAM
from ..engine.services import Services
from ..errors import ProxyError
from ..state.store import EventQuery, StoreError
from ..telemetry import accounts
from ..wire.sse import comment_frame

POLL_SECONDS: Final = 1.0
KEEPALIVE_SECONDS: Final = 15.0
RETRY_MS: Final = 1000  # what clients are told to wait before they come back
MAX_FOLLOWERS: Final = 32
PAGE: Final = 200  # events read and sent at a time

Events = list[tuple[int, Any]]


async def follow(services: Services, query: EventQuery) -> StreamingResponse:
    """What the query finds, or all beyond ``query.after``; then what is kept from now on.

    Raises :class:`ProxyError` where too many follow, :class:`StoreError`.
    """
    if services.life.followers >= MAX_FOLLOWERS or services.life.stopping:
        sentence = f"{services.life.followers} clients follow the events; no more can"
        raise ProxyError(503, "upstream_unavailable", sentence, retry_after=5)
    newest = await newest_number(services)
    if query.after is not None and query.after <= newest:
        stream = _stream(services, query, [], query.after)
    else:
        first = await services.store.events(replace(query, after=None))
        stream = _stream(services, query, first, max(newest, first[-1][0] if first else 0))
    headers = {name.decode(): value.decode() for name, value in EVENT_STREAM}
    return StreamingResponse(stream, headers=headers)


async def _stream(
    services: Services, query: EventQuery, first: Events, position: int
) -> AsyncIterator[bytes]:
    """``position``: the number up to which all has been sent."""
    services.life.followers += 1
    try:
        yield b"retry: %d\n\n" % RETRY_MS + _frames(first)
        clock = asyncio.get_running_loop().time
        last = clock()
        while not services.life.stopping:
            found, position = await _more(services, query, position)
            if found or clock() - last >= KEEPALIVE_SECONDS:
                yield _frames(found) or comment_frame("keep-alive")
                last = clock()
            if len(found) < PAGE:
                await asyncio.sleep(POLL_SECONDS)
    finally:
        services.life.followers -= 1


async def _more(services: Services, query: EventQuery, position: int) -> tuple[Events, int]:
    """The next page, and the number up to which it goes.

    The page is empty if nothing is new or the store fails, which may pass.
    """
    try:
        newest = await newest_number(services)
        if newest == position:
            return [], position
        if newest < position:  # the store was begun anew
            found = await services.store.events(replace(query, after=None))
        else:
            found = await services.store.events(replace(query, after=position, limit=PAGE))
    except StoreError as error:
        accounts.store_failed(services, error)
        return [], position
    last = found[-1][0] if found else 0
    return found, last if len(found) == PAGE else max(newest, last)


async def newest_number(services: Services) -> int:
    """The number of the newest event; 0 if there is none. Raises :class:`StoreError`."""
    found = await services.store.events(EventQuery(limit=1))
    return found[-1][0] if found else 0


def _frames(found: Events) -> bytes:
    return b"".join(
        b"id: %d\ndata: %s\n\n" % (number, orjson.dumps({"number": number, **event}))
        for number, event in found
    )
