"""LiteLLM's list of models: asked for once, kept for a while, and refreshed when it is old."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mlx_stack_proxy.engine import model_list
from mlx_stack_proxy.engine.headers import RawHeaders
from mlx_stack_proxy.engine.model_list import FRESH_SECONDS, RETRY_SECONDS, ModelList, names_in
from mlx_stack_proxy.engine.upstream import UpstreamError
from tests.support.clock import Clock
from tests.support.waiting import settled

ALL = frozenset({"fast", "standard"})
REFUSED = UpstreamError("the connection was refused", unreachable=True)
FOREVER = None  # an answer that never comes


def listing(*names: str) -> tuple[int, bytes]:
    models = [{"id": name, "object": "model"} for name in names]
    return 200, json.dumps({"object": "list", "data": models}).encode()


BOTH = listing("fast", "standard")


class Litellm:
    """Gives each key its answer, or all the same one. ``asked``: the keys that came."""

    def __init__(self) -> None:
        self.answer: Any = BOTH
        self.of_keys: dict[str, Any] = {}
        self.asked: list[str | None] = []
        self.free = asyncio.Event()
        self.free.set()

    async def fetch(self, method: str, target: str, headers: RawHeaders) -> tuple[int, bytes]:
        assert (method, target) == ("GET", "/v1/models")
        key = dict(headers).get(b"authorization", b"").decode() or None
        self.asked.append(key)
        await self.free.wait()
        answer = self.of_keys.get(key or "", self.answer)
        if answer is FOREVER:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        status, body = answer
        return status, body


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def litellm() -> Litellm:
    return Litellm()


@pytest.fixture
def models(litellm: Any, clock: Clock) -> ModelList:
    return ModelList(litellm, "k", clock)


async def test_an_old_answer_is_given_while_a_new_one_is_asked_for(
    litellm: Litellm, models: ModelList, clock: Clock
) -> None:
    assert await models.get(None) == ALL
    litellm.answer = listing("new")
    clock.now = FRESH_SECONDS - 1
    assert await models.get(None) == ALL
    assert len(litellm.asked) == 1
    clock.now = FRESH_SECONDS
    assert [await models.get(None) for _ in range(2)] == [ALL, ALL]
    await settled()
    assert len(litellm.asked) == 2, "once, however many looked"
    assert await models.get(None) == {"new"}


async def test_many_at_once_ask_once(litellm: Litellm, models: ModelList) -> None:
    litellm.free.clear()
    waiting = [asyncio.create_task(models.get(None)) for _ in range(10)]
    await settled()
    waiting[0].cancel()  # that one has left doesn't take the answer from the others
    litellm.free.set()
    assert await asyncio.gather(*waiting[1:]) == [ALL] * 9
    assert len(litellm.asked) == 1


@pytest.mark.parametrize("bad", [REFUSED, (401, b"{}"), (500, BOTH[1]), (200, b"<html>")], ids=str)
async def test_no_answer_is_asked_for_again_soon_but_not_at_once(
    bad: Any, litellm: Litellm, models: ModelList, clock: Clock
) -> None:
    litellm.answer = bad
    assert await models.get(None) is None
    clock.now = RETRY_SECONDS - 0.1
    assert await models.get(None) is None
    assert len(litellm.asked) == 1
    clock.now = RETRY_SECONDS
    litellm.answer = BOTH
    assert await models.get(None) == ALL


async def test_what_was_known_outlives_a_failure(
    litellm: Litellm, models: ModelList, clock: Clock
) -> None:
    await models.get(None)
    litellm.answer = (500, b"")
    for asked, wait in ((2, FRESH_SECONDS), (3, RETRY_SECONDS)):
        clock.now += wait
        assert await models.get(None) == ALL
        await settled()
        assert await models.get(None) == ALL
        assert len(litellm.asked) == asked


@pytest.mark.parametrize(
    ("key", "clients", "sent"),
    [
        ("ours", None, "Bearer ours"),
        ("ours", "Bearer theirs", "Bearer ours"),
        (None, "Bearer theirs", "Bearer theirs"),
        (None, None, None),
    ],
)
async def test_with_our_key_or_else_the_clients(
    key: str | None, clients: str | None, sent: str | None, litellm: Any, clock: Clock
) -> None:
    litellm.answer = listing()
    assert await ModelList(litellm, key, clock).get(clients) == frozenset()
    assert litellm.asked == [sent]


async def test_to_fetch_gives_litellms_own_answer(litellm: Litellm, models: ModelList) -> None:
    litellm.answer = (401, b"no")
    assert await models.fetch(None) == (401, b"no")
    litellm.answer = REFUSED
    with pytest.raises(UpstreamError):
        await models.fetch(None)


async def test_to_fetch_has_an_end(
    litellm: Litellm, models: ModelList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_list, "ASK_SECONDS", 0.0)
    litellm.answer = FOREVER
    with pytest.raises(TimeoutError):
        await models.fetch(None)
    assert await models.get(None) is None


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b'{"data": [{"id": "a"}, {"id": "b"}, {"id": "a"}]}', {"a", "b"}),
        (b'{"data": []}', set()),
        (b'{"data": [{"id": 1}, {}, null, "a", {"id": "b"}]}', {"b"}),
        (b'{"data": {}}', None),
        (b"[]", None),
        (b"null", None),
        (b"", None),
        (b"<html>", None),
    ],
)
def test_names_in_a_body(body: bytes, names: set[str] | None) -> None:
    assert names_in(body) == names


async def test_without_a_key_of_ours_each_client_has_its_own_list(
    litellm: Any, clock: Clock
) -> None:
    litellm.of_keys = {"Bearer a": listing("fast"), "Bearer b": listing("standard")}
    litellm.answer = (401, b"")
    models = ModelList(litellm, None, clock)
    assert await models.get("Bearer a") == {"fast"}
    assert await models.get("Bearer b") == {"standard"}
    assert await models.get(None) is None
    clock.now = FRESH_SECONDS
    assert await models.get("Bearer a") == {"fast"}
    await settled()
    assert litellm.asked[-1] == "Bearer a", "it is asked again with that key"
