"""Each tier's queue: so many at once, sessions in turns, and an end to waiting."""

from __future__ import annotations

import asyncio

import httpx

from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.server.counting import session
from tests.server.polling import until_metric
from tests.support.replies import data, text_chunks, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import Call, Reply, ScriptedServer, Wait

ROLE, TEXT, END = (data(one) for one in text_chunks("ok"))


class Gates:
    """Every call waits at a gate of its own, and says so to whoever counts."""

    def __init__(self, upstream: ScriptedServer) -> None:
        self.gates: list[asyncio.Event] = []
        self.running = self.most = 0
        upstream.always(self.reply)

    def reply(self, _: Call) -> Reply:
        gate = asyncio.Event()
        self.gates.append(gate)
        self.running += 1
        self.most = max(self.most, self.running)

        async def done() -> None:
            self.running -= 1

        return Reply.sse(ROLE, TEXT, Wait(gate), done, END)


async def ask_many(proxy: RunningProxy, *sessions: str) -> list[asyncio.Task[httpx.Response]]:
    """One request after another, each in the queue before the next is sent."""
    tasks = []
    for number, name in enumerate(sessions):
        tasks.append(asyncio.create_task(ask(proxy, session(name), user=f"{name}{number}")))
        await until_metric(proxy, "mlx_stack_queue_depth", number + 1, tier="fast")
    return tasks


async def test_no_more_at_once_than_allowed(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"tiers.fast.max_concurrency": 2})
    gates = Gates(upstream)
    tasks = [asyncio.create_task(ask(proxy, session(str(number)))) for number in range(7)]
    await until_metric(proxy, "mlx_stack_queue_depth", 5, tier="fast")
    await until_metric(proxy, "mlx_stack_in_flight", 2, tier="fast")
    for number in range(7):
        await upstream.next_call()
        gates.gates[number].set()
    assert all(response.status_code == 200 for response in await asyncio.gather(*tasks))
    assert gates.most == 2


async def test_sessions_take_turns(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    """An agent with many requests can't starve another that has one."""
    proxy = await start_proxy({"tiers.fast.max_concurrency": 1})
    gates = Gates(upstream)
    first = asyncio.create_task(ask(proxy, session("greedy"), user="running"))
    await upstream.next_call()
    tasks = await ask_many(proxy, *["greedy"] * 6, "modest")
    order = []
    for number in range(8):
        if number:
            order.append((await upstream.next_call()).json()["user"])
        gates.gates[number].set()
    await asyncio.gather(first, *tasks)
    assert order.index("modest6") <= 1
    greedy = [name for name in order if name.startswith("greedy")]
    assert greedy == sorted(greedy), "within a session: first come, first served"


async def test_waiting_in_the_queue_is_not_the_models_silence(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(
        {
            "tiers.fast.max_concurrency": 1,
            "tiers.fast.first_token_timeout": 1,
            "tiers.fast.idle_timeout": 30,
        }
    )
    release = asyncio.Event()
    upstream.will(Reply.sse(ROLE, TEXT, Wait(release), END), text_stream("second"))
    first = asyncio.create_task(ask(proxy))
    await upstream.next_call()
    second = asyncio.create_task(ask(proxy))
    await until_metric(proxy, "mlx_stack_queue_depth", 1, tier="fast")
    # Longer than the second's first-token limit; nothing else can tell that this time has passed.
    asyncio.get_running_loop().call_later(1.3, release.set)
    assert (await first).status_code == 200
    assert (await second).status_code == 200


async def test_tiers_have_queues_of_their_own(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(
        {"tiers.fast.max_concurrency": 1, "tiers.standard.max_concurrency": 1}
    )
    gates = Gates(upstream)
    slow = asyncio.create_task(ask(proxy))
    await upstream.next_call()
    other = asyncio.create_task(ask(proxy, model="standard"))
    await upstream.next_call()
    gates.gates[1].set()
    assert (await other).headers["x-mlx-stack-tier"] == "standard"
    gates.gates[0].set()
    assert (await slow).headers["x-mlx-stack-tier"] == "fast"


async def test_a_failed_attempt_gives_its_slot_back(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy({"tiers.fast.max_concurrency": 1})
    for _ in range(3):
        upstream.will(Reply.sse(ROLE))
        assert (await ask(proxy)).status_code == 502
    upstream.will(text_stream("fine"))
    assert (await ask(proxy)).status_code == 200
