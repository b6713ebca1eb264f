"""Caches which models LiteLLM lists; refreshes an old list in the background."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from ..recent import Recent
from .headers import RawHeaders
from .upstream import Upstream, UpstreamError

FRESH_SECONDS = 60.0
RETRY_SECONDS = 2.0
ASK_SECONDS = 3.0
OWNER = "mlx-stack"  # of our own names in the model list
# Statuses of an address where LiteLLM should list its models, but something else answers.
NOT_LITELLM = (200, 204, 301, 302, 307, 308, 404, 405)
MAX_KEYS = 256  # client keys whose answers are kept


@dataclass(slots=True)
class _CachedList:
    names: frozenset[str] | None = None  # the last list; None: LiteLLM never gave one
    next_ask: float = 0.0  # when to refresh, on the list's clock
    asking: asyncio.Task[None] | None = None  # the running refresh


class ModelList:
    """The models at LiteLLM's ``/v1/models``; ``clock`` returns seconds.

    If we have no key for LiteLLM, each client's own key is used, and each key has its own list.
    """

    def __init__(self, upstream: Upstream, key: str | None, clock: Callable[[], float]) -> None:
        self._upstream = upstream
        self._key = key
        self._clock = clock
        self._answers: Recent[bytes, _CachedList] = Recent(MAX_KEYS)

    async def get(self, authorization: str | None) -> frozenset[str] | None:
        """Return the models' names, perhaps outdated while a refresh runs; None: none are known.

        ``authorization``: the client's header.
        """
        answer = self._answer_for(authorization)
        if answer.asking is None and self._clock() >= answer.next_ask:
            answer.asking = asyncio.create_task(self._refresh(answer, authorization))
        if answer.names is None and answer.asking is not None:
            await asyncio.shield(answer.asking)
        return answer.names

    def _answer_for(self, authorization: str | None) -> _CachedList:
        key_digest = b""
        if self._key is None and authorization:
            key_digest = hashlib.blake2b(authorization.encode(), digest_size=16).digest()
        answer = self._answers.get(key_digest)
        if answer is None:
            answer = self._answers[key_digest] = _CachedList()
        return answer

    async def _refresh(self, answer: _CachedList, authorization: str | None) -> None:
        names = None
        try:
            status, body = await self.fetch(authorization)
            names = names_in(body) if status == 200 else None
        except (UpstreamError, TimeoutError):
            pass
        finally:
            answer.names = names if names is not None else answer.names
            answer.next_ask = self._clock() + (RETRY_SECONDS if names is None else FRESH_SECONDS)
            answer.asking = None

    async def fetch(self, authorization: str | None) -> tuple[int, bytes]:
        """Ask LiteLLM; return status and body. Raises :class:`UpstreamError`, ``TimeoutError``."""
        value = f"Bearer {self._key}" if self._key else authorization
        return await self.ask([(b"authorization", value.encode())] if value else [])

    async def ask(self, headers: RawHeaders) -> tuple[int, bytes]:
        """Ask like :meth:`fetch`, with the headers that are sent upstream for a client."""
        async with asyncio.timeout(ASK_SECONDS):
            return await self._upstream.fetch("GET", "/v1/models", headers)


def names_in(body: bytes) -> frozenset[str] | None:
    """Return the model ids in a ``/v1/models`` body; None if the body is no such list."""
    try:
        parsed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    data = parsed.get("data") if isinstance(parsed, dict) else None
    if not isinstance(data, list):
        return None
    ids = (entry.get("id") for entry in data if isinstance(entry, dict))
    return frozenset(name for name in ids if isinstance(name, str))
