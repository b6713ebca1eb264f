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
from ..engine.headers import HOP_BY_HOP, RawHeaders, passed_on
from ..engine.upstream import BadTarget, Response, UpstreamError
from ..engine.verdicts import Failure, Verdict
from ..engine.watch import ClientLeft, Watch
from ..errors import ProxyError, invalid, unreachable
from ..escalation.tiers import cloud_allowed, is_local_model
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


class _Patience(Watch):
    """Ends a request whose client's own time limit is over."""

    def __init__(self, request: Incoming) -> None:
        super().__init__(request.receive)
        self._started = request.started
        self.seconds = math.inf  # the request's own time limit

    def look(self, now: float) -> Verdict | float:
        due = self._started + self.seconds
        return due if now < due else impatient(self.seconds)


class Passthrough:
    """Relays requests to LiteLLM and counts their tokens in the budgets."""

    def __init__(self, services: Services, access: Access) -> None:
        self._services = services
        self._access = access
        self._opened = passthrough_paths.pattern(services.settings.server.passthrough_paths)

    async def handle(self, request: Incoming) -> None:
        """Relay one request. Raises ``ProxyError`` while nothing has been sent."""
        self._access.check_key(request)
        books, watch = self._books(request), _Patience(request)
        response: Response | None = None
        try:
            target, headers, content = await self._prepared(request, watch)
            watch.start()
            await books.admit(content)
            books.sent = len(content)
            response = await self._services.upstream.send(
                request.method,
                target,
                headers,
                content,
                call_id=request.id,
                repeatable=request.path.endswith("/embeddings"),
            )
            del content  # free it: a reply may take long
            request.release()
            self._services.metrics.count("passthrough", str(response.status))
            await self._relay(request, response, watch, books)
        except BadTarget as error:
            raise invalid(f"this path can't be passed on: {error}", "path") from None
        except UpstreamError as error:
            _not_whole(request, error, books)
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

    async def _prepared(self, request: Incoming, watch: _Patience) -> tuple[str, RawHeaders, bytes]:
        """Return path with query, headers and body for LiteLLM; note how long the client waits.

        Raises ``ProxyError`` (400, 403, 404, 413, 415) if they must not go up.
        """
        method, path, target = request.method, request.path, request.target
        passthrough_paths.check(target)
        settings, length = self._services.in_force().settings, request.headers.get("content-length")
        has_body = length not in (None, "0") or "transfer-encoding" in request.headers
        local_only = not cloud_allowed(read_cloud(request.headers), settings)
        local_only = local_only and (method in _CHANGING or has_body)
        client_headers = passed_on(request.raw_headers, NOT_SENT_UP)
        headers, our_key = self._access.upstream_headers([*client_headers, _NOT_PACKED])
        serves = passthrough_paths.serves_models(method, path)
        if (our_key or path.startswith("/v1/responses/")) and not serves:
            self._check_opened(method, path)
        if local_only and not serves:
            raise _may_leave("this path doesn't say which model it calls")
        content = await request.body() if has_body else b""
        if not our_key and not local_only:
            return target, headers, content
        body = await tasks.aside(content, passthrough_body.read, request.headers, content)
        if local_only and body.model is None:
            raise _may_leave("the body names no model")
        if local_only and not is_local_model(body.model or "", settings):
            raise _may_leave(f"model {(body.model or '')[:64]!r} is not one of a local tier")
        watch.seconds = body.patience or math.inf
        if serves:  # LiteLLM prefers a `model` in the query to the body's, which we check
            target = target.partition("?")[0]
        return target, without_controls(headers), body.content

    def _check_opened(self, method: str, path: str) -> None:
        if self._opened.fullmatch(f"{method} {path}") is not None:
            return
        if path == "/v1/responses/compact":
            raise invalid("no input is compacted here: ask for a summary in a message", "path")
        sentence = f"{method} {path[:128]} is not passed through; the operator may add it to"
        raise invalid(f"{sentence} server.passthrough_paths", "path", status=404)

    async def _relay(
        self, request: Incoming, response: Response, watch: Watch, books: PassthroughBooks
    ) -> None:
        """Write the response as it arrives.

        A client that knows the length takes the last piece for the end, and may send its next
        request at once: so the books are closed before that piece.
        """
        downstream, status = request.downstream, response.status
        headers = [
            *response_headers.relayed(response.headers),
            (b"x-mlx-stack-mode", b"passthrough"),
            *id_headers(request.id),
            *response_headers.of_pressure(self._services.memory.pressure),
        ]
        books.writes = books.writes and status < 400
        told = response.header(b"content-length")
        unsent = int(told) if told.isdigit() else None  # bytes; None: unknown
        if request.method == "HEAD" or status in (204, 304):
            unsent = 0
        if unsent != 0:
            await downstream.start(status, headers)
        while data := await response.next_bytes():
            books.feed(data)
            if unsent is not None and (unsent := unsent - len(data)) <= 0:
                break
            await downstream.write(data)
        watch.stop()
        books.ended = True
        await books.close()
        if not downstream.started:
            await downstream.start(status, headers)
        await downstream.end(data)


def _not_whole(request: Incoming, error: UpstreamError, books: PassthroughBooks) -> None:
    """Raise a ``ProxyError``, unless the status has been sent.

    Then only an unended response can show that the body isn't whole.
    """
    if request.downstream.started:
        log.get().warning("upstream_broke_off", why=str(error))
        return
    if error.unreachable:
        books.sent = 0
        raise unreachable(error) from None
    raise ProxyError(502, "all_tiers_failed", f"LiteLLM did not answer: {error}") from None


def _may_leave(why: str) -> ProxyError:
    sentence = f"{why}, so the proxy can't keep the request on this machine, as required"
    return invalid(f"{sentence} (escalation.cloud, X-MLX-Stack-Cloud)", "model", status=403)
