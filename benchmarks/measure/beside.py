"""What other gateways make of the same mistakes: `python -m benchmarks.measure.beside`.

The client asks each of them the same, streamed, as agents do; behind each stands the same scripted
model server, whose tier `fast` makes one mistake and whose tier `standard` answers well. All that
can retry and fall back are told to. `make bench-install` installs those that aren't here yet. The
table is the one of benchmarks/comparison.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.cost import contestants
from benchmarks.measure.gateways import CRUXIAL, NAMES, started
from tests.support.replies import DONE, ROLE, Json, chunk, completion, data, stream, text_stream
from tests.support.scripted_server import (
    CLOSE,
    SILENCE,
    Call,
    Delay,
    Piece,
    Reply,
    ScriptedServer,
    WhenWhole,
)

SENTENCE = "I will look at the file again and then decide. "
ENDLESS = 600  # of them
PARAMETERS: Json = {
    "type": "object",
    "properties": {"query": {"type": "string"}},
    "required": ["query"],
}
TOOL: Json = {"type": "function", "function": {"name": "search", "parameters": PARAMETERS}}
ASK: Json = {"role": "user", "content": "Look for the cause."}
GOOD = '{"query": "cause"}'
OLLAMA = "/api/chat"  # Ollama's own API, whose grammar obeys a `format`


@dataclass
class Seen:
    """What the client got. ``calls``: name and arguments of each; ``lost``: its connection."""

    text: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    finish: str = ""
    error: str = ""
    lost: bool = False


Answers = Callable[[ScriptedServer, str, Json], Awaitable[str]]


def called(name: str, arguments: str) -> Reply:
    """A streamed reply that is one tool call."""
    function = {"name": name, "arguments": arguments}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    return stream([chunk({"role": "assistant", "tool_calls": [call]}), chunk({}, "tool_calls")])


def plain(reply: Reply) -> Reply:
    """The same as JSON, for who doesn't ask for a stream; one that breaks off does so here, too."""
    if reply.pieces and reply.pieces[-1] in (CLOSE, SILENCE):
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n"
        return Reply.raw(head + b'{"id": "chatcmpl-71c0", "choices": [', reply.pieces[-1])
    seen = Seen()
    for piece in reply.pieces:
        if isinstance(piece, bytes):
            for payload in payloads(piece.decode()):
                add(seen, payload)
    made = [{"name": name, "arguments": arguments} for name, arguments in seen.calls]
    calls = [{"id": "call_1", "type": "function", "function": one} for one in made]
    message: Json = {"content": seen.text or None, **({"tool_calls": calls} if calls else {})}
    return Reply.json(completion(message, seen.finish or "stop"))


def by_tier(fast: list[Reply], standard: Reply) -> WhenWhole:
    """`fast`: its replies in order, the last one again and again."""
    left = list(fast)

    def choose(call: Call) -> Reply:
        body = call.json()
        if call.target == OLLAMA:
            return bound(call)
        reply = standard
        if body.get("model") != "standard":
            reply = left.pop(0) if len(left) > 1 else left[0]
        streamed = body.get("stream") or reply.status != 200
        return reply if streamed else plain(reply)

    return WhenWhole(choose)


def bound(call: Call) -> Reply:
    """What a model writes that its server binds to a schema: the arguments, or a call."""
    if call.target == OLLAMA:
        return Reply.json({"message": {"role": "assistant", "content": GOOD}, "done": True})
    written = text_stream(f'{{"name": "search", "arguments": {GOOD}}}')
    return written if call.json().get("stream") else plain(written)


def payloads(text: str) -> Iterator[Any]:
    for line in text.splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            with contextlib.suppress(ValueError):
                yield json.loads(line[6:])


def add(seen: Seen, payload: Any) -> None:
    if "error" in payload:
        seen.error = str(payload["error"])[:80]
    for choice in payload.get("choices") or ():
        delta = choice.get("delta") or choice.get("message") or {}
        seen.text += delta.get("content") or ""
        seen.finish = choice.get("finish_reason") or seen.finish
        for call in delta.get("tool_calls") or ():
            function = call.get("function") or {}
            if function.get("name"):
                seen.calls.append((function["name"], ""))
            if seen.calls:
                name, arguments = seen.calls[-1]
                seen.calls[-1] = (name, arguments + (function.get("arguments") or ""))


async def ask(url: str, headers: Json, **more: Any) -> Seen:
    """One streamed request with a tool, to its end."""
    body = {"model": "fast", "messages": [ASK], "tools": [TOOL], "stream": True, **more}
    seen = Seen()
    async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
        try:
            async with client.stream("POST", url, json=body, headers=headers) as answer:
                async for line in answer.aiter_lines():
                    for payload in payloads(line):
                        add(seen, payload)
                if answer.status_code != 200:
                    seen.error = seen.error or f"{answer.status_code}"
        except httpx.HTTPError:
            seen.lost = True
    return seen


def the_call(seen: Seen) -> str:
    """Whether the good call came, or what came in its place."""
    if seen.error:
        return "an error"
    if [(name, as_json(arguments)) for name, arguments in seen.calls] == [
        ("search", json.loads(GOOD))
    ]:
        return "a good call"
    if seen.calls:
        return "the bad call"
    return "its text" if seen.text else "nothing"


def as_json(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return json.loads(text)
    return None


def mistake(bad: Reply, standard: Reply | None = None) -> Answers:
    """Once this, then a good call."""

    async def run(upstream: ScriptedServer, url: str, headers: Json) -> str:
        good = called("search", GOOD)
        upstream.always(by_tier([bad, good], standard or good))
        seen = await ask(url, headers)
        return f"{the_call(seen)} ({len(upstream.calls)})"

    return run


async def dead_tier(upstream: ScriptedServer, url: str, headers: Json) -> str:
    upstream.always(by_tier([Reply.json({"error": "down"}, 500)], called("search", GOOD)))
    return f"{the_call(await ask(url, headers))} ({len(upstream.calls)})"


async def unless_bound(upstream: ScriptedServer, url: str, headers: Json) -> str:
    """Each model forgets the argument each time, but not where a schema binds what it writes."""
    bad = called("search", "{}")

    def choose(call: Call) -> Reply:
        if call.target == OLLAMA or "response_format" in call.json():
            return bound(call)
        return bad if call.json().get("stream") else plain(bad)

    upstream.always(WhenWhole(choose))
    return f"{the_call(await ask(url, headers))} ({len(upstream.calls)})"


async def untouched(upstream: ScriptedServer, url: str, headers: Json) -> str:
    odd = '{ "query" :"cause"}'
    upstream.always(by_tier([called("search", odd)], called("search", odd)))
    seen = await ask(url, headers)
    same = seen.calls == [("search", odd)]
    return f"{'byte for byte' if same else the_call(seen)} ({len(upstream.calls)})"


async def text_with_tools(upstream: ScriptedServer, url: str, headers: Json) -> str:
    upstream.always(by_tier([text_stream("It was the disk.")], text_stream("It was the disk.")))
    seen = await ask(url, headers)
    right = seen.text == "It was the disk."
    return f"{'the text' if right else the_call(seen)} ({len(upstream.calls)})"


async def the_same_call(upstream: ScriptedServer, url: str, headers: Json) -> str:
    """The sixth time, each with the same result."""
    messages = [ASK]
    for number in range(5):
        function = {"name": "search", "arguments": GOOD}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "nothing found"})
    upstream.always(by_tier([called("search", GOOD)], text_stream("It was the disk.")))
    seen = await ask(url, headers, messages=messages)
    return "the call again" if seen.calls else (seen.error and "an error") or "another reply"


async def endless(upstream: ScriptedServer, url: str, headers: Json) -> str:
    words = [f"{word} " for word in SENTENCE.split()] * ENDLESS
    fast = Reply.sse(
        ROLE, *(data(chunk({"content": word})) for word in words), data(chunk({}, "length")), DONE
    )
    upstream.always(by_tier([fast], text_stream("It was the disk.")))
    seen = await ask(url, headers)
    whole = len("".join(words))
    cut = "" if len(seen.text) == whole else ", then another model's answer"
    return f"{len(seen.text):,} of {whole:,} characters{cut if seen.finish == 'stop' else ''}"


async def broken_off(upstream: ScriptedServer, url: str, headers: Json) -> str:
    """The model server dies after text."""
    fast = Reply.sse(ROLE, data(chunk({"content": "The cause is"})), CLOSE)
    upstream.always(by_tier([fast], text_stream("It was the disk.")))
    seen = await ask(url, headers)
    if seen.error or seen.lost:
        return "an error"
    return f"a whole reply (`{seen.finish}`)" if seen.finish else "an end without a reason"


async def first_text(upstream: ScriptedServer, url: str, headers: Json) -> str:
    """Whether text comes while the model is still writing."""
    fast = Reply.sse(
        ROLE, data(chunk({"content": "The cause of it all is the disk. " * 8})), SILENCE
    )
    upstream.always(by_tier([fast], fast))
    return "as it comes" if await _text_within(url, headers, 5) else "at its end"


async def _text_within(url: str, headers: Json, seconds: float) -> bool:
    seen = Seen()
    body = {"model": "fast", "messages": [ASK], "tools": [TOOL], "stream": True}
    with contextlib.suppress(TimeoutError, httpx.HTTPError):
        async with (
            asyncio.timeout(seconds),
            httpx.AsyncClient(timeout=60, trust_env=False) as client,
            client.stream("POST", url, json=body, headers=headers) as answer,
        ):
            async for line in answer.aiter_lines():
                for payload in payloads(line):
                    add(seen, payload)
                if seen.text:
                    return True
    return False


def leaves(streamed: bool) -> Answers:
    """Whether the model stops within three seconds when its client has left."""

    async def run(upstream: ScriptedServer, url: str, headers: Json) -> str:
        words: list[Piece] = [data(chunk({"content": "word "})), Delay(0.1)] * 200
        upstream.always(Reply.sse(ROLE, *words) if streamed else Reply.raw(SILENCE))
        body = {"model": "fast", "messages": [ASK], "tools": [TOOL], "stream": streamed}
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(2), httpx.AsyncClient(trust_env=False) as client:
                await client.post(url, json=body, headers=headers)
        if not upstream.calls:
            return "not asked"
        return "stops" if await upstream.calls[0].left_within(3) else "writes on"

    return run


CASES: dict[str, Answers] = {
    "a good call, oddly spaced": untouched,
    "an answer in text, tools offered": text_with_tools,
    'a comma too many: `{"query": "cause",}`': mistake(called("search", '{"query": "cause",}')),
    "a required argument is missing": mistake(called("search", "{}")),
    "a tool that isn't offered": mistake(called("find", GOOD)),
    "a call written as text: `<tool_call>{…}</tool_call>`": mistake(
        text_stream(f'<tool_call>{{"name": "search", "arguments": {GOOD}}}</tool_call>')
    ),
    "an empty reply": mistake(stream([chunk({"role": "assistant"}), chunk({}, "stop")])),
    "a 500, once": mistake(Reply.json({"error": {"message": "busy"}}, 500)),
    "a 500, always; another model is well": dead_tier,
    "a required argument is missing, unless a schema binds the model": unless_bound,
    "the same call a sixth time, with the same result": the_same_call,
    "one sentence over and over": endless,
    "the model server dies after text": broken_off,
    "text, while the model writes": first_text,
    "the client leaves a stream": leaves(True),
    "the client leaves a request without a stream": leaves(False),
}
OF_THE_APP = set(list(CASES)[-3:])  # where the model's server is reached by a library


async def column(name: str, folder: Path, cases: dict[str, Answers]) -> dict[str, str]:
    found: dict[str, str] = {}
    async with ScriptedServer() as upstream:
        server, headers = await asyncio.to_thread(started, name, upstream.port, folder)
        url = f"http://127.0.0.1:{server.port}/v1/chat/completions"
        try:
            for case, run in cases.items():
                if name == CRUXIAL and case in OF_THE_APP:
                    found[case] = "–"
                    continue
                upstream.calls.clear()
                upstream.script.clear()
                own = {**headers, "x-mlx-stack-session": secrets.token_hex(8)}
                found[case] = await run(upstream, url, own)
                print(f"{name}: {case}: {found[case]}", file=sys.stderr, flush=True)
        finally:
            await asyncio.to_thread(server.stop)
    return found


async def compare(names: list[str], cases: dict[str, Answers]) -> str:
    columns: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            try:
                columns[name] = await column(name, Path(folder), cases)
            except contestants.Missing as missing:
                print(f"{name}: {missing}", file=sys.stderr)
    lines = [f"| what `fast` does | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for case in cases:
        lines.append(f"| {case} | {' | '.join(one[case] for one in columns.values())} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", default=list(NAMES), help="of these alone")
    parser.add_argument("--case", default="", help="cases whose name holds this")
    options = parser.parse_args()
    cases = {name: run for name, run in CASES.items() if options.case in name}
    print(asyncio.run(compare(options.only, cases)))


if __name__ == "__main__":
    main()
