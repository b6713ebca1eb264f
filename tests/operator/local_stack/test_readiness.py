"""When a child is ready, and when it must be restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import msgspec
import pytest

from mlx_stack_proxy.operator.local_stack import supervisor

from .conftest import MakeSpec, Stack, until

Answer = Callable[[str], bytes]


@asynccontextmanager
async def serving(answer: Answer, url: str, heads: list[str] | None = None) -> AsyncIterator[None]:
    """A server that answers each request line with these bytes; ``heads``: takes the headers."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n")).decode()
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if heads is not None:
            heads.append(head)
        writer.write(answer(line))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", urlsplit(url).port)
    async with server:
        yield


def status(code: int, body: str = "") -> bytes:
    return f"HTTP/1.1 {code} Whatever\r\nContent-Type: text/plain\r\n\r\n{body}".encode()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PROGRESS_SECONDS", 0.05)
    monkeypatch.setattr(supervisor, "HEALTH_SECONDS", 0.05)


async def test_it_waits_through_refusal_nonsense_and_503(stack: Stack, make_spec: MakeSpec) -> None:
    spec = make_spec("a")
    waiting = asyncio.create_task(stack.supervisor._until_ready(spec))
    await until(lambda: f"for GET {spec.url} (the connection was refused)" in stack.said)
    ready, answers = False, iter([b"SSH-2.0\r\n", b""])

    def answer(_: str) -> bytes:
        return status(200) if ready else next(answers, status(503, '{"ready": false,\n "a": "…"}'))

    async with serving(answer, spec.url):
        await until(lambda: '(HTTP 503: {"ready": false, "a": "…"})' in stack.said)
        ready = True
        assert await waiting == ""


async def test_a_model_server_is_ready_when_it_has_written_a_token(
    stack: Stack, make_spec: MakeSpec
) -> None:
    """The question names who asks: with the layer inside LiteLLM, the report counts it."""
    spec = make_spec("a", model="m")
    waiting = asyncio.create_task(stack.supervisor._until_ready(spec))
    await until(lambda: "for its model's first token (the connection was refused)" in stack.said)
    heads: list[str] = []
    async with serving(lambda line: status(200 if "POST" in line else 503, "{}"), spec.url, heads):
        assert await waiting == ""
    assert "user-agent: mlx-stack-proxy" in heads[0].lower()


@pytest.mark.parametrize("body", ['{"error": "generation thread died"}', "no such template"])
async def test_a_model_that_fails_its_first_question_is_hopeless(
    body: str, stack: Stack, make_spec: MakeSpec
) -> None:
    spec = make_spec("a", model="m")
    async with serving(lambda line: status(404 if "POST" in line else 200, body), spec.url):
        assert f"HTTP 404: {body}" in await stack.supervisor._until_ready(spec)


async def test_a_503_is_the_illness_of_a_model_server_alone(make_spec: MakeSpec) -> None:
    """Others say so while something that they need is away; what is silent may be busy."""
    spec = make_spec("a", model="m")
    asked = iter([b"", b""])
    async with serving(lambda _: next(asked, status(503)), spec.url):
        assert await supervisor._illness(spec) == "its model thread has died"
    asked = iter([b""] * 3 + [status(503)] + [b""] * 6)
    async with serving(lambda _: next(asked), spec.url):
        other = msgspec.structs.replace(spec, model="")
        assert (await supervisor._illness(other)).startswith("it hangs: 6 consecutive requests")
    assert next(asked, None) is None
