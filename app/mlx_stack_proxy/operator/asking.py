"""Ask servers over HTTP what they are and what they have; ``init``, ``check`` and ``up`` share it.

``litellm_probe`` asks the models of a configuration more than one token.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any
from urllib.parse import urlsplit

import orjson

from ..engine.headers import RawHeaders
from ..engine.model_list import ASK_SECONDS, NOT_LITELLM, OWNER, names_in
from ..engine.upstream import CHAT_HEADERS, CHAT_PATH, LIVENESS_PATH, Upstream, UpstreamError
from ..setting_types import without_v1
from ..settings import UpstreamSettings

_SET = "set upstream.base_url (with init: --base-url)"
RIGHT_ADDRESS = f"{_SET} to where LiteLLM listens, such as http://127.0.0.1:4000"
# Of each question to a model: the report names who asked, if the layer is inside that LiteLLM.
OWN_CHAT_HEADERS = [*CHAT_HEADERS, (b"user-agent", b"mlx-stack-proxy")]
# The statuses with which LiteLLM answers a wrong key; 400 if it has no database.
_REFUSED = (400, 401, 403)


async def fetch(
    url: str,
    headers: RawHeaders | None = None,
    body: bytes | None = None,
    *,
    seconds: float | None = None,
) -> tuple[int, bytes]:
    """Ask a server once, within ``seconds``, by POST if there is a body; return status and body.

    Raises ``UpstreamError``, ``TimeoutError``.
    """
    parts = urlsplit(url)
    server = Upstream(UpstreamSettings(base_url=f"{parts.scheme}://{parts.netloc}"))
    try:
        async with asyncio.timeout(seconds):
            method, path = "POST" if body else "GET", parts.path or "/"
            return await server.fetch(method, path, headers or [], body)
    finally:
        await server.aclose()


async def one_token(
    url: str, model: str, key: str = "unused", seconds: float | None = None
) -> tuple[int, bytes]:
    """Ask a model at the URL's server for one token; return status and body. Raises as ``fetch``."""
    question = [{"role": "user", "content": "Hello"}]
    body = orjson.dumps({"model": model, "messages": question, "max_tokens": 1})
    headers = [*OWN_CHAT_HEADERS, (b"authorization", f"Bearer {key}".encode())]
    parts = urlsplit(url)
    chat = f"{parts.scheme}://{parts.netloc}{CHAT_PATH}"
    return await fetch(chat, headers, body, seconds=seconds)


def brief(status: int, body: bytes) -> str:
    """Return an answer on one line."""
    text = " ".join(body.decode(errors="replace").split())
    return f"HTTP {status}: {text[:200]}".rstrip(": ")


async def chat_template(api_base: str) -> str:
    """Return the chat template that llama.cpp's server shows; "" if none. No key is sent."""
    try:
        _, body = await fetch(f"{without_v1(api_base)}/props", seconds=ASK_SECONDS)
        return str(orjson.loads(body)["chat_template"])
    except (UpstreamError, TimeoutError, ValueError, LookupError, TypeError):
        return ""


class NoModels(Exception):
    """LiteLLM didn't list its models; the message says why.

    ``next_step`` says what to do about it, ``reached`` whether LiteLLM answered at all.
    """

    def __init__(self, why: str, next_step: str, *, reached: bool = True) -> None:
        super().__init__(why)
        self.next_step = next_step
        self.reached = reached


class LiteLLM:
    """A LiteLLM to ask; close it with :meth:`aclose`.

    ``variable``: the environment variable that ``key`` is read from, for the advice.
    """

    def __init__(self, settings: UpstreamSettings, key: str | None, variable: str | None) -> None:
        self.upstream = Upstream(settings)
        self.aclose = self.upstream.aclose
        self._key, self._variable = key, variable

    async def models(self) -> bytes:
        """Return the body of ``/v1/models``. Raises :class:`NoModels`."""
        try:
            status, body = await self._get("/v1/models")
        except (UpstreamError, TimeoutError) as error:
            next_step = f"start it, or {_SET} to its address"
            raise NoModels(str(error) or "no answer in time", next_step, reached=False) from None
        if status == 200 and names_in(body) is not None:
            # LiteLLM with the reliability layer inside lists our names, too, and has its own paths.
            entries = [entry for entry in orjson.loads(body)["data"] if isinstance(entry, dict)]
            if any(e.get("owned_by") == OWNER for e in entries) and not await self.is_litellm():
                raise NoModels("is an mlx-stack-proxy, not LiteLLM", RIGHT_ADDRESS)
            return body
        if status in NOT_LITELLM:  # no key would bring a list from there
            why = f"answered status {status} without a list of models, so it is not LiteLLM"
            raise NoModels(why, RIGHT_ADDRESS)
        # Without a key the status may also be 500: LiteLLM without a database fails to answer 401.
        variable, refused = self._variable, status in _REFUSED
        why = "refused the key" if self._key and refused else f"answered status {status}"
        why += f" when asked for its models{'' if self._key else ' without a key'}"
        if self._key and not refused:
            raise NoModels(why, "read LiteLLM's log")
        if variable is None:
            why += " (upstream.api_key_env names no variable)"
            step = "name the variable that holds LiteLLM's key in upstream.api_key_env"
            raise NoModels(why, step)
        why += f" (${variable} is {'set' if os.environ.get(variable) else 'not set'})"
        step = f"export {variable}=… with LiteLLM's master key, here and where the proxy runs"
        raise NoModels(why, step)

    async def is_litellm(self) -> bool:
        """Whether LiteLLM's own path is there, which a model server lacks; True if unknown."""
        try:
            return (await self._get(LIVENESS_PATH, key=False))[0] != 404
        except (UpstreamError, TimeoutError):
            return True

    async def details(self) -> Any:
        """Return the answer of ``/v1/model/info``; None if LiteLLM fails or refuses the key."""
        try:
            return orjson.loads((await self._get("/v1/model/info"))[1])
        except (UpstreamError, TimeoutError, orjson.JSONDecodeError):
            return None

    async def _get(self, path: str, *, key: bool = True) -> tuple[int, bytes]:
        """Ask once; ``key``: whether LiteLLM's key is sent, if there is one."""
        bearer = [(b"authorization", f"Bearer {self._key}".encode())] if key and self._key else []
        async with asyncio.timeout(ASK_SECONDS):
            return await self.upstream.fetch("GET", path, bearer)
