"""The limits of an exchange: signs of life, time limits, and questions to a silent server.

The test moves the clock; upstream and the client are scripted.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from mlx_stack_proxy.driver.time_limits import TimeLimits
from mlx_stack_proxy.engine.verdicts import LEFT_OPEN, Failure
from mlx_stack_proxy.settings_source import from_mapping
from tests.engine.exchanges import attempt, client_request, exchange
from tests.support.replies import chunk, data, usage_chunk

LIMITS = {"first_token_timeout": 30, "idle_timeout": 10, "tool_silence_timeout": 5}
TIERS = {"fast": {"model": "m", **LIMITS}, "standard": {"model": "n"}}


class Answer:
    """The client's side. ``busy``: it has not taken yet what it was sent."""

    def __init__(self) -> None:
        self.busy = self.encoding = False
        self.downstream = SimpleNamespace(started=True)
        self.last_write = 0.0
        self.signs: list[float] = []

    def send_sign_of_life(self, now: float) -> None:
        self.last_write = now
        self.signs.append(now)


async def never() -> Any:
    """A client that sends nothing more."""


class Timed:
    """An exchange that began at 0 s, with a call that did so, too."""

    def __init__(
        self, *, alive: bool = True, leaves: bool = False, stream: bool = True, **tier: Any
    ) -> None:
        tiers = {**TIERS, "fast": {**TIERS["fast"], **tier}}
        settings = from_mapping({"tiers": tiers, "stream": {"keepalive_seconds": 4}})
        self.whole = exchange(client_request(stream=stream), patience=100.0)
        self.attempt = attempt(self.whole)
        self.attempt.request.body["stream"] = True
        self.answer = Answer()
        self.asked: list[str] = []
        self.looks: list[float] = []

        async def answers(url: str, seconds: float) -> bool:
            self.asked.append(url)
            return alive

        async def is_alive(seconds: float) -> bool:
            return True

        def leaves_silent(verdict: Failure, now: float) -> bool:
            self.looks.append(now)
            return leaves

        upstream = SimpleNamespace(answers=answers, is_alive=is_alive)
        services: Any = SimpleNamespace(settings=settings, upstream=upstream)
        answer: Any = self.answer
        self.now = 0.0
        self.limits = TimeLimits(never, services, self.whole, answer, leaves_silent)
        loop: Any = SimpleNamespace(time=lambda: self.now)
        self.limits._loop = loop
        self.limits.begin_call(self.attempt, 0.0)

    def hear(self, now: float, *payloads: Any) -> None:
        self.attempt.feed(b"".join(map(data, payloads)))
        self.limits.note_bytes(now)

    async def tick(self, now: float) -> Any:
        """The verdict of a look; None: no limit is reached."""
        self.now = now
        self.due = self.limits.look(now)
        await asyncio.sleep(0)  # a question is asked and answered
        return None if isinstance(self.due, float) else self.due


TEXT, FINISH = chunk({"content": "a"}), chunk({}, "stop")


async def test_signs_of_life_go_out_in_silence() -> None:
    timed = Timed()
    for now in (3.9, 4.0, 7.9, 8.0):
        await timed.tick(now)
    assert timed.answer.signs == [4.0, 8.0]
    whole = Timed(stream=False)
    await whole.tick(8.0)
    assert whole.answer.signs == [], "a reply in one piece has no place for them"


async def test_no_sign_of_life_is_made_while_a_thread_writes_the_reply() -> None:
    """The dialects' encoders number their events, and begin a stream once."""
    timed = Timed()
    timed.answer.encoding = True
    assert await looked_at(timed, 4.0) == 4.0, "looked at again soon"
    assert timed.answer.signs == []
    timed.answer.encoding = False
    await timed.tick(4.2)
    assert timed.answer.signs == [4.2]


async def test_after_the_call_only_the_clients_patience_counts() -> None:
    timed = Timed()
    timed.limits.end_call()
    assert await timed.tick(99.0) is None
    found = await timed.tick(100.0)
    assert found.fault == "nobody" and found.final


async def test_a_finished_reply_is_left_open_when_the_clients_patience_ends() -> None:
    timed = Timed()
    timed.hear(95.0, TEXT, FINISH)
    assert await timed.tick(100.0) == LEFT_OPEN


async def test_a_slow_client_is_no_silence_of_the_tiers() -> None:
    timed = Timed(total_timeout=60)
    timed.hear(1.0, TEXT)
    timed.answer.busy = True
    assert await timed.tick(59.0) is None
    assert timed.answer.signs == []
    assert (await timed.tick(60.0)).fault == "nobody"


async def test_a_silent_tiers_server_is_asked() -> None:
    timed = Timed(health_url="http://127.0.0.1:9/health")
    await timed.tick(19.9)
    assert timed.asked == []
    await timed.tick(20.0)
    await timed.tick(39.0)  # it has answered: not yet again
    assert timed.asked == ["http://127.0.0.1:9/health"]


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_model_that_hangs_is_left_if_something_better_follows(leaves: bool) -> None:
    timed = Timed(leaves=leaves, health_url="http://127.0.0.1:9/health", total_timeout=1000)
    found = [await timed.tick(now) for now in (89.0, 90.0, 90.2)]
    assert timed.looks[0] == 90.0, "nine tenths of its client's patience"
    assert (found[1] is not None and found[1].kind == "silent") is leaves
    assert (found[2] is None) is not leaves, "asked again: its queue may have room then"


async def test_a_second_opinion_has_its_time() -> None:
    timed = Timed()
    timed.limits._opinion_until = 20.0
    assert await timed.tick(19.9) is None
    assert (await timed.tick(20.0)).fault == "nobody"
    timed.limits.end_call()
    assert await timed.tick(21.0) is None


ROLE = chunk({"role": "assistant", "content": ""})
EMPTY = [
    ROLE,
    chunk({}),
    chunk({"content": ""}, index=-1),
    {"choices": []},
    {"usage": {"prompt_tokens": 1}, "choices": []},
]


@pytest.mark.parametrize("empty", [*EMPTY, b": still here\n\n"], ids=str)
async def test_only_content_counts_as_heard(empty: Any) -> None:
    """Whatever else a server sends without end, it is silent."""

    def drip(timed: Timed, now: float) -> None:
        timed.hear(now, *([] if isinstance(empty, bytes) else [empty]))
        if isinstance(empty, bytes):
            timed.attempt.feed(empty)

    waits = Timed()
    for now in range(1, 30):
        drip(waits, now)
        assert await waits.tick(now) is None
    drip(waits, 30)
    assert "nothing came within 30 s" in (await waits.tick(30.0)).message
    writes = Timed()
    writes.hear(5.0, TEXT)
    for now in range(5, 15):
        drip(writes, now)
        assert await writes.tick(now) is None
    assert "nothing more came for 10 s" in (await writes.tick(15.0)).message
    ends = Timed(idle_timeout=60)
    ends.hear(5.0, TEXT)
    await ends.tick(5.0)
    ends.hear(10.0, FINISH)
    for now in range(10, 20):
        drip(ends, now)
        assert await ends.tick(now) is None
    assert await ends.tick(20.0) == LEFT_OPEN


@pytest.mark.parametrize(
    "delta",
    [
        {"content": "a"},
        {"reasoning": "a"},
        {"refusal": "a"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "a"}}]},
        {"audio": {"data": "a"}},
    ],
    ids=str,
)
async def test_each_piece_of_content_ends_a_silence(delta: Any) -> None:
    timed = Timed()
    for now in range(5, 200, 5):
        timed.hear(now, chunk(delta))
        deadlines = timed.limits._deadlines
        assert deadlines is not None
        await timed.tick(now)
        assert deadlines.check(now + 9.9) is None
    assert deadlines.check(now + 10.0) is not None


async def test_a_look_says_when_the_next_limit_is_due() -> None:
    assert (await looked_at(Timed(), 1.0)) == 4.0, "a sign of life"
    timed = Timed(stream=False)
    assert (await looked_at(timed, 1.0)) == 30.0, "the first content"
    timed.hear(5.0, TEXT)
    assert (await looked_at(timed, 6.0)) == 15.0, "further content"
    timed.hear(7.0, FINISH, usage_chunk())
    assert (await looked_at(timed, 7.0)) == 8.0, "the end of the stream"
    timed.limits.end_call()
    assert (await looked_at(timed, 9.0)) == 100.0, "the client's patience"


async def looked_at(timed: Timed, now: float) -> float:
    assert await timed.tick(now) is None
    return float(timed.due)


async def test_however_seldom_it_is_looked_only_content_puts_the_limit_off() -> None:
    timed = Timed(stream=False)
    timed.hear(5.0, TEXT)
    timed.hear(14.0, ROLE)
    assert (await looked_at(timed, 14.5)) == 15.0
    assert "nothing more came" in (await timed.tick(15.0)).message


async def test_what_brings_a_limit_nearer_is_looked_at_soon() -> None:
    timed = Timed()
    looks: list[str] = []
    timed.limits.look_soon = lambda: looks.append("soon")  # type: ignore[method-assign]
    for payloads in ([ROLE], [TEXT], [TEXT], [FINISH], [usage_chunk()]):
        timed.hear(1.0, *payloads)
    assert len(looks) == 3, "content, the end, the usage"
