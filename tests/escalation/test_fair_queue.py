"""Sessions take turns for a tier's slots."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from mlx_stack_proxy.escalation.fair_queue import FairQueue, SharedLimit, Ticket


def entered(queue: FairQueue, *sessions: str) -> list[Ticket]:
    tickets = [Ticket(session) for session in sessions]
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
    queue = FairQueue(1)
    tickets = entered(queue, *arrivals)
    for session in order:
        (current,) = (ticket for ticket in tickets if ticket.granted)
        assert current is next(one for one in tickets if one.session == session)
        tickets.remove(current)
        queue.leave(current)


def test_keys_take_turns_before_sessions_do() -> None:
    """However many sessions a key names, another key waits for one slot of it at most."""
    queue = FairQueue(1)
    theirs = [Ticket(f"b{number}", "key-b") for number in range(30)]
    for ticket in theirs:
        queue.join(ticket)
    mine = [Ticket("a", "key-a"), Ticket("a2", "key-a")]
    for ticket in mine:
        queue.join(ticket)
    order = []
    for _ in range(5):
        (current,) = (one for one in (*mine, *theirs) if one.granted)
        order.append(current.session)
        queue.leave(current)
    assert order == ["b0", "b1", "a", "b2", "a2"]


def test_one_that_leaves_the_line_is_skipped_and_to_leave_twice_changes_nothing() -> None:
    queue = FairQueue(1)
    first, second, third = entered(queue, "a", "b", "c")
    queue.leave(second)
    assert (queue.in_use, queue.waiting) == (1, 1)
    queue.leave(first)
    queue.leave(first)
    assert (queue.in_use, queue.waiting, third.granted) == (1, 0, True)


def test_nobody_slips_past_those_who_wait() -> None:
    queue = FairQueue(2)
    entered(queue, "a", "a", "a")
    queue.slots = 3  # a slot that nobody has been told of
    assert not entered(queue, "b")[0].granted


def test_other_slots_go_to_those_who_wait_and_take_none_away() -> None:
    queue = FairQueue(1)
    tickets = entered(queue, "a", "b", "a", "c")
    queue.set_slots(3)
    assert granted(tickets) == "1110"
    queue.set_slots(1)
    assert granted(tickets) == "1110"
    for at, left in enumerate(["0110", "0010", "0001"]):
        queue.leave(tickets[at])
        assert granted(tickets) == left


def tiers(*slots: int) -> tuple[SharedLimit, list[FairQueue]]:
    shared = SharedLimit()
    return shared, [FairQueue(number, shared) for number in slots]


def test_a_limit_over_several_queues_counts_what_runs_already() -> None:
    shared, (fast, standard) = tiers(4, 4)
    cloud = FairQueue(1)
    tickets = entered(fast, "a", "b") + entered(standard, "c")
    shared.set_limit(1)
    tickets += entered(standard, "d")
    standard.set_slots(5)
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
        self.queue = FairQueue(2)
        self.granted: list[Ticket] = []
        self.waiting: list[Ticket] = []
        # How many turns other sessions had while a session was waiting, by session and other.
        self.passed: dict[str, dict[str, int]] = {}

    @rule(session=st.sampled_from("abc"))
    def enter(self, session: str) -> None:
        ticket = Ticket(session)
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
        self.places: list[tuple[FairQueue, Ticket]] = []
        self.above: int | None = None  # what ran already when the limit came

    @rule(data=st.data(), session=st.sampled_from("ab"))
    def enter(self, data: st.DataObject, session: str) -> None:
        queue = data.draw(st.sampled_from(self.queues))
        ticket = Ticket(session)
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
