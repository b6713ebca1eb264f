"""``/mlx-stack/``: the JSON endpoints for an operator of a running proxy (docs/operations.md)."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from typing import Any

import orjson
from fastapi import APIRouter, Depends, Request, Response

from ..driver.services import Services
from ..engine.outcome import EVENT_KINDS
from ..engine.pipeline import forget
from ..engine.session_id import digest
from ..errors import INVALID_REQUEST, ProxyError, invalid
from ..setting_types import unknown_name
from ..state.store import EventQuery, SessionState
from ..telemetry.report import ReportScope
from . import event_stream, page_cookie
from .access import is_from_this_machine, shows
from .exchange_details import exchange_details
from .kept import events_of, report_of
from .status import configuration, status

_HASH = re.compile(r"[0-9a-f]{32}(?:[0-9a-f]{8})?")
_PREFIX = re.compile(r"[0-9a-f]{12,39}")  # of a hash, as our response header shows it
_AGO = re.compile(r"(\d{1,9})([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
MAX_DAYS = 366  # in a report
_NUMBER = re.compile(r"\d{1,12}(\.\d+)?")
MAX_PAGE = 1000  # entries in one answer
MAX_SEARCHED = 10_000  # sessions that are searched for the beginning of a hash


def is_operator(services: Services, request: Request) -> bool:
    """Whether the client may see everything: it sends ``server.admin_key`` or, if none is set, is
    a program on this machine.

    A browser that has shown the key sends a cookie instead, which allows ``GET`` alone.
    """
    key = services.settings.server.admin_key
    if key is None:
        return is_from_this_machine(request.scope, request.headers)
    reads = request.method == "GET"
    return shows(request.headers, key) or (
        reads and page_cookie.holds(key, request.cookies, services.wall_clock())
    )


def check(services: Services, request: Request) -> None:
    """Admit only an operator. Raises ``ProxyError`` (401, 403)."""
    if is_operator(services, request):
        return
    if services.settings.server.admin_key is None:
        sentence = (
            "/mlx-stack/ answers only this machine; set server.admin_key to use it from elsewhere"
        )
        raise ProxyError(403, INVALID_REQUEST, sentence)
    sentence = "this needs server.admin_key as `Authorization: Bearer …`"
    raise ProxyError(401, INVALID_REQUEST, sentence, code="invalid_api_key")


async def _find(services: Services, name: str) -> SessionState:
    """Return the session with this hash, 12 or more first digits of it, or a client's name.

    Raises ``ProxyError`` (404; 409 if several hashes begin so, or clients with different API keys
    gave the same name), and ``StoreError``.
    """
    store, now = services.store, services.wall_clock()
    hashes = [name] if _HASH.fullmatch(name) else []
    if _PREFIX.fullmatch(name):
        for offset in range(0, MAX_SEARCHED, MAX_PAGE):
            page = await store.sessions(now, offset, MAX_PAGE)
            hashes += [entry.session for entry in page if entry.session.startswith(name)]
            if hashes or len(page) + page.unreadable < MAX_PAGE:
                break
    hashes += [digest(owner, name) for owner in ("", *services.settings.server.api_keys)]
    states = [await store.load(session, now) for session in dict.fromkeys(hashes)]
    matches = [state for state in states if state.turns or state.used]
    if len(matches) > 1:
        candidates = ", ".join(state.session[:12] for state in matches[:8])
        sentence = f"{name[:64]!r} may be any of {candidates}: ask for one of them"
        raise ProxyError(409, INVALID_REQUEST, sentence)
    if not matches:
        raise ProxyError(404, INVALID_REQUEST, f"there is no session {name[:64]!r}")
    return matches[0]


async def _event_query(services: Services, request: Request) -> EventQuery:
    """Read a request for events. Raises ``ProxyError`` (400, 404, 409), ``StoreError``."""
    params = request.query_params
    kind, session = params.get("kind"), params.get("session")
    if kind is not None and kind not in EVENT_KINDS:
        raise invalid(unknown_name(kind[:64], EVENT_KINDS, "kind"), "kind")
    if session is not None and not (_HASH.fullmatch(session) or _PREFIX.fullmatch(session)):
        session = (await _find(services, session)).session
    after = request.headers.get("last-event-id") or params.get("after")
    before = params.get("before")
    return EventQuery(
        kind=kind,
        session=session,
        request_id=params.get("request_id"),
        agent=params.get("agent") or None,
        after=None if after is None else _whole("after", after),
        before=None if before is None else _whole("before", before),
        since=_moment("since", params.get("since", "0"), services.wall_clock()),
        limit=_whole("limit", params.get("limit", "100"), MAX_PAGE),
    )


def _shown(services: Services, state: SessionState) -> dict[str, Any]:
    """Return a session as the endpoints show it: tokens, and times since the epoch."""
    return {
        "agent": state.agent or None,
        "request_id": state.request_id or None,
        "session": state.session,
        "used": state.used,
        "estimated": state.estimated,
        "reserved": state.reserved,
        "limit": services.settings.reliability.token_budget.per_session,
        "turns": state.turns,
        "tier": state.tier,
        "sticky_until": max((entry.until for entry in state.sticky.values()), default=None),
        "first_seen": state.first_seen,
        "last_seen": state.last_seen,
    }


def build(services: Services) -> APIRouter:
    """Build the routes; ``check()`` guards each."""

    async def guard(request: Request) -> None:
        check(services, request)

    router = APIRouter(prefix="/mlx-stack", dependencies=[Depends(guard)])

    @router.get("/status")
    async def status_of() -> Response:
        return as_json(await status(services))

    @router.get("/events")
    async def events(request: Request) -> Response:
        query = await _event_query(services, request)
        if "text/event-stream" in request.headers.get("accept", ""):
            return await event_stream.follow(services, query)
        page, trouble = await events_of(services, query)
        total = len(page) if trouble else await services.store.count_events(query)
        entries = [{"number": number, **event} for number, event in page]
        return _answer(services, {"total": total, "events": entries, "store": trouble or "ok"})

    @router.get("/report")
    async def report(request: Request) -> Response:
        params, now = request.query_params, services.wall_clock()
        since = _moment("since", params.get("since", "12h"), now)
        until = min(_moment("until", params.get("until", "0s"), now), now)
        if not 0 <= until - since <= MAX_DAYS * 86_400:
            sentence = f"`since` must be before `until`, by {MAX_DAYS} days at most"
            raise invalid(sentence, "since")
        scope = ReportScope(since, until, params.get("agent"))
        return _answer(services, await report_of(services, scope))

    @router.get("/exchanges/{request_id}")
    async def exchange(request_id: str, agent: str | None = None) -> Response:
        return as_json(await exchange_details(services, request_id, agent or None))

    _add_sessions(router, services)
    return router


def _answer(services: Services, content: dict[str, Any]) -> Response:
    """Answer with this content, and with a header for settings that wait for a restart."""
    return as_json({**content, "configuration": configuration(services, whole=True)})


def _add_sessions(router: APIRouter, services: Services) -> None:
    @router.get("/sessions")
    async def sessions(request: Request) -> Response:
        params, now = request.query_params, services.wall_clock()
        limit = _whole("limit", params.get("limit", "100"), MAX_PAGE)
        offset, agent = _whole("offset", params.get("offset", "0")), params.get("agent") or None
        page = await services.store.sessions(now, offset, limit, agent)
        entries = [_shown(services, state) for state in page]
        counted = {"total": page.number, "unreadable": page.unreadable}
        return _answer(services, {**counted, "sessions": entries})

    @router.delete("/sessions")
    async def delete_all() -> Response:
        """Forget all sessions' counts, tiers and histories; say how many sessions there were."""
        store, now, count = services.store, services.wall_clock(), 0
        forget(services.stages)
        for _ in range((await store.sessions(now, limit=0)).number // MAX_PAGE + 1):
            page = await store.sessions(now, 0, MAX_PAGE)
            await asyncio.gather(*(store.delete(state.session) for state in page))
            count += len(page)
        return as_json({"sessions": count, "reset": True})

    @router.get("/sessions/{name:path}")
    async def session(name: str) -> Response:
        return as_json(_shown(services, await _find(services, name)))

    @router.delete("/sessions/{name:path}")
    async def delete(name: str) -> Response:
        found = (await _find(services, name)).session
        await services.store.delete(found)
        forget(services.stages, found)
        return as_json({"session": found, "reset": True})


def _whole(name: str, text: str, maximum: int = 2**53) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 16 or int(text) > maximum:
        raise invalid(f"`{name}` must be a whole number from 0 to {maximum}", name)
    return int(text)


def _moment(name: str, text: str, now: float) -> float:
    """Return the time in a text (epoch seconds, an age like ``12h``, or ISO 8601) as epoch seconds.

    Raises ``ProxyError`` (400).
    """
    if age := _AGO.fullmatch(text):
        return now - int(age[1]) * _UNITS[age[2]]
    try:
        return float(text) if _NUMBER.fullmatch(text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        sentence = (
            f"`{name}` must be seconds since 1970, 12h or 30m or 2d ago, or a time such as "
            "2026-11-22T08:00:00Z"
        )
        raise invalid(sentence, name) from None


def as_json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
