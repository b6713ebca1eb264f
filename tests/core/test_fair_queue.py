"""Sessions take turns for a tier's slots."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from app.core.fair_queue import FairQueue, Ticket


def entered(queue: FairQueue, *sessions: str) -> list[Ticket]:
    tickets = [Ticket(session) for session in sessions]
    for ticket in tickets:
        queue.enter(ticket)
    return tickets


def served(queue: FairQueue, first: Ticket) -> str:
    """The sessions in the order in which they get their turn, one slot and all done at once."""
    order = []
    current = [first]
    while current:
        order.append(current[0].session)
        current = queue.leave(current[0])
    return "".join(order)


def test_free_slots_are_granted_at_once() -> None:
    queue = FairQueue(2)
    assert [ticket.granted for ticket in entered(queue, "a", "a", "a")] == [True, True, False]
    assert (queue.in_use, queue.waiting) == (2, 1)


@pytest.mark.parametrize(
    ("arrivals", "order"),
    [
        ("aaab", "aaba"),  # a holds the slot and waits first; then turns
        ("aaaabbc", "aabcaba"),
        ("abab", "abab"),
        ("abcabc", "abcabc"),
        ("aaaaaaaab", "aab" + "a" * 6),
    ],
)
def test_sessions_take_turns(arrivals: str, order: str) -> None:
    queue = FairQueue(1)
    assert served(queue, entered(queue, *arrivals)[0]) == order


def test_within_a_session_first_come_first_served() -> None:
    queue = FairQueue(1)
    first, *waiting = entered(queue, "a", "a", "a", "a")
    for ticket in waiting:
        assert queue.leave(first) == [ticket]
        first = ticket


def test_one_that_leaves_the_line_is_skipped() -> None:
    queue = FairQueue(1)
    first, second, third = entered(queue, "a", "b", "c")
    assert queue.leave(second) == []
    assert queue.waiting == 1
    assert queue.leave(first) == [third]


def test_to_leave_twice_changes_nothing() -> None:
    queue = FairQueue(1)
    first, second = entered(queue, "a", "b")
    queue.leave(first)
    assert queue.leave(first) == []
    assert (queue.in_use, queue.waiting, second.granted) == (1, 0, True)


def test_nobody_slips_past_those_who_wait() -> None:
    queue = FairQueue(2)
    entered(queue, "a", "a", "a")
    queue.slots = 3  # a slot that nobody has been told of
    assert not entered(queue, "b")[0].granted


class Line(RuleBasedStateMachine):
    """Whatever comes and goes: never over the slots, nobody forgotten, nobody starved."""

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
        self.queue.enter(ticket)
        (self.granted if ticket.granted else self.waiting).append(ticket)

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.granted))
        self.granted.remove(ticket)
        self._take(self.queue.leave(ticket))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.waiting))
        self.waiting.remove(ticket)
        assert self.queue.leave(ticket) == []

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

    @invariant()
    def agrees(self) -> None:
        queue = self.queue
        assert queue.in_use == len(self.granted) <= queue.slots
        assert queue.waiting == len(self.waiting)
        assert all(ticket.granted for ticket in self.granted)
        assert not any(ticket.granted for ticket in self.waiting)
        assert not self.waiting or queue.in_use == queue.slots  # no slot idles while some wait


TestLine = Line.TestCase
TestLine.settings = settings(max_examples=30, stateful_step_count=40)
