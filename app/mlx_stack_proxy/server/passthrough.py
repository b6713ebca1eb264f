"""Relays every other path under ``/v1/``: the request in one piece, the reply as it comes.

A request with the client's own LiteLLM key goes up unchanged: LiteLLM decides what that key may do.
With our key, only some paths are open (``passthrough_paths.py``), and the fields that steer LiteLLM
itself are taken out of the body (``litellm_controls.py``). The same fields are taken out if the
request has to stay on this machine, and its model must then belong to a local tier.
"""

from __future__ import annotations

import asyncio
import math
import re

from .. import log, tasks
from ..driver import response_headers
from ..driver.services import Services
from ..engine import passthrough_body, passthrough_paths, session_id
from ..engine.deadlines import impatient
from ..engine.downstream import Downstream
from ..engine.headers import HOP_BY_HOP, RawHeaders, passed_on
from ..engine.upstream import BadTarget, Response, UpstreamError
from ..engine.verdicts import Failure, Verdict
from ..engine.watch import ClientLeft, Watch
from ..errors import ProxyError, invalid, unreachable
from ..escalation.tiers import cloud_allowed, is_local_model
from ..frozen import frozen
from ..token_budget.passthrough_books import PassthroughBooks
from .access import Access, without_controls
from .control_headers import read_cloud
from .incoming import Incoming, id_headers

# Methods with which a request can make a model work, now or later.
_CHANGING = frozenset({"POST", "PUT", "PATCH"})
# The ends of paths whose replies a model writes; those of the last line only inside LiteLLM.
_WRITTEN = (
    *("/completions", "/responses", "/messages", "/compact"),
    *("/interactions", ":generateContent", ":streamGenerateContent"),
)
_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
# Paths that use no tokens.
FREE = re.compile(
    r"/v1/(files|uploads)(/.*)?|/v1/moderations|/v1/messages/count_tokens"
    r"|/v1/[a-z_]+(/[^/]+)+/cancel"
)
NOT_SENT_UP = HOP_BY_HOP | frozenset(
    {
        b"accept-encoding",
        b"content-length",
        b"cookie",
        b"expect",
        b"host",
        b"origin",
        b"x-litellm-call-id",  # we send the request's id in it
    }
)
_NOT_PACKED = (b"accept-encoding", b"identity")  # so that a reply's usage can be read


@frozen
class _Forwarding:
    """How one request goes up to LiteLLM."""

    target: str  # path and query
    headers: RawHeaders
    judged: bool  # whether the fields that steer LiteLLM are taken out of the body
    local_only: bool  # whether the body's model has to belong to a local tier


class _Patience(Watch):
    """Ends a request whose client waits no longer for the whole reply."""

    started = 0.0  # on the event loop's clock
    seconds: float | None = None  # that the request gives itself; None: no end

    def look(self, now: float) -> Verdict | float:
        if self.seconds is None:
            return math.inf
        due = self.started + self.seconds
        return due if now < due else impatient(self.seconds)


class Passthrough:
    """Relays requests to LiteLLM and counts their tokens in the budgets."""

    def __init__(self, services: Services, access: Access) -> None:
        self._services = services
        self._access = access
        opened = services.settings.server.passthrough_paths
        self._allowed = passthrough_paths.AllowedPaths(opened)

    async def handle(self, request: Incoming) -> None:
        """Relay one request. Raises ``ProxyError`` while nothing has been sent."""
        self._access.check_key(request)
        forwarding = self._forwarding(request)
        books = self._books(request)
        watch = _Patience(request.receive)
        response: Response | None = None
        try:
            watch.started = asyncio.get_running_loop().time()
            content = await self._content(request, forwarding, watch)
            watch.start()
            await books.admit(content)
            response = await self._ask(request, forwarding, content, books)
            del content  # free it: a reply may stream for long
            request.release()
            self._services.metrics.count("passthrough", str(response.status))
            await self._relay(request, response, watch, books)
        except asyncio.CancelledError:
            try:
                verdict = watch.interruption()
            except ClientLeft:
                return
            assert isinstance(verdict, Failure)  # the request's own timeout is over
            if not request.downstream.started:
                raise ProxyError(504, "all_tiers_failed", verdict.message) from None
        finally:
            watch.stop()
            if response is not None:
                await response.aclose()
            await books.close()

    def _books(self, request: Incoming) -> PassthroughBooks:
        uses = request.method in _CHANGING and FREE.fullmatch(request.path) is None
        return PassthroughBooks(
            self._services.in_force(),
            request.id,
            session_id.identify(request.headers, {}, request.owner, ()),
            request.key,
            uses=uses,
            # LiteLLM reads such a body as a form, and not as JSON.
            form=request.media_type in _FORMS,
            writes=uses and request.path.endswith(_WRITTEN),
        )

    def _forwarding(self, request: Incoming) -> _Forwarding:
        """Decide how a request goes up. Raises ``ProxyError`` (400, 403, 404) if it must not."""
        passthrough_paths.check(request.target)
        settings = self._services.in_force().settings
        local_only = not cloud_allowed(read_cloud(request.headers), settings)
        client_headers = passed_on(request.raw_headers, NOT_SENT_UP)
        headers, our_key = self._access.upstream_headers([*client_headers, _NOT_PACKED])
        guarded = our_key or request.path.startswith("/v1/responses/")
        if guarded and not self._allowed.has(request.method, request.path):
            if request.path == "/v1/responses/compact":
                raise invalid("no input is compacted here: ask for a summary in a message", "path")
            endpoint = f"{request.method} {request.path[:128]}"
            sentence = f"{endpoint} is not passed through; the operator may add it to"
            raise invalid(f"{sentence} server.passthrough_paths", "path", status=404)
        asks_model = request.method in _CHANGING or _has_body(request)
        local_only = local_only and asks_model
        serves = passthrough_paths.serves_models(request.method, request.path)
        if local_only and not serves:
            raise _may_leave("this path doesn't say which model it calls")
        judged = our_key or local_only
        target = request.target
        if judged:
            headers = without_controls(headers)
            if serves:  # LiteLLM prefers a `model` in the query to the body's, which we check
                target = target.partition("?")[0]
        return _Forwarding(target, headers, judged, local_only)

    async def _content(
        self, request: Incoming, forwarding: _Forwarding, patience: _Patience
    ) -> bytes:
        """Return the body for LiteLLM; note how long the client waits. Raises ``ProxyError``."""
        content = await request.body() if _has_body(request) else b""
        if not forwarding.judged:
            return content
        body = await tasks.aside(content, passthrough_body.read, request.headers, content)
        if forwarding.local_only:
            if body.model is None:
                raise _may_leave("the body names no model")
            if not is_local_model(body.model, self._services.in_force().settings):
                raise _may_leave(f"model {body.model[:64]!r} is not one of a local tier")
        patience.seconds = body.patience
        return body.content

    async def _ask(
        self, request: Incoming, forwarding: _Forwarding, content: bytes, books: PassthroughBooks
    ) -> Response:
        """Send the request to LiteLLM; return its response, whose body is still to be read.

        Raises ``ProxyError``.
        """
        books.request_sent(len(content))
        try:
            return await self._services.upstream.send(
                request.method,
                forwarding.target,
                forwarding.headers,
                content,
                call_id=request.id,
                repeatable=request.path.endswith("/embeddings"),
            )
        except BadTarget as error:
            raise invalid(f"this path can't be passed on: {error}", "path") from None
        except UpstreamError as error:
            if error.unreachable:
                books.request_sent(0)
            raise _unavailable(error) from None

    async def _relay(
        self,
        request: Incoming,
        response: Response,
        watch: Watch,
        books: PassthroughBooks,
    ) -> None:
        downstream = request.downstream
        headers = [
            *response_headers.relayed(response.headers),
            (b"x-mlx-stack-mode", b"passthrough"),
            *id_headers(request.id),
            *response_headers.of_pressure(self._services.memory.pressure),
        ]
        books.response_began(response.status)
        told = response.header(b"content-length")
        length = int(told) if told.isdigit() else None
        if request.method == "HEAD" or response.status in (204, 304):
            length = 0
        if length != 0:
            await downstream.start(response.status, headers)
        try:
            last = await _write(response, downstream, books, length)
        except UpstreamError as error:
            if not downstream.started:
                raise _unavailable(error) from None
            # The status has been sent: only an unended response can show that the body isn't whole.
            log.get().warning("upstream_broke_off", why=str(error))
            return
        watch.stop()
        books.response_ended()
        await books.close()
        if not downstream.started:
            await downstream.start(response.status, headers)
        await downstream.end(last)


async def _write(
    response: Response, downstream: Downstream, books: PassthroughBooks, unsent: int | None
) -> bytes:
    """Write the body's pieces as they come; return the last one if the client knows the length.

    Such a client takes the last piece for the end, and may send its next request at once: the
    caller closes the books first, and writes that piece then. ``unsent``: the length in bytes, or
    None if the client doesn't know it.
    """
    while data := await response.next_bytes():
        books.feed(data)
        if unsent is not None and (unsent := unsent - len(data)) <= 0:
            return data
        await downstream.write(data)
    return b""


def _may_leave(why: str) -> ProxyError:
    sentence = f"{why}, so the proxy can't keep the request on this machine, as required"
    return invalid(f"{sentence} (escalation.cloud, X-MLX-Stack-Cloud)", "model", status=403)


def _has_body(request: Incoming) -> bool:
    length = request.headers.get("content-length")
    return (length is not None and length != "0") or "transfer-encoding" in request.headers


def _unavailable(error: UpstreamError) -> ProxyError:
    if error.unreachable:
        return unreachable(error)
    return ProxyError(502, "all_tiers_failed", f"LiteLLM did not answer: {error}")
