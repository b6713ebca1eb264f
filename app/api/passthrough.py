"""Every other path under ``/v1/``: there and back untouched, streamed both ways."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

from .. import log
from ..core import session_id
from ..core.blocks import Blocks
from ..core.usage_tail import READABLE
from ..errors import ProxyError, invalid, unreachable
from ..proxy import response_headers
from ..proxy.downstream import Downstream
from ..proxy.headers import HOP_BY_HOP, RawHeaders, passed_on
from ..proxy.passthrough_books import PassthroughBooks
from ..proxy.services import Services
from ..proxy.upstream import BadTarget, Response, UpstreamError
from ..proxy.watch import ClientLeft, Receive, Watch
from .access import Access, given_key
from .body_memory import BodyMemory, HeldBody
from .incoming import ClientGone, Incoming, check_length, read_body, too_large

# For which upstream may take nothing of a request's body. Meanwhile nothing is read of the client
# either, so that one who leaves is not noticed.
STALL_SECONDS = 60.0
# Ends of paths at which a model writes, and ends and beginnings of those at which none is asked.
_WRITTEN = ("/completions", "/responses", "/messages")
_FREE = ("/cancel", "/count_tokens")
_STORED = frozenset({"files", "uploads", "batches", "vector_stores", "moderations"})
_PART = 256 * 1024  # bytes of a body that is there, for which upstream has that time
_NOT_SENT_UP = HOP_BY_HOP | frozenset(
    {b"host", b"expect", b"cookie", b"origin", b"x-litellm-call-id"}
)


class Passthrough:
    def __init__(self, services: Services, access: Access, bodies: BodyMemory) -> None:
        self._services = services
        self._access = access
        self._bodies = bodies

    async def handle(self, request: Incoming, receive: Receive, downstream: Downstream) -> None:
        """Relay one request. Raises :class:`ProxyError` while nothing has been sent."""
        owner = self._access.check_key(request)
        most = self._services.settings.server.max_body_bytes
        check_length(request, most)
        session = session_id.identify(request.headers, {}, owner, Blocks(()))
        books = PassthroughBooks(
            self._services.in_force(),
            request.id,
            session,
            given_key(request),
            uses=_uses(request),
            asks=_asks(request),
            writes=_writes(request),
        )
        up = _readable(passed_on(request.raw_headers, _NOT_SENT_UP))
        headers, _ = self._access.upstream_headers(up)
        watch = Watch(receive)
        held = HeldBody(self._bodies)
        body = _Body(receive, most, watch, held) if _has_body(request) else None
        if body is None:
            watch.start(_never, _nothing)
        response: Response | None = None
        try:
            asked = await body.read() if body is not None and books.reserves else None
            await books.admit(asked)
            response = await self._open(request, headers, body, books)
            metrics = self._services.metrics
            metrics.passthrough.inc(str(response.status))
            await self._relay(request, response, downstream, watch, books)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if body is not None and body.stalled:
                raise body.given_up() from None
            if not watch.client_left:
                raise
            try:
                watch.interruption()
            except ClientLeft:
                return
        finally:
            watch.stop()
            held.release()
            if response is not None:
                await response.aclose()
            await books.close()

    async def _open(
        self,
        request: Incoming,
        headers: RawHeaders,
        body: _Body | None,
        books: PassthroughBooks,
    ) -> Response:
        content = body.parts(books) if body is not None else None
        try:
            return await self._services.upstream.send(
                request.method, request.target, headers, content, call_id=request.id
            )
        except BadTarget as error:
            raise invalid(f"this path can't be passed on: {error}", "path") from None
        except UpstreamError as error:
            if body is not None and body.error is not None:
                raise body.error from None
            raise _unavailable(error) from None

    async def _relay(
        self,
        request: Incoming,
        response: Response,
        downstream: Downstream,
        watch: Watch,
        books: PassthroughBooks,
    ) -> None:
        headers = [
            *response_headers.relayed(response.headers),
            (b"x-mlx-stack-mode", b"passthrough"),
            *request.id_headers,
            *response_headers.of_pressure(self._services.memory.pressure),
        ]
        books.read(response.status, response.header(b"content-encoding").decode("latin-1"))
        # To a client that knows the length, the last piece is the end: with it goes ours, and what
        # has to be done before. Its next request may be here at once.
        left = _length(request, response)
        last = b""
        if left != 0:
            await downstream.start(response.status, headers)
        try:
            while data := await response.next_bytes():
                books.feed(data)
                if left is not None and (left := left - len(data)) <= 0:
                    last = data
                    break
                await downstream.write(data)
        except UpstreamError as error:
            if not downstream.started:
                raise _unavailable(error) from None
            # The status is out: only a connection that breaks off, as it does where a response
            # isn't ended, says that this isn't all.
            log.get().warning("upstream_broke_off", why=str(error))
            downstream.break_off()
            return
        watch.stop()
        books.whole()
        await books.close()
        if not downstream.started:
            await downstream.start(response.status, headers)
        await downstream.end(last)


class _Body:
    """A request body that streams upward, counted. At its end ``watch`` begins to listen.

    ``stalled``: upstream took no more of it, so the task that made this has been cancelled.
    """

    def __init__(self, receive: Receive, most: int, watch: Watch, held: HeldBody) -> None:
        self._receive = receive
        self._held = held
        self._most = most
        self._watch = watch
        self._task = asyncio.current_task()
        self._read: bytes | None = None
        self.complete = False
        self.stalled = False
        self.error: Exception | None = None

    async def read(self) -> bytes:
        """The whole of it, before upstream is asked. Raises as ``read_body()`` does."""
        self._read = await read_body(self._receive, self._most, self._held)
        self._is_complete()
        return self._read

    def _is_complete(self) -> None:
        self.complete = True
        self._watch.start(_never, _nothing)

    async def parts(self, books: PassthroughBooks) -> AsyncIterator[bytes]:
        if self._read is not None:
            books.sent(len(self._read))
            for at in range(0, len(self._read), _PART):
                with self._patience():
                    yield self._read[at : at + _PART]
        size = 0
        while not self.complete:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.error = ClientGone()
                raise self.error
            part = message.get("body", b"")
            size += len(part)
            if size > self._most:
                self.error = too_large(self._most)
                raise self.error
            if not message.get("more_body"):
                books.sent(size)
                self._is_complete()
            if part:
                with self._patience():
                    yield part

    @contextlib.contextmanager
    def _patience(self) -> Iterator[None]:
        """For as long as upstream takes a part."""
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


def _never() -> None:
    """No time matters here."""


def _nothing(_: float) -> None:
    """Nothing to do at any time."""


def _uses(request: Incoming) -> bool:
    """Whether a request may use any tokens."""
    stored = request.path.removeprefix("/v1/").partition("/")[0] in _STORED
    return request.method == "POST" and not stored and not request.path.endswith(_FREE)


def _asks(request: Incoming) -> bool:
    """Whether its body may say what it asks a model for."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return (kind == "application/json" and _uses(request)) or _writes(request)


def _writes(request: Incoming) -> bool:
    """Whether a model writes the reply."""
    return _uses(request) and request.path.endswith(_WRITTEN)


def _readable(headers: RawHeaders) -> RawHeaders:
    """The headers without an offer of compressions that hide a reply's usage from us."""
    return [(n, _offered(v) if n == b"accept-encoding" else v) for n, v in headers]


def _offered(value: bytes) -> bytes:
    offers = [part.strip() for part in value.decode("latin-1").split(",")]
    return ", ".join(filter(_is_readable, offers)).encode("latin-1") or b"identity"


def _is_readable(offer: str) -> bool:
    return offer.partition(";")[0].strip().lower() in READABLE


def _length(request: Incoming, response: Response) -> int | None:
    """How many bytes a reply's body has, where the client is told before it comes."""
    if request.method == "HEAD" or response.status in (204, 304):
        return 0
    length = response.header(b"content-length")
    return int(length) if length.isdigit() else None


def _has_body(request: Incoming) -> bool:
    length = request.headers.get("content-length")
    return (length is not None and length != "0") or "transfer-encoding" in request.headers


def _unavailable(error: UpstreamError) -> ProxyError:
    if error.refused:
        return unreachable(error)
    return ProxyError(502, "all_tiers_failed", f"LiteLLM gave no answer: {error}")
