"""``POST /v1/chat/completions``: turns requests into exchanges, runs and accounts for them.

The paths of other dialects (``wire/``) come here, too. A dialect translates the request's body into
a chat completion, and the exchange's reply back into its own form. If the model of such a request
belongs to no tier, the request passes through untranslated, because its provider may speak the
dialect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson

from .. import log, tasks
from ..driver import loop_question
from ..driver.driver import Driver
from ..driver.response_headers import of_pressure
from ..driver.services import Services
from ..engine import client_request, session_id
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders, passed_on
from ..engine.litellm_controls import patience
from ..engine.request import Controls, Request, Route
from ..engine.upstream import CHAT_HEADERS
from ..errors import invalid
from ..escalation import tiers
from ..telemetry import accounts
from ..telemetry.agent_name import agent_name
from ..wire.dialect import Dialect, Translated
from .access import Access, key_label, without_controls
from .control_headers import client_timeout, read_controls
from .incoming import Handler, Incoming, id_headers
from .passthrough import NOT_SENT_UP

# Headers that describe the client's connection or body rather than its request.
_NOT_SENT_UP = NOT_SENT_UP | {b"content-type", b"accept"}
CHAT_PATHS = ("/v1/chat/completions", "/chat/completions")
_JSON = [(b"content-type", b"application/json")]


class ChatCompletions:
    """Answers chat completions in every dialect.

    ``pass_through`` answers a request in another dialect if its model belongs to no tier.
    """

    def __init__(self, services: Services, access: Access, pass_through: Handler) -> None:
        self._services = services
        self._access = access
        self._pass_through = pass_through
        self._routes = tiers.Routes(services.settings)

    async def handle(
        self, request: Incoming, dialect: Dialect | None = None, *, counts: bool = False
    ) -> None:
        """Answer one request. ``dialect``: None for chat completions as OpenAI has them.

        ``counts``: only say how many tokens the prompt has. Raises ``ProxyError`` while nothing has
        been sent, and ``ClientGone``.
        """
        services, clock = self._services.in_force(), asyncio.get_running_loop().time
        self._access.check_key(request)
        controls = read_controls(request.headers, services.settings)
        _check_media_type(request)
        body = await request.body()
        arrived = clock()
        asked = await self._read(services, request, controls, body, dialect, counts=counts)
        del body  # free it: a reply may take long, and the parsed request is as large
        if not isinstance(asked, Request):
            await asked(request)
            return
        exchange = Exchange(asked)
        headers, our_key = self._headers(request, dialect)
        driver = Driver(
            services,
            exchange,
            headers=headers,
            our_key=our_key,
            downstream=request.downstream,
            receive=request.receive,
            arrived=arrived,
        )
        try:
            await driver.run()
        finally:
            if exchange.record is not None:  # else a fault of ours is logged
                seconds = clock() - request.started
                accounts.close(services, exchange.record, driver.outcome, seconds)
        if driver.outcome == "ok":
            loop_question.ask(services, exchange, headers)

    async def _read(
        self,
        services: Services,
        request: Incoming,
        controls: Controls,
        body: bytes,
        dialect: Dialect | None,
        *,
        counts: bool,
    ) -> Request | Handler:
        """Read the request; return its handler if no exchange answers it."""
        client_body = await tasks.aside(body, client_request.read, body)
        if request.model:
            client_body = {**client_body, "model": request.model}
        route, translated = None, Translated(client_body)
        if dialect is not None:
            route = await self._route(services, client_body, controls, request)
            if not route.tiers:
                request.put_back(body)
                return self._pass_through
            if counts:
                return partial(_count, services, dialect, client_body, body)
            translated = await tasks.aside(body, dialect.to_chat, client_body, request.headers)
        parsed = await tasks.aside(
            body, client_request.checked, translated.body, len(body), translated.failed
        )
        headers, messages = request.headers, parsed.body["messages"]
        named, label = translated.session, key_label(request.key, services.settings)
        return parsed.with_caller(
            id=request.id,
            session=session_id.identify(headers, client_body, request.owner, messages, named),
            route=route or await self._route(services, parsed.body, controls, request),
            controls=controls,
            started=request.started,
            dialect=dialect,
            echo=translated.echo,
            left_out=translated.left_out,
            owner=request.key,
            agent=agent_name(headers, label, shown=services.settings.observability.agent_names),
            patience=patience(parsed.body, headers),
            client_timeout=None if parsed.stream else client_timeout(headers),
        )

    def _headers(self, request: Incoming, dialect: Dialect | None) -> tuple[RawHeaders, bool]:
        """Return the headers for LiteLLM, and whether the key in them is ours."""
        headers = without_controls(passed_on(request.raw_headers, _NOT_SENT_UP))
        if dialect is not None:
            headers = [h for h in headers if not h[0].startswith(dialect.own_headers)]
        return self._access.upstream_headers([*headers, *CHAT_HEADERS])

    async def _route(
        self,
        services: Services,
        body: Mapping[str, Any],
        controls: Controls,
        request: Incoming,
    ) -> Route:
        """Return the tiers for a body's model; no tiers if only LiteLLM knows the model."""
        model = body.get("model")
        model = model if isinstance(model, str) else ""
        authorization = request.headers.get("authorization")
        if authorization is None and request.key:
            authorization = f"Bearer {request.key}"
        listed = await services.models.get(authorization)
        if self._routes.settings is not services.settings:
            self._routes = tiers.Routes(services.settings)
        try:
            route = self._routes.of(model, controls.tier, controls.cloud, listed)
        except tiers.NoSuchTier as error:
            raise invalid(str(error), error.param) from None
        name = model[:128]  # a huge name must not stay in memory
        if route.unknown_model and services.rate_limit.allows(("unknown_model", name)):
            served_by = route.tiers[0]
            log.get().warning(
                "unknown_model", model=name, served_by=served_by, said="once a minute"
            )
        return route


def _check_media_type(request: Incoming) -> None:
    """Refuse a body that is not plain JSON, by its headers. Raises ``ProxyError`` (415)."""
    media_type = request.media_type
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise invalid(
            "the content type must be application/json; with curl, add "
            "-H 'Content-Type: application/json'",
            "content-type",
            status=415,
        )
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise invalid(
            "compressed request bodies are not accepted; send it uncompressed",
            "content-encoding",
            status=415,
        )


async def _count(
    services: Services, dialect: Dialect, client_body: Any, body: bytes, request: Incoming
) -> None:
    """Answer how many tokens a prompt has, in its dialect."""
    answer = await tasks.aside(body, dialect.count, client_body)
    pressure = of_pressure(services.memory.pressure)
    await request.downstream.whole(
        200, [*_JSON, *id_headers(request.id), *pressure], orjson.dumps(answer)
    )
