"""The page at ``/mlx-stack/`` for a browser: its files, and the form's answer.

The page's files are the same for all and hold no data: its scripts ask the JSON endpoints beside
it, and who may not ask those sees none. Where that is by ``server.admin_key``, the page shows a
form, which posts the key once for a cookie (``page_cookie``). Whoever may in no way ask
``/mlx-stack/`` gets no file either.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles
from starlette.types import Scope

from ..engine.services import Services
from ..errors import INVALID_REQUEST, ProxyError
from . import page_cookie
from .admin import Admin

FOLDER: Final = Path(__file__).parent / "page"
PATH: Final = "/mlx-stack/"
MOST_FORM_BYTES: Final = 8192
# Nothing inline, nothing from elsewhere, no frame around it, and no text that becomes markup:
# `require-trusted-types-for` makes a browser refuse `innerHTML` and the like.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """The page's files, under its policy."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def add_to(app: FastAPI, services: Services) -> None:
    """Add the page, and the way to it from ``/``."""
    app.include_router(_routes(services))

    @app.get("/")
    async def root(request: Request) -> Response:
        """A browser goes on to the page; a program has asked for what is not there."""
        if "text/html" not in request.headers.get("accept", ""):
            raise ProxyError(404, INVALID_REQUEST, "GET /: the page is at /mlx-stack/")
        return Response(status_code=307, headers={**_HEADERS, "Location": PATH})


def _routes(services: Services) -> APIRouter:
    admin = Admin(services)

    async def check(request: Request) -> None:
        """Without an ``admin_key`` the page is this machine's; with one, it asks for that."""
        if services.settings.server.admin_key is None:
            await admin.check(request)

    router = APIRouter(prefix="/mlx-stack", dependencies=[Depends(check)])
    files = _Files(directory=FOLDER)

    @router.get("/")
    async def page(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    @router.get("/page/{name}")
    async def file(name: str, request: Request) -> Response:
        return await files.get_response(name, request.scope)

    @router.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        known = services.settings.server.admin_key
        given = await _key_in(request)
        if known is not None and not hmac.compare_digest(given.encode(), known.encode()):
            sentence = "this is not server.admin_key"
            raise ProxyError(401, INVALID_REQUEST, sentence, code="invalid_api_key")
        if known is None:
            return Response(status_code=204)
        secure = request.headers.get("origin", "").startswith("https://")
        cookie = page_cookie.made(known, services.wall_clock(), secure=secure)
        return Response(status_code=204, headers={"Set-Cookie": cookie})

    @router.post("/sign-out")
    async def sign_out() -> Response:
        return Response(status_code=204, headers={"Set-Cookie": page_cookie.ended()})

    return router


async def _key_in(request: Request) -> str:
    """The field ``key`` of a posted form. Raises :class:`ProxyError` (413)."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_FORM_BYTES:
            raise ProxyError(413, INVALID_REQUEST, "the form is larger than a key")
    fields = parse_qs(body.decode("utf-8", "replace"))
    return fields.get("key", [""])[0]
