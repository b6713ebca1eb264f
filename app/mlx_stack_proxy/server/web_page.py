"""The page at ``/mlx-stack/`` for a browser: its files, and the form's answer.

The page's files are the same for all and hold no data: its scripts ask the JSON endpoints beside
it, and who may not ask those sees none. Where that is by ``server.admin_key``, the page shows a
form, which posts the key once for a cookie (``page_cookie``). Whoever may in no way ask
``/mlx-stack/`` gets no file either.
"""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from fastapi import APIRouter, FastAPI, Request, Response

from ..engine.services import Services
from ..errors import INVALID_REQUEST, ProxyError
from . import page_cookie
from .admin import Admin

FOLDER: Final = Path(__file__).parent / "page"
PATH: Final = "/mlx-stack/"
MOST_FORM_BYTES: Final = 8192
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
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


class _File:
    """One file of the page, as it is sent."""

    def __init__(self, path: Path) -> None:
        self.content = path.read_bytes()
        self.headers = {
            **_HEADERS,
            "Content-Type": _TYPES[path.suffix],
            "ETag": f'"{hashlib.sha256(self.content).hexdigest()[:20]}"',
        }

    def answer(self, request: Request) -> Response:
        if request.headers.get("if-none-match") == self.headers["ETag"]:
            return Response(status_code=304, headers=self.headers)
        return Response(self.content, headers=self.headers)


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
    files = {path.name: _File(path) for path in FOLDER.iterdir() if path.suffix in _TYPES}
    admin = Admin(services)
    router = APIRouter(prefix="/mlx-stack")

    def check(request: Request) -> None:
        """Without an ``admin_key`` the page is this machine's; with one, it asks for that."""
        if services.settings.server.admin_key is None:
            admin.check(request)

    @router.get("/")
    async def page(request: Request) -> Response:
        check(request)
        return files["index.html"].answer(request)

    @router.get("/page/{name}")
    async def file(name: str, request: Request) -> Response:
        check(request)
        if (found := files.get(name)) is None:
            raise ProxyError(404, INVALID_REQUEST, f"the page has no file {name[:64]!r}")
        return found.answer(request)

    @router.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        check(request)
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
    async def sign_out(request: Request) -> Response:
        check(request)
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
