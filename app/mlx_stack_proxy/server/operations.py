"""The usual routes of the app: health, readiness, metrics, the models, and ``/mlx-stack/``."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import FastAPI, Request, Response

from .. import __version__
from ..driver.services import Services, upstream_key
from ..engine.headers import RAW_KEY_HEADERS
from ..engine.model_list import NOT_LITELLM, OWNER, names_in
from ..engine.upstream import UpstreamError
from ..errors import ProxyError, invalid, unreachable
from ..escalation.tiers import AUTO, is_listed
from ..telemetry import metrics
from ..wire.table import spoken_by
from . import admin, web_page
from .access import Access
from .admin import as_json
from .status import configuration, kept, servers_gone, tier_state


def add_to(app: FastAPI, services: Services, access: Access) -> None:
    """Add all routes that are neither exchanges nor passed through."""
    _add_state(app, services)
    _add_models(app, services, access)
    app.include_router(admin.build(services))
    web_page.add_to(app, services)


def _add_state(app: FastAPI, services: Services) -> None:
    @app.get("/health")
    async def health() -> Response:
        return as_json(
            {"status": "stopping" if services.life.stopping else "ok", "version": __version__}
        )

    @app.get("/ready")
    async def ready(request: Request) -> Response:
        state = await readiness(services)
        # Without the store the proxy still serves, so that it stays ready. The details may say
        # where the store lies: only an operator gets them.
        may_know = admin.is_operator(services, request)
        trouble = services.store.health.sentence
        state["store"] = "ok" if trouble is None else trouble if may_know else "fails"
        state["memory_pressure"] = services.memory.shown()
        state["configuration"] = configuration(services, whole=may_know)
        return as_json(state, 200 if state["ready"] else 503)

    @app.get("/metrics")
    async def prometheus(request: Request) -> Response:
        sessions, budgets = await kept(services)
        if sessions is not None:
            services.metrics.set("sessions", sessions)
        for budget in budgets:
            services.metrics.set("budget_used_tokens", budget["used"], budget["scope"])
            services.metrics.set("budget_limit_tokens", budget["limit"], budget["scope"])
        text = services.metrics.render(agents=admin.is_operator(services, request))
        return Response(text, media_type=metrics.CONTENT_TYPE)


def _add_models(app: FastAPI, services: Services, access: Access) -> None:
    @app.head("/v1/models")
    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        return await _models(services, access, request)

    @app.head("/v1/models/{name:path}")
    @app.get("/v1/models/{name:path}")
    async def model(name: str, request: Request) -> Response:
        whole = await _models(services, access, request)
        if whole.status_code != 200:
            return whole
        for entry in orjson.loads(whole.body)["data"]:
            if isinstance(entry, dict) and entry.get("id") == name:
                return as_json(entry)
        raise invalid(f"unknown model {name[:64]!r}", "model", status=404)


async def readiness(services: Services) -> dict[str, Any]:
    """Return ``ready``, LiteLLM's state, and each tier's model and state.

    The proxy is ready if LiteLLM answers, accepts our key and has at least one tier's model.
    """
    tiers = {name: {"model": tier.model} for name, tier in services.settings.tiers.items()}
    key = upstream_key(services.settings)
    try:
        status, body = await services.models.fetch(None)
    except (UpstreamError, TimeoutError) as error:
        failure = str(error) or "no answer in time"
        return {"ready": False, "litellm": failure, "tiers": _states(tiers, "unreachable")}
    if services.life.stopping:
        return {"ready": False, "litellm": "ok", "tiers": _states(tiers, "stopping")}
    listed = names_in(body) if status == 200 else None
    if listed is None:
        # Without a key of our own we can't ask for the list; any answer of LiteLLM has to do.
        if key is None and status in (400, 401, 403):
            return {"ready": True, "litellm": "ok", "tiers": _states(tiers, "not_checked")}
        wrong = "upstream.base_url" if status in NOT_LITELLM else "the key"
        problem = f"status {status} for the list of models; is {wrong} right?"
        return {"ready": False, "litellm": problem, "tiers": _states(tiers, "not_checked")}
    gone_tiers = await servers_gone(services)
    for name, tier in tiers.items():
        tier["state"] = "ok" if is_listed(tier["model"], listed) else "unknown_model"
        if tier["state"] == "ok":
            tier["state"] = tier_state(services, name, gone_tiers)
    # A degraded or unreachable tier counts, because it is still tried if no other is left.
    any_there = any(tier["state"] != "unknown_model" for tier in tiers.values())
    return {"ready": any_there, "litellm": "ok", "tiers": tiers}


def _states(tiers: dict[str, dict[str, str]], state: str) -> dict[str, dict[str, str]]:
    return {name: {**tier, "state": state} for name, tier in tiers.items()}


async def _models(services: Services, access: Access, request: Request) -> Response:
    """Answer with the models that LiteLLM lists for this client, after ``auto`` and our tiers."""
    keys = [h for h in request.headers.raw if h[0] in RAW_KEY_HEADERS]
    headers, _ = access.upstream_headers(keys)
    try:
        status, body = await services.models.ask(headers)
    except (UpstreamError, TimeoutError) as error:
        raise unreachable(str(error) or "no answer in time") from None
    if status != 200:
        return Response(body, status, media_type="application/json")
    if names_in(body) is None:
        raise ProxyError(502, "all_tiers_failed", "LiteLLM's answer is not a list of models")
    listed = orjson.loads(body)
    own_names = [AUTO, *services.settings.tiers]
    if (dialect := spoken_by(request.headers)) is not None:
        patterns = services.settings.reliability.escalation.aliases
        aliases = [name for name in patterns if "*" not in name]
        listed_names = [e.get("id") for e in listed["data"] if isinstance(e, dict)]
        names = [name for name in listed_names if isinstance(name, str)]
        return as_json(dialect.models(list(dict.fromkeys([*own_names, *aliases, *names]))))
    entries = [{"id": n, "object": "model", "created": 0, "owned_by": OWNER} for n in own_names]
    other_entries = [
        e for e in listed["data"] if not (isinstance(e, dict) and e.get("id") in own_names)
    ]
    return as_json({**listed, "data": [*entries, *other_entries]})
