from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from mlx_stack_proxy.operator.local_stack.probes import HttpProbe
from tests.support.ports import free_port

from .conftest import until

Answer = Callable[[str], bytes]


@asynccontextmanager
async def serving(
    answer: Answer, port: int = 0, heads: list[str] | None = None
) -> AsyncIterator[int]:
    """A server that answers each request line with these bytes; ``heads``: takes the headers."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n")).decode()
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        if heads is not None:
            heads.append(head)
        writer.write(answer(line))
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", port)
    async with server:
        yield server.sockets[0].getsockname()[1]


def status(code: int, body: str = "") -> bytes:
    return f"HTTP/1.1 {code} Whatever\r\nContent-Type: text/plain\r\n\r\n{body}".encode()


async def test_it_waits_through_refusal_nonsense_and_503() -> None:
    port = free_port()
    probe = HttpProbe(port, "/ready")
    waiting = asyncio.create_task(probe.ready())
    await until(lambda: probe.last_answer == "the connection was refused")
    ready, answers = False, iter([b"SSH-2.0\r\n", b""])

    def answer(_: str) -> bytes:
        return status(200) if ready else next(answers, status(503, '{"ready": false,\n "a": "…"}'))

    async with serving(answer, port):
        await until(lambda: probe.last_answer == 'HTTP 503: {"ready": false, "a": "…"}')
        ready = True
        assert await waiting == ""
    assert probe.last_answer == "HTTP 200"


async def test_a_model_server_is_ready_when_it_has_written_a_token() -> None:
    port = free_port()
    probe = HttpProbe(port, "/health", "m")
    waiting = asyncio.create_task(probe.ready())
    await until(lambda: probe.last_answer == "the connection was refused")
    async with serving(lambda line: status(200 if "POST" in line else 503, "{}"), port):
        await waiting


async def test_the_question_names_who_asks() -> None:
    """With the layer inside LiteLLM, the report counts the question."""
    heads: list[str] = []
    async with serving(lambda _: status(200, "{}"), heads=heads) as port:
        await HttpProbe(port, "/health", "m").ready()
    assert "user-agent: mlx-stack-proxy" in heads[0].lower()


@pytest.mark.parametrize("body", ['{"error": "generation thread died"}', "no such template"])
async def test_a_model_that_fails_its_first_question_is_hopeless(body: str) -> None:
    async with serving(lambda line: status(404 if "POST" in line else 200, body)) as port:
        assert f"HTTP 404: {body}" in await HttpProbe(port, "/health", "m").ready()


async def test_only_a_dead_model_thread_is_an_illness() -> None:
    probe = HttpProbe(free_port(), "/health", "m")
    assert await probe.illness() == ""  # no answer may mean that it is busy
    async with serving(lambda line: status(503)) as port:
        assert await HttpProbe(port, "/health", "m").illness()
        assert await HttpProbe(port, "/ready").illness() == ""
