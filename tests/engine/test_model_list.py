"""LiteLLM's list of models: asked for once, kept for a while, and refreshed when it is old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import respx

from mlx_stack_proxy.engine import model_list
from mlx_stack_proxy.engine.model_list import FRESH_SECONDS, RETRY_SECONDS, ModelList, names_in
from mlx_stack_proxy.engine.upstream import UpstreamError
from mlx_stack_proxy.settings import UpstreamSettings
from tests.support.clock import Clock
from tests.support.mocked_upstream import MockedUpstream
from tests.support.waiting import settled

MODELS = "http://litellm.test:4000/v1/models"
ALL = frozenset({"fast", "standard"})


def listing(*names: str) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}


@pytest.fixture
def clock() -> Clock:
    return Clock(0.0)


@pytest.fixture
def router() -> respx.MockRouter:
    return respx.MockRouter(assert_all_called=False)


@pytest.fixture
def make(router: respx.MockRouter, clock: Clock) -> Callable[..., ModelList]:
    def made(key: str | None = "k", handler: Any = None) -> ModelList:
        settings = UpstreamSettings(base_url="http://litellm.test:4000")
        upstream = MockedUpstream(settings, handler or router.async_handler)
        return ModelList(upstream, key, clock)

    return made


async def test_asked_once_and_kept(
    router: respx.MockRouter, make: Callable[..., ModelList], clock: Clock
) -> None:
    route = router.get(MODELS).respond(json=listing("fast", "standard"))
    models = make()
    assert await models.get(None) == ALL
    clock.now = FRESH_SECONDS - 1
    assert await models.get(None) == ALL
    assert route.call_count == 1


async def test_an_old_answer_is_given_while_a_new_one_is_asked_for(
    router: respx.MockRouter, make: Callable[..., ModelList], clock: Clock
) -> None:
    route = router.get(MODELS).respond(json=listing("fast", "standard"))
    models = make()
    await models.get(None)
    route.respond(json=listing("new"))
    clock.now = FRESH_SECONDS
    assert [await models.get(None) for _ in range(2)] == [ALL, ALL]
    await settled()
    assert route.call_count == 2  # once, however many looked
    assert await models.get(None) == {"new"}


async def test_many_at_once_ask_once(make: Callable[..., ModelList]) -> None:
    asked = 0
    answer = asyncio.Event()

    async def handler(request: httpx.Request) -> httpx.Response:
        nonlocal asked
        asked += 1
        await answer.wait()
        return httpx.Response(200, json=listing("fast", "standard"))

    models = make(handler=handler)
    waiting = [asyncio.create_task(models.get(None)) for _ in range(10)]
    await settled()
    waiting[0].cancel()  # that one has left doesn't take the answer from the others
    answer.set()
    assert await asyncio.gather(*waiting[1:]) == [ALL] * 9
    assert asked == 1


BAD: dict[str, Any] = {
    "refused": httpx.ConnectError("no"),
    "wrong key": httpx.Response(401, json={"error": "no"}),
    "trouble": httpx.Response(500),
    "HTML": httpx.Response(200, text="<html>"),
    "empty": httpx.Response(200),
    "no list": httpx.Response(200, json={"data": None}),
}


@pytest.mark.parametrize("name", BAD)
async def test_no_answer_is_asked_for_again_soon_but_not_at_once(
    name: str, router: respx.MockRouter, make: Callable[..., ModelList], clock: Clock
) -> None:
    bad = BAD[name]
    how = {"side_effect": bad} if isinstance(bad, Exception) else {"return_value": bad}
    route = router.get(MODELS).mock(**how)
    models = make()
    assert await models.get(None) is None
    clock.now = RETRY_SECONDS - 0.1
    assert await models.get(None) is None
    assert route.call_count == 1
    clock.now = RETRY_SECONDS
    route.mock(return_value=httpx.Response(200, json=listing("fast", "standard")))
    assert await models.get(None) == ALL


async def test_what_was_known_outlives_a_failure(
    router: respx.MockRouter, make: Callable[..., ModelList], clock: Clock
) -> None:
    route = router.get(MODELS).respond(json=listing("fast", "standard"))
    models = make()
    await models.get(None)
    route.respond(500)
    clock.now = FRESH_SECONDS
    assert await models.get(None) == ALL
    await settled()
    assert await models.get(None) == ALL
    assert route.call_count == 2
    clock.now += RETRY_SECONDS
    assert await models.get(None) == ALL
    await settled()
    assert route.call_count == 3


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
    key: str | None,
    clients: str | None,
    sent: str | None,
    router: respx.MockRouter,
    make: Callable[..., ModelList],
) -> None:
    route = router.get(MODELS).respond(json=listing())
    assert await make(key).get(clients) == frozenset()
    assert route.calls.last.request.headers.get("authorization") == sent


async def test_to_fetch_gives_litellms_own_answer(
    router: respx.MockRouter, make: Callable[..., ModelList]
) -> None:
    route = router.get(MODELS).respond(401, content=b"no")
    assert await make().fetch(None) == (401, b"no")
    route.mock(side_effect=httpx.ConnectError)
    with pytest.raises(UpstreamError):
        await make().fetch(None)


async def test_to_fetch_has_an_end(
    make: Callable[..., ModelList], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(model_list, "ASK_SECONDS", 0.0)
    with pytest.raises(TimeoutError):
        await make(handler=never).fetch(None)
    assert await make(handler=never).get(None) is None


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
    router: respx.MockRouter, make: Callable[..., ModelList], clock: Clock
) -> None:
    def by_key(request: httpx.Request) -> httpx.Response:
        names = {"Bearer a": ["fast"], "Bearer b": ["standard"]}.get(
            request.headers.get("authorization", "")
        )
        return httpx.Response(200, json=listing(*names)) if names else httpx.Response(401)

    router.get(MODELS).mock(side_effect=by_key)
    models = make(key=None)
    assert await models.get("Bearer a") == {"fast"}
    assert await models.get("Bearer b") == {"standard"}
    assert await models.get(None) is None
    clock.now = FRESH_SECONDS
    assert await models.get("Bearer a") == {"fast"}  # asks again, with that key
    await settled()
    assert await models.get("Bearer a") == {"fast"}
