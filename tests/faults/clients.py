"""Who asks, what comes back, and whether that is right."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from tests.faults.spoken import CHAT, SPOKEN, DeltaContent, read_data, read_whole
from tests.tool_validation.calls import RUN, SEARCH, WRITE

Json = dict[str, Any]
QUESTION = "Where do quokkas live?"
TOOLS = [SEARCH, WRITE, RUN]
NOTE = ": x-mlx-stack "
# What a good tier says: text, or a call where tools are offered.
ANSWER = "On Rottnest Island, mostly."
CALL = ("search", '{"query": "quokka"}')
HALF = "Half an answ"  # what a tier has said of its reply when it fails in the middle


@dataclass(frozen=True)
class Client:
    """`how`: whole (not streamed), live or buffered (both streamed). `speaks`: which dialect."""

    how: str
    tools: bool
    speaks: str = CHAT

    @property
    def name(self) -> str:
        beside = "" if self.speaks == CHAT else f", {self.speaks}"
        return f"{self.how}, {'tools' if self.tools else 'no tools'}{beside}"

    @property
    def session(self) -> str:
        return "session-" + re.sub(r"\W+", "-", self.name)

    @property
    def streams(self) -> bool:
        return self.how != "whole"

    @property
    def question(self) -> str:
        """Tells it from the other clients on any server that a request comes to."""
        return f"{QUESTION} ({self.name})"

    def body(self, after: Sequence[Json] = (), **more: Any) -> Json:
        """The request; `after`: messages that follow the question."""
        return self.asking([{"role": "user", "content": self.question}, *after], **more)

    def asking(self, messages: Sequence[Json], tools: Sequence[Json] = TOOLS, **more: Any) -> Json:
        """The request with these messages, which are in the words of chat completions."""
        body = {"model": "fast", "messages": [*messages], "stream": self.streams, **more}
        return SPOKEN[self.speaks].asks({**body, "tools": tools} if self.tools else body)


CLIENTS = [Client(how, tools) for tools in (False, True) for how in ("whole", "live", "buffered")]
EVERYONE = [replace(client, speaks=speaks) for speaks in SPOKEN for client in CLIENTS]


@dataclass(frozen=True)
class Outcome:
    """What a client got. `said`: our headers, as the closing comment has them where it differs."""

    status: int
    text: str
    calls: list[tuple[str, str]]
    finish: list[str]
    error: Json | None
    ended: bool  # by the response's own end: a whole body, or the last event
    said: Json = field(default_factory=dict)
    seconds: float = 0.0
    headers: httpx.Headers = field(default_factory=httpx.Headers)

    @property
    def tier(self) -> str:
        return str(self.said.get("tier", "-"))

    @property
    def attempts(self) -> int:
        return int(self.said.get("attempts", 0))


async def ask(
    http: httpx.AsyncClient,
    client: Client,
    after: Sequence[Json] = (),
    **more: Any,
) -> Outcome:
    """Ask in a session of the client's own, and read all that comes."""
    headers = {"X-MLX-Stack-Session": client.session}
    if client.how == "buffered":
        headers["X-MLX-Stack-Stream"] = "buffered"
    begun = time.monotonic()
    path = SPOKEN[client.speaks].path
    response = await http.post(path, json=client.body(after, **more), headers=headers)
    return read(response, time.monotonic() - begun, client.speaks)


def read(response: httpx.Response, seconds: float = 0.0, speaks: str = CHAT) -> Outcome:
    """A response as a client of this dialect understands it."""
    prefix = "x-mlx-stack-"
    headers: Json = {
        name.removeprefix(prefix).replace("-", "_"): value
        for name, value in response.headers.items()
        if name.startswith(prefix)
    }
    if "event-stream" in response.headers.get("content-type", ""):
        found = _read_stream(response, headers, speaks)
    else:
        try:
            found = read_whole(response.json(), speaks)
        except ValueError:
            found = DeltaContent()
    return Outcome(
        response.status_code,
        found.text,
        list(found.calls.values()),
        found.finish,
        found.error,
        found.ended,
        headers,
        seconds,
        response.headers,
    )


def _read_stream(response: httpx.Response, headers: Json, speaks: str) -> DeltaContent:
    """What comes; the closing comment joins the headers."""
    said = DeltaContent()
    for line in response.text.splitlines():
        if line.startswith(NOTE):
            headers |= json.loads(line.removeprefix(NOTE))
        elif line.startswith("data: "):
            read_data(line.removeprefix("data: "), said, speaks)
    return said


GOOD, ERROR = "good", "error"
LAP = "The quokka is small and the quokka is round, as is known. "  # of a text that loops


def judged(outcome: Outcome, client: Client) -> str:
    """`good`, `error` (an honest one), or what is wrong with it."""
    if outcome.error is not None or outcome.status >= 400:
        return _judged_error(outcome)
    if not outcome.ended:
        return "wrong: no end, and no error"
    wanted = [CALL] if client.tools else []
    if outcome.calls != wanted:
        return f"wrong: calls {outcome.calls}"
    # A call that follows text which had flowed before its tier failed is whole.
    text = behind_laps(outcome.text)
    if text != ("" if client.tools else ANSWER) and not (client.tools and text == HALF):
        return f"wrong: text {outcome.text!r}"
    if outcome.finish != ["tool_calls" if client.tools else "stop"]:
        return f"wrong: finish_reason {outcome.finish}"
    return GOOD


def behind_laps(text: str) -> str:
    """What follows a text that went round, and had gone out before that was known."""
    rest = text
    while rest.startswith(LAP):
        rest = rest[len(LAP) :]
    half = next((n for n in range(len(LAP), 0, -1) if rest.startswith(LAP[:n])), 0)
    return rest[half:].lstrip("\n") if rest != text else text


def _judged_error(outcome: Outcome) -> str:
    error = outcome.error
    if not isinstance(error, dict) or not error.get("message") or "type" not in error:
        return "wrong: an error without a sentence"
    if outcome.finish:
        return "wrong: a finish_reason and an error"
    if outcome.calls:
        return "wrong: a call and an error"
    if not outcome.ended:
        return "wrong: no end"
    return ERROR
