"""Who asks: each scenario is one thing that a client does, and tells how it went.

``good``; ``error``: an honest one, with a type and a sentence; ``left``: the client didn't wait;
anything else is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import secrets
import socket
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from benchmarks.came import call
from benchmarks.records import Json
from benchmarks.soak import account
from benchmarks.soak.process import KEY, POOR_KEY
from benchmarks.upstream import SLOW, TEXT
from tests.faults.catalogue import FAULTS
from tests.faults.clients import CLIENTS, ERROR, EVERYONE, GOOD, Client, Outcome, judged, read
from tests.faults.spoken import CHAT, SPOKEN
from tests.support.replies import long_text
from tests.tool_validation.calls import SEARCH, parameters, tool

LEFT = "left"
EXPECTED = (GOOD, ERROR, LEFT)
PATIENCE = 60.0  # seconds; a client that waits longer has been forgotten
SMALL_BUFFER = 4096
LITTLES = 20  # times that a slow reader takes a little
HONEST = (b"HTTP/1.1 429", b"HTTP/1.1 502", b"HTTP/1.1 503", b"HTTP/1.1 504")
MAX_TOKENS = 500
DIALECTS = tuple(SPOKEN)


class World:
    """What the scenarios share: one proxy, chance, names that nobody had before.

    ``seen``: what each agent saw of its exchanges, in the words of the proxy's report. An agent is
    named by its dialect; clients that leave before the end are another agent's.
    """

    def __init__(self, port: int, seed: int) -> None:
        self.port = port
        self.chance = random.Random(seed)
        self.seen: dict[str, Counter[str]] = {agent_of(one): Counter() for one in DIALECTS}
        self._numbers = itertools.count()
        self._run = secrets.token_hex(4)
        self.open()

    def open(self) -> None:
        """Connections of the clients that keep theirs."""
        self.http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}",
            timeout=PATIENCE,
            trust_env=False,
            verify=False,  # plain HTTP: reading the certificates would only take time
            limits=httpx.Limits(max_connections=200),
        )

    def new_name(self) -> str:
        return f"soak-{self._run}-{next(self._numbers):06d}"

    def headers(self, key: str = KEY, session: str | None = None, **more: str) -> dict[str, str]:
        named = {"X-MLX-Stack-Session": session} if session else {}
        return {"Authorization": f"Bearer {key}", **named, **more}

    async def ask(self, body: Json, headers: dict[str, str], speaks: str = CHAT) -> Outcome:
        """``body``: as this dialect has it."""
        agent = agent_of(speaks)
        headers = {**headers, "X-MLX-Stack-Agent": agent}
        response = await self.http.post(SPOKEN[speaks].path, json=body, headers=headers)
        outcome = read(response, speaks=speaks)
        said = {name.replace("_", "-"): str(value) for name, value in outcome.said.items()}
        right = outcome.error is None and outcome.status == 200
        self.seen[agent] += account.counts(said, right)
        return outcome

    async def connected(self, body: Json, buffer: int | None = None) -> socket.socket:
        """A socket on which this was asked."""
        content = json.dumps(body).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost:{self.port}\r\n"
        head += f"authorization: Bearer {KEY}\r\ncontent-type: application/json\r\n"
        head += f"connection: close\r\ncontent-length: {len(content)}\r\n\r\n"
        return await connect(self.port, head.encode() + content, buffer)


async def connect(port: int, request: bytes, buffer: int | None = None) -> socket.socket:
    """A client that has sent this; ``buffer``: bytes that its system takes for it."""
    loop = asyncio.get_running_loop()
    client = socket.socket()
    client.setblocking(False)
    if buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, request)
    return client


def agent_of(speaks: str) -> str:
    return f"soak-{speaks}"


def body(text: str, stream: bool, **more: Any) -> Json:
    messages = [{"role": "user", "content": text}]
    return {"model": "fast", "stream": stream, "messages": messages, **more}


def told(outcome: Outcome, text: str) -> str:
    """An answer of plain text."""
    if outcome.error is not None or outcome.status >= 400:
        return judged(outcome, CLIENTS[0])
    if not outcome.ended:
        return "wrong: no end, and no error"
    if outcome.text == text:
        return GOOD
    pairs = zip(outcome.text, text, strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
    return (
        f"wrong: {len(outcome.text)} characters, the first {same} of {len(text)} right, then "
        f"{outcome.text[same : same + 40]!r}; {outcome.finish}, {outcome.said}"
    )


async def texts(world: World) -> str:
    """Text, streamed or not, buffered, on any tier, in a session that many share."""
    chance = world.chance
    more = {}
    if chance.random() < 0.2:
        more["X-MLX-Stack-Stream"] = "buffered"
    if chance.random() < 0.2:
        more["X-MLX-Stack-Tier"] = "standard"
    headers = world.headers(session=f"soak-shared-{chance.randrange(50)}", **more)
    speaks = chance.choice(DIALECTS)
    asked = SPOKEN[speaks].asks(body(f"{world.new_name()} [[text]]", chance.random() < 0.5))
    return told(await world.ask(asked, headers, speaks), "".join(TEXT))


async def mending(world: World) -> str:
    """Tool calls that are right, repaired, rescued from a text, or never right."""
    word = world.chance.choice(("good", "repaired", "rescued", "wrong"))
    client = world.chance.choice([one for one in EVERYONE if one.tools])
    return await catalogued(world, client, f"[[{word}]]")


async def faults(world: World) -> str:
    """A fault of the catalogue, on the first tier or on both."""
    number = world.chance.randrange(len(FAULTS))
    client = world.chance.choice([one for one in EVERYONE if FAULTS[number].fits(one)])
    where = "all" if world.chance.random() < 0.2 else "fast"
    directive = f"[[fault {number} {where}]]"
    found = await catalogued(world, client, directive, *FAULTS[number].after)
    if FAULTS[number].after and found.startswith("wrong: calls"):
        return GOOD  # a call that two tiers agree on, or the last one left insists on
    return f"{found} ({FAULTS[number].name})" if found.startswith("wrong") else found


async def catalogued(world: World, client: Client, directive: str, *after: Json) -> str:
    question = {"role": "user", "content": f"{client.question} {directive}"}
    asked = client.asking([question, *after])
    more = {"X-MLX-Stack-Stream": "buffered"} if client.how == "buffered" else {}
    headers = world.headers(session=world.new_name(), **more)
    return judged(await world.ask(asked, headers, client.speaks), client)


async def newcomers(world: World) -> str:
    """A session, a conversation and a tool that nobody has seen before."""
    name = world.new_name()
    mine = parameters("query", query="string", **{f"of_{name}": "integer"})
    client = Client("whole", True, world.chance.choice(DIALECTS))
    messages = [
        {"role": "user", "content": f"I am {name}."},
        {"role": "assistant", "content": f"Hello, {name}."},
        {"role": "user", "content": "Look. [[good]]"},
    ]
    asked = client.asking(messages, [tool("search", mine)])
    session = name if world.chance.random() < 0.5 else None  # else it is derived
    return judged(await world.ask(asked, world.headers(session=session), client.speaks), client)


async def agents(world: World) -> str:
    """An agent at work: every turn sends all that was said; some go round in circles."""
    name = world.new_name()
    circles = world.chance.random() < 0.15
    session = name if world.chance.random() < 0.7 else None
    speaks = world.chance.choice(DIALECTS)
    messages: list[Json] = [
        {"role": "system", "content": long_text(2_000)},
        {"role": "user", "content": f"{name}: find all quokkas. [[look 0]]"},
    ]
    for turn in range(1, world.chance.randrange(4, 40)):
        asked = {"model": "auto", "stream": True, "messages": messages, "tools": [SEARCH]}
        headers = world.headers(session=session)
        outcome = await world.ask(SPOKEN[speaks].asks(asked), headers, speaks)
        if not outcome.calls or outcome.error is not None:
            return told(outcome, outcome.text)
        made = call(f"call_{turn}", *outcome.calls[0])
        messages.append({"role": "assistant", "content": None, "tool_calls": [made]})
        found = "nothing" if circles else long_text(world.chance.randrange(200, 4_000), turn)
        result = f"{found} [[look {0 if circles else turn}]]"
        messages.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": result})
    return GOOD


async def runaways(world: World) -> str:
    """Models that don't end: laps, text, thoughts. The proxy ends them."""
    word = world.chance.choice(("laps", "endless", "thinking"))
    asked = body(f"Go on. [[{word}]]", world.chance.random() < 0.5, max_tokens=MAX_TOKENS)
    outcome = await world.ask(asked, world.headers(session=world.new_name()))
    return told(outcome, outcome.text)


async def poor(world: World) -> str:
    """A key whose budget is soon spent."""
    asked = body("Go on. [[text]]", world.chance.random() < 0.5)
    outcome = await world.ask(asked, world.headers(POOR_KEY, world.new_name()))
    return told(outcome, "".join(TEXT))


async def leavers(world: World) -> str:
    """Asks, and goes: before the answer, within it, with a reset or without."""
    asked = body(f"{world.new_name()} [[slow]]", world.chance.random() < 0.8)
    with await world.connected(asked):
        await asyncio.sleep(world.chance.choice((0.0, 0.01, 0.1, 0.5, 1.0)))
    return LEFT


async def slow_readers(world: World) -> str:
    """Reads a little now and then; in the end the rest, or nothing more."""
    loop = asyncio.get_running_loop()
    asked = body(f"{world.new_name()} [[big]]", True)
    with await world.connected(asked, SMALL_BUFFER) as client:
        head = data = await loop.sock_recv(client, SMALL_BUFFER)
        end = b""
        for number in itertools.count():
            if not data:
                break
            end = (end + data)[-16:]
            if number == LITTLES and world.chance.random() < 0.5:
                return LEFT
            if number < LITTLES:
                await asyncio.sleep(0.1)
            data = await loop.sock_recv(client, SMALL_BUFFER if number < LITTLES else 65_536)
    if not head.startswith(b"HTTP/1.1 200"):
        return ERROR if head.startswith(HONEST) else f"wrong: {head[:80]!r}"
    return GOOD if end.endswith(b"0\r\n\r\n") else "wrong: the stream was cut off"


async def streams(world: World) -> str:
    """A slow stream, read to its end."""
    asked = body(f"{world.new_name()} [[slow]]", True)
    outcome = await world.ask(asked, world.headers(session=f"soak-s-{world.chance.randrange(20)}"))
    return told(outcome, "".join(SLOW))


# (method, path, headers beside the key, body, status)
LOOKS: tuple[tuple[str, str, dict[str, str], bytes, tuple[int, ...]], ...] = (
    ("GET", "/health", {}, b"", (200,)),
    ("GET", "/ready", {}, b"", (200, 503)),
    ("GET", "/metrics", {}, b"", (200,)),
    ("GET", "/v1/models", {}, b"", (200, 503)),
    ("GET", "/mlx-stack/status", {}, b"", (200, 503)),
    ("GET", "/mlx-stack/sessions", {}, b"", (200, 503)),
    ("GET", "/mlx-stack/events", {}, b"", (200, 503)),
    ("POST", "/v1/embeddings", {}, b'{"model": "embedder", "input": "a"}', (200, 429, 502, 503)),
    ("POST", "/v1/chat/completions", {}, b"{", (400,)),
    ("POST", "/v1/chat/completions", {}, b'{"model": "fast"}', (400,)),
    ("POST", "/v1/chat/completions", {"content-encoding": "gzip"}, b"\x1f\x8b", (415,)),
    ("POST", "/v1/chat/completions", {"X-MLX-Stack-Tier": "none"}, b'{"messages": []}', (400,)),
    ("GET", "/v1/../key/generate", {}, b"", (200, 400, 404, 405)),
    ("GET", "/nothing", {}, b"", (404,)),
)


async def lookers(world: World) -> str:
    """Who asks for something else, or asks wrongly."""
    method, path, more, content, statuses = world.chance.choice(LOOKS)
    headers = {**world.headers(), "content-type": "application/json", **more}
    response = await world.http.request(method, path, headers=headers, content=content)
    if response.status_code in statuses:
        return GOOD
    return f"wrong: {method} {path}: {response.status_code}"


async def followers(world: World) -> str:
    """Follows the events for a while."""
    accept = {"Accept": "text/event-stream"}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            async with world.http.stream("GET", "/mlx-stack/events", headers=accept) as response:
                if response.status_code not in (200, 429, 503):
                    return f"wrong: the events: {response.status_code}"
                async for _ in response.aiter_raw():
                    pass
    return LEFT


async def tricklers(world: World) -> str:
    """Half a request, and then nothing."""
    with await connect(world.port, b"POST /v1/chat/completions HTTP/1.1\r\nho"):
        await asyncio.sleep(world.chance.choice((0.0, 1.0)))
    return LEFT


@dataclass(frozen=True)
class Scenario:
    """``clients``: how many do it at once; ``pause``: seconds between, on the average."""

    once: Callable[[World], Awaitable[str]]
    clients: int
    pause: float

    @property
    def name(self) -> str:
        return self.once.__name__.replace("_", " ")


SCENARIOS = (
    Scenario(texts, 4, 0.5),
    Scenario(streams, 4, 1.0),
    Scenario(mending, 2, 0.5),
    Scenario(faults, 4, 0.5),
    Scenario(newcomers, 3, 0.4),
    Scenario(agents, 3, 0.5),
    Scenario(runaways, 2, 2.0),
    Scenario(poor, 1, 2.0),
    Scenario(leavers, 3, 0.5),
    Scenario(slow_readers, 3, 1.0),
    Scenario(lookers, 2, 0.5),
    Scenario(followers, 1, 1.0),
    Scenario(tricklers, 1, 1.0),
)
