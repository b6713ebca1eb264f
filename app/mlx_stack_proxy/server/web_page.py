"""The page at ``/mlx-stack/`` for a browser: its files, and its sign-in.

The page's files are the same for everybody and hold no data: its scripts ask the JSON endpoints
next to it (``admin.py``), which check each request. With ``server.admin_key``, anybody gets the
files; the page then shows a form, which posts the key once for a cookie (``page_cookie.py``).
Without one, only programs on this machine get the files.
"""

from __future__ import annotations

import hmac
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.staticfiles import StaticFiles

from ..driver.services import Services
from ..errors import INVALID_REQUEST, ProxyError
from . import admin, page_cookie

FOLDER: Final = Path(__file__).parent / "page"
PATH: Final = "/mlx-stack/"
MAX_FORM_BYTES: Final = 8192
# The browser runs nothing inline, loads nothing from elsewhere, and shows the page in no frame.
# `require-trusted-types-for` makes it refuse `innerHTML` and the like, so no text becomes markup.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_COOKIE: Final[dict[str, Any]] = {"path": PATH, "httponly": True, "samesite": "strict"}
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
    """Serves the page's files with the headers of its policy."""

    async def get_response(self, path: str, scope: MutableMapping[str, Any]) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def add_to(app: FastAPI, services: Services) -> None:
    """Add the page's routes, and a redirect from ``/``."""

    async def check(request: Request) -> None:
        """Refuse other machines if no ``admin_key`` is set; else the page asks for the key."""
        if services.settings.server.admin_key is None:
            admin.check(services, request)

    router = APIRouter(prefix="/mlx-stack", dependencies=[Depends(check)])
    files = _Files(directory=FOLDER)

    @app.get("/")
    async def root(request: Request) -> Response:
        """Redirect a browser to the page; answer 404 to a program."""
        if "text/html" not in request.headers.get("accept", ""):
            raise ProxyError(404, INVALID_REQUEST, "GET /: the page is at /mlx-stack/")
        return Response(status_code=307, headers={**_HEADERS, "Location": PATH})

    @router.get("/")
    async def page(request: Request) -> Response:
        return await files.get_response("index.html", request.scope)

    @router.get("/page/{name}")
    async def file(name: str, request: Request) -> Response:
        return await files.get_response(name, request.scope)

    _add_sign_in(router, services)
    app.include_router(router)


def _add_sign_in(router: APIRouter, services: Services) -> None:
    @router.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        key, response, body = services.settings.server.admin_key, Response(status_code=204), b""
        async for part in request.stream():
            body += part
            if len(body) > MAX_FORM_BYTES:
                raise ProxyError(413, INVALID_REQUEST, "the form is too large for a key")
        if key is None:
            return response
        form_key = parse_qs(body.decode("utf-8", "replace")).get("key", [""])[0]
        if not hmac.compare_digest(form_key.encode(), key.encode()):
            sentence = "this is not server.admin_key"
            raise ProxyError(401, INVALID_REQUEST, sentence, code="invalid_api_key")
        cookie = page_cookie.made(key, services.wall_clock())
        secure = request.headers.get("origin", "").startswith("https://")
        response.set_cookie(page_cookie.NAME, cookie, page_cookie.SECONDS, secure=secure, **_COOKIE)
        return response

    @router.post("/sign-out")
    async def sign_out() -> Response:
        response = Response(status_code=204)
        response.delete_cookie(page_cookie.NAME, **_COOKIE)
        return response
