"""A chat completion put together from what came: one object, or the chunks of a stream.

None of this is the proxy's own code: what it is judged by must not be what it decides by.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .records import Json

NOTE = ": x-mlx-stack "
TEXTS = {"content": "content"} | dict.fromkeys(
    ("reasoning_content", "reasoning"), "reasoning_content"
)


def call(identity: str, name: str, arguments: str, **more: Any) -> Json:
    """A call as chat completions write it."""
    function = {"name": name, "arguments": arguments}
    return {**more, "id": identity, "type": "function", "function": function}


@dataclass
class Came:
    """``note``: the proxy's closing comment. ``pieces``: about how many tokens have come."""

    message: Json = field(
        default_factory=lambda: {"content": "", "reasoning_content": "", "tool_calls": []}
    )
    finish: str | None = None
    usage: Json = field(default_factory=dict)
    error: str = ""
    note: Json = field(default_factory=dict)
    pieces: int = 0

    def take(self, body: Json) -> None:
        """Add a chunk, or a whole completion."""
        if "error" in body:
            self.error = json.dumps(body["error"])
        self.usage = body.get("usage") or self.usage
        for choice in body.get("choices") or ():
            self.finish = choice.get("finish_reason") or self.finish
            said = choice.get("delta") or choice.get("message") or {}
            for key, name in TEXTS.items():
                if text := said.get(key):
                    self.message[name] += text
                    self.pieces += 1  # servers send one token at a time
            for call in said.get("tool_calls") or ():
                self._add(call)

    def _add(self, piece: Json) -> None:
        calls, function = self.message["tool_calls"], piece.get("function") or {}
        at = piece["index"] if piece.get("index") is not None else len(calls)
        while len(calls) <= at:
            calls.append(call("", "", ""))
        calls[at]["id"] = calls[at]["id"] or piece.get("id") or ""
        for key in ("name", "arguments"):
            calls[at]["function"][key] += function.get(key) or ""
        self.pieces += 8 + len(function.get("arguments") or "") // 3


def together(bodies: Iterable[Json]) -> Came:
    found = Came()
    for body in bodies:
        found.take(body)
    return found


def read(text: str) -> Came:
    """The body of a response. Raises ValueError where it is no JSON."""
    if text.startswith("{"):
        return together([json.loads(text)])
    found = Came()
    for line in text.splitlines():
        if line.startswith("data: {"):
            found.take(json.loads(line.removeprefix("data: ")))
        elif line.startswith(NOTE):
            found.note = json.loads(line.removeprefix(NOTE))
    return found
