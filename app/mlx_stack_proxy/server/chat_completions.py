"""``POST /v1/chat/completions``: from bytes to an exchange, and its account at the end."""

from __future__ import annotations

import asyncio

from ..engine import client_request, session_id
from ..engine.downstream import Downstream
from ..engine.exchange import ClientRequest, Exchange
from ..engine.headers import HOP_BY_HOP, passed_on
from ..engine.litellm_controls import patience
from ..engine.runner import Run
from ..engine.services import Services
from ..engine.upstream import CHAT_HEADERS
from ..engine.watch import Receive, Watch
from ..errors import invalid
from ..escalation import tiers
from ..telemetry import accounts, log
from .access import Access, given_key, without_controls
from .body_memory import BodyMemory, HeldBody
from .control_headers import client_timeout, read_controls
from .incoming import ClientGone, Incoming, check_length, read_body

# What describes the client's connection or body rather than its request.
_NOT_SENT_UP = HOP_BY_HOP | frozenset(
    {
        b"host",
        b"content-length",
        b"content-type",
        b"accept",
        b"accept-encoding",
        b"expect",
        b"origin",
        b"cookie",
        b"x-litellm-call-id",  # the request's id is that
    }
)
LARGE_BODY = 1024 * 1024


class ChatCompletions:
    def __init__(self, services: Services, access: Access, bodies: BodyMemory) -> None:
        self._services = services
        self._access = access
        self._bodies = bodies
        self._said_unknown: set[str] = set()
        self._routes = tiers.Routes(services.settings)

    async def handle(self, request: Incoming, receive: Receive, downstream: Downstream) -> None:
        """Answer one request. Raises :class:`ProxyError` while nothing has been sent."""
        held = HeldBody(self._bodies)
        try:
            await self._handle(request, receive, downstream, held)
        finally:
            held.release()

    async def _handle(
        self, request: Incoming, receive: Receive, downstream: Downstream, held: HeldBody
    ) -> None:
        services = self._services.in_force()
        clock = asyncio.get_running_loop().time
        started = clock()
        owner = self._access.check_key(request)
        _check_content_type(request)
        most = services.settings.server.max_body_bytes
        check_length(request, most)
        controls = read_controls(request.headers, services.settings)
        try:
            body = await read_body(receive, most, held)
        except ClientGone:
            return
        arrived = clock()
        if len(body) > LARGE_BODY:  # to check a million messages takes a while
            parsed = await asyncio.to_thread(client_request.parse, body)
        else:
            parsed = client_request.parse(body)
        del body  # as long as what was read from it, and a reply may stream for long
        route = await self._route(services, parsed, controls.tier, controls.cloud, request)
        session = session_id.identify(request.headers, parsed.body, owner, parsed.blocks)
        exchange = Exchange(request.id, parsed, controls, session, route, started)
        exchange.patience = patience(parsed.body, request.headers)
        if not parsed.stream:
            exchange.client_timeout = client_timeout(request.headers)
        exchange.owner = given_key(request)
        own = without_controls(passed_on(request.raw_headers, _NOT_SENT_UP))
        up = [*own, *CHAT_HEADERS]
        headers, our_key = self._access.upstream_headers(up)
        run = Run(
            services,
            exchange,
            headers=headers,
            our_key=our_key,
            downstream=downstream,
            watch=Watch(receive),
            arrived=arrived,
        )
        try:
            await run.run()
        finally:
            accounts.close(services, exchange, run.outcome, clock() - started)

    async def _route(
        self,
        services: Services,
        parsed: ClientRequest,
        tier: str | None,
        cloud: bool,
        request: Incoming,
    ) -> tiers.Route:
        models = services.models
        authorization = request.headers.get("authorization")
        listed = models.known(authorization)
        if listed is None:
            listed = await models.get(authorization)
        if self._routes.settings is not services.settings:
            self._routes = tiers.Routes(services.settings)
        try:
            route = self._routes.of(parsed.model, tier, cloud, listed)
        except tiers.NoSuchTier as error:
            raise invalid(str(error), error.param) from None
        if route.unknown_model and len(self._said_unknown) < 1000:
            self._say_unknown(parsed.model, route)
        return route

    def _say_unknown(self, model: str, route: tiers.Route) -> None:
        name = model[:128]  # one of a body's whole length would stay in memory
        if name not in self._said_unknown:
            self._said_unknown.add(name)
            log.get().warning("unknown_model", model=name, served_by=route.tiers[0], said="once")


def _check_content_type(request: Incoming) -> None:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json" and not content_type.endswith("+json"):
        raise invalid(
            "the content type must be application/json; with curl, add "
            "-H 'Content-Type: application/json'",
            "content-type",
            status=415,
        )
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise invalid(
            "compressed request bodies are not read; send it as it is",
            "content-encoding",
            status=415,
        )
