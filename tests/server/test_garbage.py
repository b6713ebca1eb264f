"""What an exchange leaves behind: nothing that only the garbage collector would find.

A whole exchange in a cycle is its request, its reply and its history; the collector's rounds are
rare here (operator/process.py), and such garbage made the process grow by half a kilobyte a
request.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.engine import watch
from mlx_stack_proxy.operator.process import GC_TICKS
from tests.server.asking import WITH_USAGE, ask, body
from tests.server.calling import BAD, GOOD, TOOLS, calling
from tests.server.conftest import StartProxy
from tests.server.looping import STUCK, endless
from tests.server.sockets import post
from tests.support.replies import data, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import CLOSE, RESET, SILENCE, Reply, ScriptedServer
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("no_collector")

ROLE, TEXT, _ = (data(one) for one in text_chunks("Some words"))
TWO_TIERS = {
    "reliability.escalation.chain": ["fast", "standard"],
    "reliability.escalation.sticky_seconds": 0,
    "reliability.tool_validation.max_retries": 1,
}
# What upstream says, what is asked, and the status.
ANSWERS: dict[str, tuple[tuple[Reply, ...], Any, int]] = {
    "whole": ((text_stream("All", " well."),), {}, 200),
    "streamed": ((text_stream(*(f"Word {n}. " for n in range(20))),), WITH_USAGE, 200),
    "a bad call": ((calling(BAD), calling(GOOD)), {"tools": TOOLS}, 200),
    "a loop": ((endless({"content": STUCK}), text_stream("All done.")), {}, 200),
    "a reset": ((Reply.raw(RESET), text_stream("All well.")), {}, 200),
    "broken off": ((Reply.sse(ROLE, TEXT, CLOSE),), {"stream": True}, 200),
    "refused": ((), {"headers": {"x-mlx-stack-tier": "none"}}, 400),
}


def garbage() -> list[str]:
    """The types of ours that have been in cycles, and requests to upstream, which hold the body."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        found = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    return [
        name
        for name in found
        if name.startswith("mlx_stack_proxy.") or name.endswith(".ClientRequest")
    ]


@pytest.fixture(params=[False, True], ids=["as it is", "with captured failures"])
async def proxy(
    request: pytest.FixtureRequest,
    upstream: ScriptedServer,
    start_proxy: StartProxy,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> RunningProxy:
    """One that has made what is made but once."""
    monkeypatch.setattr(watch, "BEGIN_SECONDS", 0.0)  # as of one that takes a while
    capture = {
        "observability.capture_failures": request.param,
        "observability.capture_path": str(tmp_path / "failures"),
    }
    proxy = await start_proxy(TWO_TIERS | capture)
    await ask(proxy, {"x-mlx-stack-tier": "none"})
    garbage()
    return proxy


async def left_by(proxy: RunningProxy) -> list[str]:
    """The garbage of the requests that end now."""
    await until(lambda: not proxy.services.life.running)
    for _ in range(5):  # the tasks that were cancelled at its end
        await asyncio.sleep(0)
    return garbage()


async def test_an_exchange_leaves_no_cycle(proxy: RunningProxy) -> None:
    for name, (replies, asked, status) in ANSWERS.items():
        proxy.upstream.will(*replies)
        assert (await ask(proxy, **asked)).status_code == status, name
        assert not proxy.upstream.script
        assert await left_by(proxy) == [], name


async def test_nor_do_a_session_and_what_is_broken_off(proxy: RunningProxy) -> None:
    for number in range(3):
        proxy.upstream.will(text_stream(f"Answer {number}."))
        assert (await ask(proxy, {"x-mlx-stack-session": "one"})).status_code == 200
    assert await left_by(proxy) == []
    proxy.upstream.will(Reply.json({"data": []}))
    response = await proxy.client.post("/v1/embeddings", json={"model": "fast", "input": "a"})
    assert response.status_code == 200
    assert await left_by(proxy) == [], "passing through"
    proxy.upstream.will(Reply.sse(ROLE, TEXT, SILENCE))
    reader, writer = await proxy.raw(post(body(stream=True)))
    await reader.readuntil(b"Some words")
    writer.close()
    assert await left_by(proxy) == [], "its client left"
    reader, writer = await proxy.raw(b"GET http://a:99999/ HTTP/1.1\r\nhost: a\r\n\r\n")
    assert b" 400 " in await reader.read()
    writer.close()
    assert await left_by(proxy) == [], "its target is no URL"
    await proxy.upstream.stop()
    assert (await ask(proxy)).status_code == 503
    assert await left_by(proxy) == [], "nobody is there"


class LibraryError(Exception):
    """One that holds itself, as an error does that is kept in its own frame."""


async def test_what_others_leave_is_found_before_long(proxy: RunningProxy) -> None:
    cycle = LibraryError()
    cycle.args = (cycle,)
    gone = weakref.ref(cycle)
    del cycle
    await proxy.server.on_tick(GC_TICKS + 1)
    assert gone() is not None
    await proxy.server.on_tick(GC_TICKS)
    assert gone() is None
