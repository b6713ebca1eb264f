"""How many objects of our classes an exchange makes before the first byte from upstream.

    python -m benchmarks.cost.objects

The proxy's app is called in this process, as its server calls it, with an upstream that answers at
once. Counted is each object of a class of the package that is made after the request's arrival and
before the reply's first byte is asked for, by class. A plain request of one message is asked with
and without a stream, and one with tools.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import httpx

from mlx_stack_proxy import log
from mlx_stack_proxy.engine.headers import RawHeaders
from mlx_stack_proxy.main import build_app, build_services, opened
from mlx_stack_proxy.settings_source import from_mapping
from tests.support.fake_upstream import FakeResponse, FakeUpstream

PACKAGE: Final = "mlx_stack_proxy"
WARM: Final = 3  # requests before the one that is counted
TOOL: Final = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
BODIES: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "streamed": {"stream": True},
    "with tools": {"stream": True, "tools": [TOOL]},
}
STREAM: Final = (
    b'data: {"id":"a","object":"chat.completion.chunk","created":1,"model":"fast",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}\n\ndata: [DONE]\n\n'
)


class Answered(FakeResponse):
    """A stream that reports when its first byte is asked for."""

    def __init__(self, at_first: Callable[[], None]) -> None:
        super().__init__([STREAM])
        self._at_first = at_first

    async def next_bytes(self) -> bytes:
        self._at_first()
        return await super().next_bytes()


class Answering(FakeUpstream):
    at_first: Callable[[], None] = staticmethod(lambda: None)

    async def fetch(
        self, method: str, target: str, headers: RawHeaders, content: bytes | None = None
    ) -> tuple[int, bytes]:
        return 200, b'{"data": [{"id": "fast"}]}'

    def answer(self, content: bytes) -> Answered:
        return Answered(self.at_first)


class Made:
    """The objects of our classes that are made while it counts."""

    def __init__(self) -> None:
        self.found: dict[int, Any] = {}  # by id; each is kept, so that no id comes twice
        self._before: set[int] = set()

    def begin(self) -> None:
        gc.disable()
        tracked = gc.get_objects()
        ours = (one for one in (*tracked, *gc.get_referents(*tracked)) if _is_ours(type(one)))
        self._before = {id(one) for one in ours}
        sys.setprofile(self._called)

    def end(self) -> None:
        if sys.getprofile() is None:
            return
        sys.setprofile(None)
        # Objects of classes without an `__init__`. Python's collector tracks no struct that holds
        # plain values alone, so what the others refer to is looked at, too.
        tracked = gc.get_objects()
        for one in (*tracked, *gc.get_referents(*tracked)):
            if _is_ours(type(one)) and id(one) not in self._before:
                self.found[id(one)] = one
        gc.enable()

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_name == "__init__":
            one = frame.f_locals.get("self")
            if _is_ours(type(one)) and id(one) not in self._before:
                self.found[id(one)] = one


def _is_ours(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] == PACKAGE


async def counted(body: dict[str, Any]) -> Counter[str]:
    """Return the objects of an exchange by class. ``body``: of the request, beside its message."""
    upstream = Answering()
    services = build_services(from_mapping({"state": {"backend": "memory"}}), upstream=upstream)
    transport = httpx.ASGITransport(build_app(services))
    asked = {"model": "fast", "messages": [{"role": "user", "content": "Hello"}], **body}
    made = Made()
    async with (
        opened(services),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:4100") as client,
    ):
        for number in range(WARM + 1):
            if number == WARM:
                upstream.at_first = made.end
                made.begin()
            (await client.post("/v1/chat/completions", json=asked)).raise_for_status()
    return Counter(type(one).__qualname__ for one in made.found.values())


def main() -> None:
    log.configure(from_mapping({"observability": {"log_level": "error"}}).observability)
    for name, body in BODIES.items():
        made = asyncio.run(counted(body))
        print(f"{name}: {made.total()} objects")
        for kind, count in sorted(made.items(), key=lambda one: (-one[1], one[0])):
            print(f"  {count:3} {kind}")


if __name__ == "__main__":
    main()
