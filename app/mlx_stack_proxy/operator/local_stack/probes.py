"""Ask a child over HTTP whether it is ready, and a model server whether it still works."""

from __future__ import annotations

import asyncio

import orjson

from ...engine.upstream import CHAT_HEADERS, CHAT_PATH, UpstreamError
from ..asking import fetch
from .configs import SERVED_MODEL

_INTERVAL_SECONDS = 0.2  # short, because asking is cheap and the start ends the sooner
_ANSWER_SECONDS = 5.0


class HttpProbe:
    """A child is ready once it answers a GET with 200.

    ``waiting_for`` and ``last_answer`` are the question and the last answer in words, for the
    screen.
    """

    def __init__(self, port: int, path: str) -> None:
        self._base_url, self._path = f"http://127.0.0.1:{port}", path
        self.waiting_for = f"GET {self._base_url}{path}"
        self.last_answer = "no answer yet"

    async def ready(self) -> str:
        """Wait until the child is ready; return "", or why it never will be."""
        while await self._status() != 200:  # noqa: ASYNC110
            await asyncio.sleep(_INTERVAL_SECONDS)
        return ""

    async def illness(self) -> str:
        """Say why a running child must be restarted; "" if it needn't be."""
        return ""

    async def _status(self) -> int | None:
        """Ask; return the status of the answer, or None if none comes."""
        status = None
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                status, body = await fetch(self._base_url, "GET", self._path)
            self.last_answer = brief(status, body)
        except (UpstreamError, TimeoutError) as error:
            self.last_answer = str(error) or "no answer in time"
        return status


class ModelServerProbe(HttpProbe):
    """A model server is ready once its model has written a token.

    ``mlx_lm.server`` answers ``/health`` with 200 while it still loads the model. A question waits
    until the model is loaded, and takes the extra time of the first reply; any other answer than
    200 means that the model can't be used. Later, 503 from ``/health`` means that the thread of
    the model has died, though the server goes on running.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port, "/health")
        self.waiting_for = "its model's first token"

    async def ready(self) -> str:
        while True:
            try:
                status, body = await one_token(self._base_url, SERVED_MODEL)
            except UpstreamError as error:  # the server doesn't listen yet
                self.last_answer = str(error)
                await asyncio.sleep(_INTERVAL_SECONDS)
            else:
                return "" if status == 200 else f"its first question got {brief(status, body)}"

    async def illness(self) -> str:
        # Only a 503 counts: a server that doesn't answer may just be busy.
        return "its model thread has died" if await self._status() == 503 else ""


async def one_token(base_url: str, model: str, key: str = "unused") -> tuple[int, bytes]:
    """Ask a model for one token; return the status and the body. Raises ``UpstreamError``."""
    question = [{"role": "user", "content": "Hello"}]
    body = orjson.dumps({"model": model, "messages": question, "max_tokens": 1})
    headers = [*CHAT_HEADERS, (b"authorization", f"Bearer {key}".encode())]
    return await fetch(base_url, "POST", CHAT_PATH, headers, body)


def brief(status: int, body: bytes) -> str:
    """Return an answer on one line."""
    text = " ".join(body.decode(errors="replace").split())
    return f"HTTP {status}: {text[:200]}".rstrip(": ")
