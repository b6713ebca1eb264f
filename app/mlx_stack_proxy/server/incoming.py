"""Reads a request: checks its line and headers, and bounds its body.

All requests of the process together may hold ``server.max_buffered_bytes`` of bodies. Received
bytes count, not announced ones, so that bodies sent only by half count, too. They count until the
request ends: the parsed body is about as large, and further attempts need it.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any

from ..engine.downstream import Downstream
from ..engine.headers import KEY_HEADERS
from ..engine.watch import Receive
from ..errors import INVALID_REQUEST, ProxyError, invalid
from ..frozen import frozen
from ..settings import ServerSettings

SILENT_SECONDS = 30.0  # without a byte of a head or body
WHOLE_SECONDS = 300.0  # from the connection's beginning, or a later head's first byte
LATE_BODY = "the request body did not arrive in time"
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
        self.most = max(settings.max_buffered_bytes, self.largest)
        self.held = 0


class HeldBody:
    """One request's part of the ``BodyMemory``, until ``release()`` or the end of its ``with``."""

    __slots__ = ("_all", "_size")

    def __init__(self, bodies: BodyMemory) -> None:
        self._all = bodies
        self._size = 0

    def __enter__(self) -> HeldBody:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    async def read(self, request: Incoming, receive: Receive) -> bytes:
        """Return the request's whole body, and count its bytes as they come.

        How long it may take, ``http_protocol.py`` decides. Raises ``ProxyError`` (400, 413, 503)
        and ``ClientGone``.
        """
        if (length := request.headers.get("content-length")) is not None:
            if not length.isascii() or not length.isdigit():
                raise invalid("header content-length is not a number", "content-length")
            if len(length) > 18 or int(length) > self._all.largest:
                raise _too_large(self._all.largest)
        parts = bytearray()
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                part: bytes = message.get("body", b"")
                self._grow(len(part))
                if not message.get("more_body"):
                    return bytes(parts) + part if parts else part
                parts += part
        finally:
            parts.clear()  # an error's traceback would keep the bytes

    def _grow(self, size: int) -> None:
        if self._size + size > self._all.largest:
            raise _too_large(self._all.largest)
        if self._all.held + size > self._all.most:
            message = (
                f"the bodies of all requests have more than {self._all.most} bytes "
                "(server.max_buffered_bytes)"
            )
            raise BodyRefused(503, "upstream_unavailable", message, retry_after=RETRY_SECONDS)
        self._all.held += size
        self._size += size

    def release(self) -> None:
        """Give the memory back: the body is no longer needed."""
        self._all.held -= self._size
        self._size = 0


@frozen
class Incoming:
    """One HTTP request without its body."""

    method: str
    path: str  # percent-decoded
    target: str  # path and query as they came
    headers: dict[str, str]  # names in lower case; of several with one name, the last
    raw_headers: list[tuple[bytes, bytes]]  # all of them
    id: str  # the client's `x-request-id`, or a new one
    model: str = ""  # the model that the path names; "": the body names it

    @property
    def media_type(self) -> str:
        """The body's type by ``content-type``, in lower case, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def id_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that say which request a response belongs to."""
        identity = self.id.encode()
        return [(b"x-mlx-stack-request-id", identity), (b"x-request-id", identity)]


Handler = Callable[[Incoming, Receive, Downstream], Awaitable[None]]


def read_incoming(scope: Any) -> Incoming:
    """Read a request from an ASGI scope. Raises ``ProxyError`` (400, 431, 501) if it is bad."""
    raw: list[tuple[bytes, bytes]] = scope["headers"]
    if len(raw) > MAX_HEADERS:
        raise invalid(f"more than {MAX_HEADERS} headers", status=431)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}
    if len(headers) < len(raw):
        _check_repeated(raw)
    if sum([len(name) + len(value) for name, value in raw]) > MAX_HEADER_BYTES:
        raise invalid(f"headers of more than {MAX_HEADER_BYTES} bytes", status=431)
    if "host" not in headers and scope.get("http_version") == "1.1":
        raise invalid("header host is missing", "host")
    if headers.get("transfer-encoding", CHUNKED).strip().lower() != CHUNKED:
        # RFC 9112, 6.1. We would take the bytes of another coding for the body itself.
        raise invalid("only chunks are understood", "transfer-encoding", status=501)
    _check_path(scope["path"])
    client_id = headers.get("x-request-id", "")
    request_id = (
        client_id if _REQUEST_ID.fullmatch(client_id) else f"req_{random.getrandbits(96):024x}"
    )
    target = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
    query = scope.get("query_string") or b""
    if query:
        target += "?" + query.decode("latin-1")
    model = scope.get(MODEL_OF_PATH, "")
    return Incoming(scope["method"], scope["path"], target, headers, raw, request_id, model)


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
