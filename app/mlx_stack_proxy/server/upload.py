"""A request body that streams upward, counted and bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

from ..engine.watch import Receive
from ..errors import ProxyError
from .body_memory import HeldBody
from .incoming import ClientGone, read_body, too_large

# For which upstream may take nothing of a request's body. Meanwhile nothing is read of the client
# either, so that one who leaves is not noticed.
STALL_SECONDS = 60.0
_PART = 256 * 1024  # bytes of a body that is there, for which upstream has that time
_KEPT = 256 * 1024  # bytes of a body that streams, with which it can be begun anew


class Upload:
    """One request's body; iterating over it gives its pieces.

    ``whole()`` is called when all of it has come, ``sent(size)`` when upstream is given its end.
    ``size``: bytes that have come so far. ``stalled``: upstream took no more of it, so the task
    that made this has been cancelled.
    """

    def __init__(
        self,
        receive: Receive,
        most: int,
        held: HeldBody,
        whole: Callable[[], None],
        sent: Callable[[int], None],
    ) -> None:
        self._receive = receive
        self._most = most
        self._held = held
        self._whole = whole
        self._sent = sent
        self._task = asyncio.current_task()
        self._read: bytes | None = None
        self._pieces: list[bytes] = []  # what came, as long as all of it is kept
        self.size = 0
        self.complete = False
        self.stalled = False
        self.error: Exception | None = None

    async def read(self) -> bytes:
        """The whole of it, before upstream is asked. Raises as ``read_body()`` does."""
        self._read = await read_body(self._receive, self._most, self._held)
        self.size = len(self._read)
        self._is_complete()
        return self._read

    def replace(self, content: bytes) -> None:
        """Send this, now that it has been read, in its place."""
        self._read = content
        self.size = len(content)

    def rewind(self) -> bool:
        """Whether it can be sent from its beginning, though it has been begun."""
        return self.error is None and (self._read is not None or self.size <= _KEPT)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._read is not None:
            self._sent(self.size)
            for at in range(0, len(self._read), _PART):
                with self._patience():
                    yield self._read[at : at + _PART]
            return
        for piece in self._pieces:
            with self._patience():
                yield piece
        while not self.complete:
            if piece := await self._next_piece():
                with self._patience():
                    yield piece

    async def _next_piece(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.error = ClientGone()
            raise self.error
        piece: bytes = message.get("body", b"")
        self._keep(piece)
        if self.size > self._most:
            self.error = too_large(self._most)
            raise self.error
        if not message.get("more_body"):
            self._sent(self.size)
            self._is_complete()
        return piece

    def _keep(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > _KEPT:
            self._pieces.clear()
        elif piece:
            self._pieces.append(piece)

    def _is_complete(self) -> None:
        self.complete = True
        self._whole()

    @contextlib.contextmanager
    def _patience(self) -> Iterator[None]:
        """For as long as upstream takes a piece."""
        patience = asyncio.get_running_loop().call_later(STALL_SECONDS, self._stall)
        try:
            yield
        finally:
            patience.cancel()

    def _stall(self) -> None:
        if self._task is not None:
            self.stalled = True
            self._task.cancel()

    def given_up(self) -> ProxyError:
        """What a client is told whose body has ``stalled``; its task goes on."""
        if self._task is not None:
            self._task.uncancel()
        said = f"LiteLLM took nothing more of the request's body for {STALL_SECONDS:g} s"
        return ProxyError(502, "all_tiers_failed", said)
