"""Which models LiteLLM lists, asked again when the answer is old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson

from .upstream import RawHeaders, Upstream, UpstreamError

FRESH_SECONDS = 60.0
RETRY_SECONDS = 2.0
ASK_SECONDS = 3.0


class ModelList:
    """LiteLLM's ``/v1/models``; ``clock`` gives seconds."""

    def __init__(self, upstream: Upstream, key: str | None, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._key = key
        self._clock = clock
        self._names: frozenset[str] | None = None
        self._next_ask = 0.0
        self._asking: asyncio.Task[None] | None = None

    @property
    def known(self) -> frozenset[str] | None:
        """The names as last heard; None if never. Asks anew in the background when that is old."""
        if self._clock() >= self._next_ask and self._asking is None and self._names is not None:
            self._ask(None)
        return self._names

    async def get(self, authorization: str | None) -> frozenset[str] | None:
        """The names, asking for them if they aren't known; ``authorization``: the client's."""
        if self._names is None and self._clock() >= self._next_ask:
            await asyncio.shield(self._asking or self._ask(authorization))
        return self.known

    def _ask(self, authorization: str | None) -> asyncio.Task[None]:
        self._asking = asyncio.create_task(self._refresh(authorization))
        return self._asking

    async def _refresh(self, authorization: str | None) -> None:
        names = None
        try:
            status, body = await self.fetch(authorization)
            names = names_in(body) if status == 200 else None
        except (UpstreamError, TimeoutError):
            pass
        finally:
            self._names = names if names is not None else self._names
            self._next_ask = self._clock() + (RETRY_SECONDS if names is None else FRESH_SECONDS)
            self._asking = None

    async def fetch(self, authorization: str | None) -> tuple[int, bytes]:
        """LiteLLM's answer, now. Raises :class:`UpstreamError`, ``TimeoutError``."""
        value = f"Bearer {self._key}" if self._key else authorization
        return await self.ask([(b"authorization", value.encode())] if value else [])

    async def ask(self, headers: RawHeaders) -> tuple[int, bytes]:
        """The same for a client, with the headers that are sent up for it."""
        async with asyncio.timeout(ASK_SECONDS):
            response = await self._upstream.send("GET", "/v1/models", headers)
            try:
                return response.status, await response.read()
            finally:
                await response.aclose()


def names_in(body: bytes) -> frozenset[str] | None:
    """The model ids in a ``/v1/models`` body; None if it is none."""
    try:
        parsed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    data = parsed.get("data") if isinstance(parsed, dict) else None
    if not isinstance(data, list):
        return None
    ids = (entry.get("id") for entry in data if isinstance(entry, dict))
    return frozenset(name for name in ids if isinstance(name, str))
