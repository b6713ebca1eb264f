"""Reads a request: checks its line and headers, and bounds its body.

All requests of the process together may hold ``LARGEST_BODIES`` of the largest bodies. Received
bytes count, not announced ones, so that bodies sent only by half count, too. They count until the
request ends: the parsed body is about as large, and further attempts need it.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ..engine.downstream import Downstream
from ..engine.headers import KEY_HEADERS, RawHeaders
from ..engine.watch import Receive
from ..errors import INVALID_REQUEST, ProxyError, invalid
from ..settings import ServerSettings

SILENT_SECONDS = 30.0  # without a byte of a head or body
WHOLE_SECONDS = 300.0  # from the connection's beginning, or a later head's first byte
LATE_BODY = "the request body did not arrive in time"
LARGEST_BODIES = 8  # together, in one process: agents need no more at once

MAX_HEADERS = 200
MAX_HEADER_BYTES = 64 * 1024
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")
# Headers that may come only once: if one came twice, two servers might each believe another value.
_SINGLE = frozenset({"host", "content-length", "content-type", "transfer-encoding", *KEY_HEADERS})
_OURS = "x-mlx-stack-"
# In a scope, inside LiteLLM: the model that the path names, and whether the request passes through
# though its path isn't under /v1/.
MODEL_OF_PATH, PASSED_ON = "mlx_stack.model", "mlx_stack.passed_on"
RETRY_SECONDS = 5
CHUNKED = "chunked"  # the only transfer coding that we accept


class ClientGone(Exception):
    """The client left before its request was whole."""


class BodyRefused(ProxyError):
    """A refusal while the client may still be sending its body."""


class BodyMemory:
    """The memory for all requests' bodies, in bytes."""

    def __init__(self, settings: ServerSettings) -> None:
        self.largest = settings.max_body_bytes
        self.most = LARGEST_BODIES * self.largest
        self.held = 0


class Incoming:
    """One HTTP request: its head, its body on demand, and the way to its client."""

    __slots__ = (
        *("_bodies", "_held", "_read", "downstream", "headers", "id", "key", "method", "model"),
        *("owner", "path", "raw_headers", "receive", "scope", "started", "target"),
    )

    def __init__(
        self, scope: Any, receive: Receive, downstream: Downstream, bodies: BodyMemory
    ) -> None:
        self.scope = scope  # ASGI's
        self.receive = receive  # the client's messages, as ASGI gives them
        self.downstream = downstream
        self.started = downstream.last_write  # in seconds on the event loop's clock
        # `Access.check_key()` fills both in: the client's API key, "" if it has none; and the key
        # that owns the request's sessions, "" if clients need none.
        self.key = self.owner = ""
        self._bodies = bodies
        self._held = 0  # bytes of the body that count in `bodies`
        self._read: bytes | None = None  # a body that was put back
        self.method: str = scope["method"]
        self.path: str = scope["path"]  # percent-decoded
        # All headers, and the last one of each name, in lower case.
        self.raw_headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.headers = by_name(self.raw_headers)
        self.id = request_id(self.headers)
        self.model: str = scope.get(MODEL_OF_PATH, "")  # the path's model; "": the body names it
        raw_path: bytes = scope.get("raw_path") or self.path.encode()
        query: bytes = scope.get("query_string") or b""
        self.target = (raw_path + b"?" + query if query else raw_path).decode("latin-1")

    def check(self) -> None:
        """Check line and headers. Raises ``ProxyError`` (400, 431, 501)."""
        raw, headers = self.raw_headers, self.headers
        if len(raw) > MAX_HEADERS:
            raise invalid(f"more than {MAX_HEADERS} headers", status=431)
        if len(headers) < len(raw):
            _check_repeated(raw)
        if sum([len(name) + len(value) for name, value in raw]) > MAX_HEADER_BYTES:
            raise invalid(f"headers of more than {MAX_HEADER_BYTES} bytes", status=431)
        if "host" not in headers and self.scope.get("http_version") == "1.1":
            raise invalid("header host is missing", "host")
        if headers.get("transfer-encoding", CHUNKED).strip().lower() != CHUNKED:
            # RFC 9112, 6.1. We would take the bytes of another coding for the body itself.
            raise invalid("only chunks are understood", "transfer-encoding", status=501)
        _check_path(self.path)

    @property
    def media_type(self) -> str:
        """The body's type by ``content-type``, in lower case, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def body(self) -> bytes:
        """Return the whole body, whose bytes count as they arrive, until ``release()``.

        How long it may take, ``http_protocol.py`` decides. Raises ``ProxyError`` (400, 413, 503)
        and ``ClientGone``.
        """
        if self._read is not None:
            body, self._read = self._read, None
            return body
        if (length := self.headers.get("content-length")) is not None:
            if not length.isascii() or not length.isdigit():
                raise invalid("header content-length is not a number", "content-length")
            if len(length) > 18 or int(length) > self._bodies.largest:
                raise _too_large(self._bodies.largest)
        parts = bytearray()
        try:
            while True:
                message = await self.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part: bytes = message.get("body", b"")
                self._count(len(part))
                if not message.get("more_body"):
                    return bytes(parts) + part if parts else part
                parts += part
        finally:
            parts.clear()  # an error's traceback would keep the bytes

    def put_back(self, body: bytes) -> None:
        """Put a body back, for another handler to read."""
        self._read = body

    def _count(self, size: int) -> None:
        bodies = self._bodies
        if self._held + size > bodies.largest:
            raise _too_large(bodies.largest)
        if bodies.held + size > bodies.most:
            message = (
                f"the bodies of all requests have more than {bodies.most} bytes "
                f"({LARGEST_BODIES} times server.max_body_bytes)"
            )
            raise BodyRefused(503, "upstream_unavailable", message, retry_after=RETRY_SECONDS)
        bodies.held += size
        self._held += size

    def release(self) -> None:
        """Release the body's memory."""
        self._bodies.held -= self._held
        self._held = 0


Handler = Callable[[Incoming], Awaitable[None]]


def by_name(raw_headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Return the headers as texts; of several with one name, the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in raw_headers}


def request_id(headers: Mapping[str, str]) -> str:
    """Return the client's ``x-request-id``, or a new id. ``headers``: names in lower case."""
    client_id = headers.get("x-request-id", "")
    return client_id if _REQUEST_ID.fullmatch(client_id) else f"req_{random.getrandbits(96):024x}"


def id_headers(identity: str) -> RawHeaders:
    """Return the headers that say which request a response belongs to."""
    value = identity.encode()
    return [(b"x-mlx-stack-request-id", value), (b"x-request-id", value)]


def _check_repeated(raw: list[tuple[bytes, bytes]]) -> None:
    seen = set()
    for name_bytes, _ in raw:
        name = name_bytes.decode("latin-1")
        if name in seen and (name in _SINGLE or name.startswith(_OURS)):
            raise invalid(f"header {name[:64]} is given twice", name[:64])
        seen.add(name)


def _check_path(path: str) -> None:
    """Refuse a decoded path that a server on the way could resolve to a place outside ``/v1``.

    LiteLLM's administration lies there, and we may hold its master key.
    """
    if not path.startswith("/") or "\\" in path or "\0" in path:
        raise invalid("the path is not valid", "path")
    if "/." in path and any(part in (".", "..") for part in path.split("/")):
        raise invalid("the path must not hold `.` or `..` segments", "path")


def in_time(receive: Receive) -> Receive:
    """Return a ``receive`` that bounds a body's time as ``http_protocol.py`` does, for use under
    another server. It raises ``ProxyError`` (408)."""
    clock = asyncio.get_running_loop().time
    last_moment = clock() + WHOLE_SECONDS
    is_whole = False

    async def bounded() -> Any:
        nonlocal is_whole
        if is_whole:
            return await receive()
        try:
            async with asyncio.timeout_at(min(clock() + SILENT_SECONDS, last_moment)):
                message = await receive()
        except TimeoutError:
            raise BodyRefused(408, INVALID_REQUEST, LATE_BODY) from None
        is_whole = not message.get("more_body")
        return message

    return bounded


def _too_large(max_bytes: int) -> BodyRefused:
    message = f"the request body is larger than {max_bytes} bytes (server.max_body_bytes)"
    return BodyRefused(413, INVALID_REQUEST, message)
