"""Stands between an agent and the proxy, passes everything on, and remembers it.

None of this is the proxy's own code: what it is judged by must not be what it decides by.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

import httpx
from aiohttp import web

from benchmarks.agents import broken
from benchmarks.passing import Passing
from benchmarks.records import Json
from tests.faults import spoken
from tests.faults.clients import Outcome, read


@dataclass
class Seen:
    """One request of an agent, and what it got."""

    method: str
    path: str
    body: Json
    status: int = 0
    reply_headers: dict[str, str] = field(default_factory=dict)
    reply: bytearray = field(default_factory=bytearray)
    left: bool = False  # the agent went before the end

    def outcome(self) -> Outcome:
        response = httpx.Response(
            self.status, headers=self.reply_headers, content=bytes(self.reply)
        )
        named = {row.path: name for name, row in spoken.SPOKEN.items()}
        return read(response, speaks=named.get(self.path, spoken.CHAT))

    def flaw(self) -> str:
        """Why the agent can't use the reply; empty: it can, or has left it before its end.

        `error`, `no_end`, `unreadable`, and what `benchmarks.agents.broken` calls a flaw.
        """
        try:
            outcome = self.outcome()
        except (AssertionError, KeyError, TypeError, ValueError):
            return "unreadable"
        if self.left and not outcome.ended:
            return ""
        if outcome.error is not None or outcome.status != 200:
            return "error"
        if not outcome.ended:
            return "no_end"
        calls = [{"function": {"name": name, "arguments": text}} for name, text in outcome.calls]
        message = {"content": outcome.text, "tool_calls": calls}
        finish = outcome.finish[-1] if outcome.finish else None
        offered = [tool.get("function", tool) for tool in self.body.get("tools") or ()]
        schemas: dict[str, Json] = {
            one["name"]: one.get("input_schema") or one.get("parameters") or {}
            for one in offered
            if "name" in one
        }
        return broken.flaw(message, finish, [], schemas)


class Tap(Passing):
    """`to`: the proxy's URL, or LiteLLM's, with the `key` that it wants.

    Requests are in `seen`, in the order they came. An operator's questions go to the proxy at
    `operator`, where LiteLLM is asked all else.
    """

    def __init__(self, port: int, to: str, key: str = "", operator: str = "") -> None:
        super().__init__(to, port)
        self.seen: list[Seen] = []
        self._operator = operator or to
        self._headers = {"authorization": f"Bearer {key}"} if key else {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        try:
            asked = json.loads(body)
        except ValueError:
            asked = None
        seen = Seen(request.method, request.path, asked if isinstance(asked, dict) else {})
        self.seen.append(seen)
        to = self._operator if request.path.startswith("/mlx-stack/") else self.to

        def begun(answer: web.StreamResponse) -> None:
            seen.status = answer.status
            seen.reply_headers = {name.lower(): value for name, value in answer.headers.items()}

        try:
            return await self.pass_on(
                request, body, seen.reply, to=to, headers=self._headers, begun=begun
            )
        except (asyncio.CancelledError, ConnectionError):
            seen.left = True
            raise
