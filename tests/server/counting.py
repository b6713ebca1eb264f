"""Sessions and budgets: who asks, what the settings are called, what was counted and kept."""

from __future__ import annotations

import asyncio
import types
from typing import Any

from mlx_stack_proxy.token_budget.reservation import Reservation
from tests.support.replies import DONE, END, ROLE, TEXT, USAGE, data
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Reply, Wait

Json = dict[str, Any]
BUDGET = "reliability.token_budget"
USED = USAGE["total_tokens"]  # what `text_stream` says it used
AGENT = {"X-MLX-Stack-Session": "agent-one"}
OTHER = {"X-MLX-Stack-Session": "agent-two"}
_COUNTED = data({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}})
NO_LOOPS = {"reliability.loop_detection.enabled": False}  # they ask the same again and again


def held(go_on: asyncio.Event) -> Reply:
    """A reply that ends when it may."""
    return Reply.sse(ROLE, TEXT, Wait(go_on), END, _COUNTED, DONE)


def session(name: object) -> dict[str, str]:
    """The header of a session."""
    return {"X-MLX-Stack-Session": f"session-{name}"}


def budget(**rules: Any) -> Json:
    """Settings of `token_budget`."""
    return {f"{BUDGET}.{key}": value for key, value in rules.items()}


def hard(**rules: Any) -> Json:
    return {**NO_LOOPS, **budget(policy="hard_stop", **rules)}


async def session_of(proxy: RunningProxy, name: str = "agent-one") -> Json:
    """What the proxy knows of a session, of which it must know."""
    response = await proxy.client.get(f"/mlx-stack/sessions/{name}")
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


async def events_of(proxy: RunningProxy, kind: str) -> list[Json]:
    """The details of the events of a kind, oldest first."""
    found = (await proxy.client.get("/mlx-stack/events", params={"kind": kind})).json()
    return [event["detail"] for event in found["events"]]


def waiting() -> int:
    """How many requests wait until others' tokens come back."""
    return sum(_is_within(task.get_coro(), Reservation.make) for task in asyncio.all_tasks())


def _is_within(coroutine: Any, method: Any) -> bool:
    while coroutine is not None:
        if getattr(coroutine, "cr_code", None) is method.__code__:
            return isinstance(getattr(coroutine, "cr_await", None), types.CoroutineType) and (
                coroutine.cr_await.cr_code is asyncio.sleep.__code__
            )
        coroutine = getattr(coroutine, "cr_await", None)
    return False
