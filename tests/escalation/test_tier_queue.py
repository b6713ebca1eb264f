"""Sessions take turns for a tier's slots, wait as long as is allowed, and give them back."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mlx_stack_proxy.escalation.tier_queue import (
    QueueTimeout,
    SharedLimit,
    Ticket,
    TierQueue,
    TierQueues,
)
from mlx_stack_proxy.settings import TierSettings
from tests.support.waiting import settled


def tier(slots: int = 1, local: bool = True, timeout: float = 60) -> TierSettings:
    return TierSettings(model="m", max_concurrency=slots, local=local, queue_timeout=timeout)


def queue_of(slots: int = 1, timeout: float = 60) -> TierQueue:
    return TierQueue(tier(slots, timeout=timeout))


def entered(queue: TierQueue, *sessions: str, key: str = "") -> list[Ticket]:
    tickets = [Ticket(queue, session, key) for session in sessions]
    for ticket in tickets:
        queue.join(ticket)
    return tickets


def granted(tickets: list[Ticket]) -> str:
    return "".join("01"[ticket.granted] for ticket in tickets)


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        ("aaab", "aaba"),  # a holds the slot and waits first; then turns
        ("aaaabbc", "aabcaba"),
        ("abcabc", "abcabc"),
        ("aaaaaaaab", "aab" + "a" * 6),
    ],
)
def test_sessions_take_turns_and_within_one_first_come_first_served(
    arrivals: str, order: str
) -> None:
    queue = queue_of(1)
    tickets = entered(queue, *arrivals)
    for session in order:
        (current,) = (ticket for ticket in tickets if ticket.granted)
        assert current is next(one for one in tickets if one.session == session)
        tickets.remove(current)
        queue.leave(current)


def test_keys_take_turns_before_sessions_do() -> None:
    """However many sessions a key names, another key waits for one slot of it at most."""
    queue = queue_of(1)
    theirs = entered(queue, *(f"b{number}" for number in range(30)), key="key-b")
    mine = entered(queue, "a", "a2", key="key-a")
    order = []
    for _ in range(5):
        (current,) = (one for one in (*mine, *theirs) if one.granted)
        order.append(current.session)
        queue.leave(current)
    assert order == ["b0", "b1", "a", "b2", "a2"]


def test_one_that_leaves_the_line_is_skipped_and_to_leave_twice_changes_nothing() -> None:
    queue = queue_of(1)
    first, second, third = entered(queue, "a", "b", "c")
    queue.leave(second)
    assert (queue.in_use, queue.waiting) == (1, 1)
    queue.leave(first)
    queue.leave(first)
    assert (queue.in_use, queue.waiting, third.granted) == (1, 0, True)


def test_nobody_slips_past_those_who_wait() -> None:
    queue = queue_of(2)
    entered(queue, "a", "a", "a")
    queue.slots = 3  # a slot that nobody has been told of
    assert not entered(queue, "b")[0].granted


def test_other_slots_go_to_those_who_wait_and_take_none_away() -> None:
    queue = queue_of(1)
    tickets = entered(queue, "a", "b", "a", "c")
    queue.adapt(tier(3))
    assert granted(tickets) == "1110"
    queue.adapt(tier(1))
    assert granted(tickets) == "1110"
    for at, left in enumerate(["0110", "0010", "0001"]):
        queue.leave(tickets[at])
        assert granted(tickets) == left


def tiers(*slots: int) -> tuple[SharedLimit, list[TierQueue]]:
    shared = SharedLimit()
    return shared, [TierQueue(tier(number), shared) for number in slots]


def test_a_limit_over_several_queues_counts_what_runs_already() -> None:
    shared, (fast, standard) = tiers(4, 4)
    cloud = queue_of(1)
    tickets = entered(fast, "a", "b") + entered(standard, "c")
    shared.set_limit(1)
    tickets += entered(standard, "d")
    standard.adapt(tier(5))
    assert granted(tickets) == "1110"
    for at, (queue, left) in enumerate([(fast, "0110"), (fast, "0010"), (standard, "0001")]):
        queue.leave(tickets[at])
        assert granted(tickets) == left
    assert entered(cloud, "a")[0].granted  # another queue knows nothing of it


def test_one_at_a_time_and_the_queues_take_turns() -> None:
    shared, (fast, standard) = tiers(4, 4)
    shared.set_limit(1)
    waiting = [*entered(fast, "a", "a", "a"), *entered(standard, "b", "b")]
    order = ""
    while current := next((ticket for ticket in waiting if ticket.granted), None):
        assert fast.in_use + standard.in_use == 1
        order += current.session
        waiting.remove(current)
        (fast if current.session == "a" else standard).leave(current)
    assert (order, waiting) == ("aabab", [])


def test_a_limit_that_is_lifted_lets_all_go_that_have_a_slot() -> None:
    shared, (fast, standard) = tiers(2, 1)
    shared.set_limit(1)
    tickets = [*entered(fast, "a", "b", "c"), *entered(standard, "d", "e")]
    assert granted(tickets) == "10000"
    shared.set_limit(None)
    assert granted(tickets) == "11010"
    assert (fast.in_use, standard.in_use) == (2, 1)


class Line(RuleBasedStateMachine):
    """Whatever comes and goes: first come, first served in a session, and nobody starved."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = queue_of(2)
        self.granted: list[Ticket] = []
        self.waiting: list[Ticket] = []
        # How many turns other sessions had while a session was waiting, by session and other.
        self.passed: dict[str, dict[str, int]] = {}

    @rule(session=st.sampled_from("abc"))
    def enter(self, session: str) -> None:
        ticket = Ticket(self.queue, session)
        if not any(other.session == session for other in self.waiting):
            self.passed[session] = {}
        self.queue.join(ticket)
        (self.granted if ticket.granted else self.waiting).append(ticket)

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.granted))
        self.granted.remove(ticket)
        self.queue.leave(ticket)
        self._take([other for other in self.waiting if other.granted])

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(ticket)
        self.queue.leave(ticket)

    def _take(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            own = [other for other in self.waiting if other.session == ticket.session]
            assert own[0] is ticket  # first come, first served within a session
            self.waiting.remove(ticket)
            self.granted.append(ticket)
            self.passed[ticket.session] = {}
            for other in {one.session for one in self.waiting} - {ticket.session}:
                turns = self.passed[other]
                turns[ticket.session] = turns.get(ticket.session, 0) + 1
                # No session gets two turns while another waits.
                assert turns[ticket.session] <= 1


class Lines(RuleBasedStateMachine):
    """Queues with a common limit that comes and goes: none over it, and no free slot idles."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.queues = tiers(2, 1, 3)
        self.places: list[tuple[TierQueue, Ticket]] = []
        self.above: int | None = None  # what ran already when the limit came

    @rule(data=st.data(), session=st.sampled_from("ab"))
    def enter(self, data: st.DataObject, session: str) -> None:
        queue = data.draw(st.sampled_from(self.queues))
        ticket = Ticket(queue, session)
        queue.join(ticket)
        self.places.append((queue, ticket))

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(self.places))
        self.places.remove(place)
        queue, ticket = place
        queue.leave(ticket)

    @rule(limit=st.sampled_from([None, 1, 2]))
    def change(self, limit: int | None) -> None:
        self.shared.set_limit(limit)
        self.above = self.running

    @property
    def running(self) -> int:
        return sum(queue.in_use for queue in self.queues)

    @invariant()
    def agrees(self) -> None:
        limit = self.shared.limit
        if limit is not None and self.above is not None:
            assert self.running <= max(limit, self.above)
            self.above = max(limit, self.running)  # it may shrink to the limit, never grow
        for queue in self.queues:
            own = [ticket for place, ticket in self.places if place is queue]
            assert queue.in_use == sum(ticket.granted for ticket in own) <= queue.slots
            assert queue.waiting == sum(not ticket.granted for ticket in own)
            full = queue.in_use == queue.slots or self.shared.is_full
            assert not queue.waiting or full


TestLine = Line.TestCase
TestLine.settings = settings(max_examples=30, stateful_step_count=40)
TestLines = Lines.TestCase
TestLines.settings = settings(max_examples=30, stateful_step_count=40)


# Waiting


async def enter(line: TierQueue, session: str) -> Ticket:
    return await Ticket(line, session).__aenter__()


def waiting(line: TierQueue, *sessions: str) -> list[asyncio.Task[Ticket]]:
    return [asyncio.create_task(enter(line, session)) for session in sessions]


async def test_a_free_slot_is_there_at_once_and_goes_to_the_next() -> None:
    line = queue_of(slots=2)
    first, second = await enter(line, "a"), await enter(line, "a")
    (third,) = waiting(line, "b")
    await settled()
    assert (line.in_use, line.waiting, third.done()) == (2, 1, False)
    line.leave(first)
    assert (await third).granted
    assert (line.in_use, line.waiting) == (2, 0)
    line.leave(second)
    line.leave(await third)
    assert (line.in_use, line.waiting) == (0, 0)


async def test_a_wait_that_takes_too_long() -> None:
    line = queue_of(timeout=0)
    holder = await enter(line, "a")  # without a wait there is no limit
    with pytest.raises(QueueTimeout) as caught:
        await enter(line, "b")
    assert caught.value.seconds == 0
    assert str(caught.value) == "no free place within 0 s"
    assert (line.in_use, line.waiting) == (1, 0)
    line.leave(holder)
    line.leave(await enter(line, "b"))
    assert line.in_use == 0


async def test_one_that_leaves_in_the_moment_of_its_turn_hands_it_on() -> None:
    line = queue_of()
    holder = await enter(line, "a")
    second, third = waiting(line, "b", "c")
    await settled()
    line.leave(holder)  # the slot is b's from here on, though b has not run yet
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await third).session == "c"
    assert (line.in_use, line.waiting) == (1, 0)


async def test_a_slot_that_comes_with_the_timeout_is_taken() -> None:
    line = queue_of(timeout=0)
    holder = await enter(line, "a")
    loop = asyncio.get_running_loop()
    # The timeout is due when the loop runs next; the slot comes in the same round.
    loop.call_soon(line.leave, holder)
    ticket = await enter(line, "b")
    assert ticket.granted
    assert line.in_use == 1


# Other limits, while requests run and wait


async def test_other_tiers_leave_what_runs_where_it_is() -> None:
    queues = TierQueues({"fast": tier(), "gone": tier()})
    fast, gone = queues["fast"], queues["gone"]
    assert fast is not None and gone is not None
    holders = [await enter(fast, "a"), await enter(gone, "a")]
    waits = waiting(fast, "b") + waiting(gone, "b")
    await settled()
    queues.adapt({"fast": tier(2), "new": tier()})
    assert (await waits[0]).granted
    assert queues.readings() == [("fast", 2, 0), ("new", 0, 0)]
    assert queues["gone"] is gone  # for exchanges that began with it
    assert queues["other-model"] is None
    gone.leave(holders[1])
    assert (await waits[1]).granted
    queues.adapt({"gone": tier(3)})
    assert queues.readings() == [("gone", 1, 0)]


async def test_a_tier_that_moves_to_the_cloud_is_not_held_to_one_request() -> None:
    queues = TierQueues({"fast": tier(2), "other": tier(2)})
    before = queues["fast"]
    queues.shed(True)
    queues.adapt({"fast": tier(2, local=False), "other": tier(2)})
    after = queues["fast"]
    assert after is not None and after is not before
    assert [(await enter(after, "a")).granted, (await enter(after, "b")).granted] == [True, True]
    queues.adapt({"fast": tier(2), "other": tier(2)})
    back = queues["fast"]
    assert back is not None
    await enter(back, "a")
    (waits,) = waiting(back, "b")
    await settled()
    assert not waits.done()
    queues.shed(False)
    assert (await waits).granted


async def test_another_longest_wait_is_for_those_who_come() -> None:
    line = queue_of(timeout=60)
    await enter(line, "a")
    (old,) = waiting(line, "b")
    await settled()
    line.adapt(tier(timeout=0))
    with pytest.raises(QueueTimeout):
        await enter(line, "c")
    assert not old.done()
    old.cancel()
