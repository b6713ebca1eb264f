"""Ask a child over HTTP whether it is ready, and a model server whether it still works."""

from __future__ import annotations

import asyncio

import orjson

from ...engine.upstream import CHAT_PATH, UpstreamError
from ..asking import OWN_CHAT_HEADERS, fetch

_INTERVAL_SECONDS = 0.2  # short, because asking is cheap and the start ends the sooner
_ANSWER_SECONDS = 5.0


class HttpProbe:
    """A child is ready once it answers a GET with 200; a model server once its model has written.

    ``mlx_lm.server`` answers ``/health`` with 200 while it still loads the model. With ``model``
    the child is asked for a token of that model instead: the question waits until the model is
    loaded, and takes the extra time of the first reply; any other answer than 200 means that the
    model can't be used. Later, 503 from ``path`` means that the thread of the model has died,
    though the server goes on running.

    ``waiting_for`` and ``last_answer`` are the question and the last answer in words, for the
    screen.
    """

    def __init__(self, port: int, path: str, model: str = "") -> None:
        self._base_url, self._path, self._model = f"http://127.0.0.1:{port}", path, model
        self.waiting_for = "its model's first token" if model else f"GET {self._base_url}{path}"
        self.last_answer = "no answer yet"

    async def ready(self) -> str:
        """Wait until the child is ready; return "", or why it never will be."""
        while True:
            if (status := await self._status(self._model)) == 200:
                return ""
            if self._model and status is not None:
                return f"its first question got {self.last_answer}"
            await asyncio.sleep(_INTERVAL_SECONDS)

    async def illness(self) -> str:
        """Say why a running child must be restarted; "" if it needn't be."""
        # Only a 503 counts: a server that doesn't answer may just be busy.
        died = self._model and await self._status("") == 503
        return "its model thread has died" if died else ""

    async def _status(self, model: str) -> int | None:
        """Ask for a token of ``model``, or "" for the path; return the status, None if none."""
        try:
            if model:
                status, body = await one_token(self._base_url, model)
            else:
                url, path = self._base_url, self._path
                status, body = await fetch(url, "GET", path, seconds=_ANSWER_SECONDS)
        except (UpstreamError, TimeoutError) as error:
            self.last_answer = str(error) or "no answer in time"
            return None
        self.last_answer = brief(status, body)
        return status


async def one_token(
    base_url: str, model: str, key: str = "unused", seconds: float | None = None
) -> tuple[int, bytes]:
    """Ask a model for one token; return the status and the body. Raises as ``fetch``."""
    question = [{"role": "user", "content": "Hello"}]
    body = orjson.dumps({"model": model, "messages": question, "max_tokens": 1})
    headers = [*OWN_CHAT_HEADERS, (b"authorization", f"Bearer {key}".encode())]
    return await fetch(base_url, "POST", CHAT_PATH, headers, body, seconds=seconds)


def brief(status: int, body: bytes) -> str:
    """Return an answer on one line."""
    text = " ".join(body.decode(errors="replace").split())
    return f"HTTP {status}: {text[:200]}".rstrip(": ")
