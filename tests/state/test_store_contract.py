"""What every store does, whichever backend it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mlx_stack_proxy.engine.session_id import digest
from mlx_stack_proxy.state import database, redis
from mlx_stack_proxy.state.store import (
    MAX_TOKENS,
    BreakerState,
    Change,
    EventQuery,
    Limit,
    ReservationRefused,
    Reserved,
    SessionState,
    Settlement,
    Sticky,
    Store,
)
from tests.state.conftest import EVENTS_TTL, MAX_EVENTS, MAX_SESSIONS, TTL, keep_house
from tests.state.spending import NOW, ONE_TURN, hour_limit, session_limit, spend, used
from tests.support.storing import add_events, commit, save_breaker, settle

# Sessions


async def test_a_session_nobody_has_seen_is_new(store: Store) -> None:
    assert await store.load("a", NOW) == SessionState("a", first_seen=NOW, last_seen=NOW)
    assert (await store.sessions(NOW, limit=0)).number == 0
    assert await store.sessions(NOW) == []
    assert store.health.sentence is None


async def test_what_is_committed_is_loaded(store: Store) -> None:
    sticky = {"auto": Sticky("standard", NOW + 300)}
    delta = Change(turns=2, tier="fast", sticky=sticky)
    await commit(store, "a", delta, NOW)
    await commit(store, "b", ONE_TURN, NOW)
    assert await store.load("a", NOW + 5) == SessionState(
        "a",
        turns=2,
        tier="fast",
        sticky=sticky,
        first_seen=NOW,
        last_seen=NOW,
    )
    assert (await store.load("b", NOW)).turns == 1


async def test_parallel_deltas_lose_nothing(store: Store) -> None:
    async def exchange(number: int) -> None:
        await store.load("a", NOW)
        await asyncio.sleep(0)
        sticky = {f"model-{number}": Sticky("standard", NOW + 100 + number)}
        await commit(store, "a", Change(turns=1, sticky=sticky), NOW + number)

    await asyncio.gather(*(exchange(number) for number in range(20)))
    found = await store.load("a", NOW)
    assert found.turns == 20
    assert len(found.sticky) == 20
    assert (found.first_seen, found.last_seen) == (NOW, NOW + 19)


async def test_a_tier_stays_until_there_is_another(store: Store) -> None:
    await commit(store, "a", Change(tier="fast"), NOW)
    await commit(store, "a", ONE_TURN, NOW)
    assert (await store.load("a", NOW)).tier == "fast"
    await commit(store, "a", Change(tier="standard"), NOW)
    assert (await store.load("a", NOW)).tier == "standard"


async def test_sticky_tiers_are_set_and_replaced_each_by_itself(store: Store) -> None:
    one, two = Sticky("standard", NOW + 1), Sticky("longctx", NOW + 2)
    await commit(store, "a", Change(sticky={"auto": one, "fast": one}), NOW)
    await commit(store, "a", Change(sticky={"auto": two}), NOW)
    assert (await store.load("a", NOW)).sticky == {"auto": two, "fast": one}


async def test_a_sticky_tier_that_has_ended_is_forgotten(store: Store) -> None:
    one, two = Sticky("standard", NOW + 10), Sticky("longctx", NOW + 30)
    await commit(store, "a", Change(sticky={"auto": one}), NOW)
    assert (await store.load("a", NOW + 9)).sticky == {"auto": one}
    assert (await store.load("a", NOW + 10)).sticky == {}
    await commit(store, "a", Change(sticky={"fast": two}), NOW + 20)
    # Not only hidden: looked at from before its end, it is not there any more.
    assert (await store.load("a", NOW)).sticky == {"fast": two}


async def test_the_digests_of_the_last_text_replies_are_kept(store: Store) -> None:
    for number in range(5):
        change = Change(turns=1, reply=f"{number} digest", replies_kept=3)
        await commit(store, "a", change, NOW + number)
    await commit(store, "a", ONE_TURN, NOW + 9)
    await commit(store, "b", ONE_TURN, NOW + 9)
    found = await store.load("a", NOW + 9)
    assert found.replies == ("2 digest", "3 digest", "4 digest")
    assert (await store.load("b", NOW + 9)).replies == ()
    await store.delete("a")
    assert (await store.load("a", NOW + 9)).replies == ()


async def test_who_asked_last_is_known(store: Store) -> None:
    for number, (name, agent) in enumerate((("a", "aider"), ("b", "codex"), ("c", "codex"))):
        change = Change(turns=1, agent=agent, request_id=f"r{number}")
        await commit(store, name, change, NOW + number)
    await commit(store, "a", Change(turns=1), NOW + 5)  # of nobody: who asked before stays
    found = await store.load("a", NOW + 5)
    assert (found.agent, found.request_id) == ("aider", "r0")
    assert [one.session for one in await store.sessions(NOW + 5, agent="codex")] == ["c", "b"]
    assert [one.session for one in await store.sessions(NOW + 5, 1, 5, "codex")] == ["b"]
    assert (await store.sessions(NOW + 5, agent="codex", limit=0)).number == 2
    assert await store.sessions(NOW + 5, agent="nobody") == []
    await commit(store, "b", Change(turns=1, agent="aider", request_id="r9"), NOW + 6)
    found = await store.load("b", NOW + 6)
    assert (found.agent, found.request_id) == ("aider", "r9")


async def test_a_late_commit_does_not_turn_back_the_clock(store: Store) -> None:
    await commit(store, "a", ONE_TURN, NOW)
    await commit(store, "a", ONE_TURN, NOW - 50)
    assert (await store.load("a", NOW)).last_seen == NOW


@pytest.mark.parametrize(("idle", "turns"), [(TTL, 1), (TTL + 1, 0)])
async def test_a_session_idle_for_too_long_is_new(store: Store, idle: float, turns: int) -> None:
    await commit(store, "a", ONE_TURN, NOW)
    await spend(store, session_limit(None), 7)
    found = await store.load("a", NOW + idle)
    assert (found.turns, found.used) == (turns, 7 * turns)
    assert found.first_seen == (NOW if turns else NOW + idle)
    await commit(store, "a", ONE_TURN, NOW + idle)
    assert (await store.load("a", NOW + idle)).turns == turns + 1


@pytest.mark.parametrize("how", ["idle", "one too many"])
async def test_what_sub_agents_spend_outlives_their_parents_own_use(store: Store, how: str) -> None:
    await commit(store, "a", ONE_TURN, NOW)
    await spend(store, session_limit(None), 7)
    await spend(store, session_limit(None), 5, NOW + TTL - 1)  # a sub-agent's
    if how == "one too many":
        for number in range(MAX_SESSIONS):
            await commit(store, f"s{number}", ONE_TURN, NOW + TTL - 1)
        await keep_house(store)
        assert (await store.load("a", NOW + TTL - 1)).turns == 0
    found = await store.load("a", NOW + TTL + 1)
    assert (found.turns, found.used) == (0, 12)
    await commit(store, "b", ONE_TURN, NOW + TTL + 2)
    assert await used(store, session_limit(None), NOW + TTL + 3) == 12
    assert await used(store, session_limit(None), NOW + 2 * TTL) == 0


async def test_a_session_deleted_is_forgotten_with_its_counts(store: Store) -> None:
    await commit(store, "a", Change(turns=1, tier="fast"), NOW)
    await spend(store, session_limit(None), 7, NOW + 50)  # a sub-agent's
    assert await store.delete("a") is True
    assert await store.delete("a") is False
    assert await store.load("a", NOW) == SessionState("a", first_seen=NOW, last_seen=NOW)
    assert await used(store, session_limit(None)) == 0
    assert (await store.sessions(NOW, limit=0)).number == 0


async def test_sessions_are_paged_by_their_last_use(store: Store) -> None:
    for number, name in enumerate("abcd"):
        await commit(store, name, ONE_TURN, NOW + number)
    await commit(store, "b", ONE_TURN, NOW + 9)
    await store.load("a", NOW + 10)  # to look is no use

    async def names(*page: int) -> str:
        return "".join(found.session for found in await store.sessions(NOW + 10, *page))

    assert await names() == "bdca"
    assert (await names(0, 2), await names(2, 2), await names(4, 2)) == ("bd", "ca", "")
    assert (await store.sessions(NOW, limit=0)).number == 4
    assert (
        (await store.sessions(NOW + TTL + 1, limit=0)).number
        == len(await store.sessions(NOW + TTL + 1))
        == 3
    )


async def test_the_least_recently_used_sessions_go_first(store: Store) -> None:
    for number in range(MAX_SESSIONS):
        await commit(store, f"s{number}", ONE_TURN, NOW + number)
    await spend(store, session_limit(None, "s1"), 7)
    await commit(store, "s0", ONE_TURN, NOW + 50)
    await commit(store, "new", ONE_TURN, NOW + 60)
    await keep_house(store)
    assert (await store.sessions(NOW, limit=0)).number == MAX_SESSIONS
    listed = {found.session for found in await store.sessions(NOW + 60)}
    assert listed == {"new", "s0", *(f"s{number}" for number in range(2, MAX_SESSIONS))}
    assert (await store.load("s1", NOW + 60)).used == 7, "a budget lasts as long as it would"


async def test_a_key_pushes_out_none_of_anothers_sessions(store: Store) -> None:
    theirs = [digest("key-a", name) for name in ("night", "day")]
    for session in theirs:
        await spend(store, session_limit(20, session), 20)
        await commit(store, session, ONE_TURN, NOW)
    flood = [digest("key-b", str(number)) for number in range(3 * MAX_SESSIONS)]
    for number, session in enumerate(flood):
        await commit(store, session, ONE_TURN, NOW + number)
        await spend(store, session_limit(20, session), 1)
    await keep_house(store)
    listed = {found.session for found in await store.sessions(NOW + 60)}
    assert listed == {*theirs, *flood[-(MAX_SESSIONS - 2) :]}
    for session in theirs:
        found = await store.reserve("t", [session_limit(20, session)], 1, NOW + 60, NOW + 70)
        assert isinstance(found, ReservationRefused)


@pytest.mark.parametrize("step", [2, 200])
async def test_what_is_too_old_goes(
    store: Store, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    for module in (database, redis):
        monkeypatch.setattr(module, "STEP", step)
    old = NOW - EVENTS_TTL - 1
    await add_events(store, [event("k", time=at) for at in [old] * 5 + [NOW]])
    for number in range(3):
        await commit(store, f"idle{number}", ONE_TURN, NOW - TTL - 1)
    await commit(store, "b", ONE_TURN, NOW - TTL)
    await keep_house(store)
    assert (await store.sessions(NOW - TTL - 1, limit=0)).number == 1
    assert [number for number, _ in await store.events(EventQuery())] == [6]


async def test_events_beyond_their_number_go(store: Store) -> None:
    added = MAX_EVENTS + 20
    await add_events(store, [event("k")] * added)
    await keep_house(store)
    found = await store.events(EventQuery(after=0))
    assert [number for number, _ in found] == [*range(21, added + 1)], "the newest are kept"


async def test_what_a_session_has_used_and_set_aside(store: Store) -> None:
    await commit(store, "a", ONE_TURN, NOW)
    limits = [session_limit(100), hour_limit(100)]
    assert isinstance(await store.reserve("t", limits, 30, NOW, NOW + 60), Reserved)
    found = await store.load("a", NOW)
    assert (found.used, found.reserved) == (0, 30)
    await settle(store, "t", dict.fromkeys(limits, 12), NOW)
    found = (await store.sessions(NOW))[0]
    assert (found.used, found.reserved) == (12, 0)


async def test_counts_are_loaded_with_the_session(store: Store) -> None:
    tier = Limit("session:a:tier:fast", None, rolling=False)
    await spend(store, session_limit(None), 10)
    await spend(store, hour_limit(None), 20)
    await spend(store, tier, 3)
    found = await store.load("a", NOW, [session_limit(5), hour_limit(None), tier])
    assert found.counts == {"session:a": 10, "hour": 20, "session:a:tier:fast": 3}
    assert (await store.load("a", NOW)).counts == {}


async def test_what_is_estimated_is_told_apart(store: Store) -> None:
    await spend(store, session_limit(None), 10)
    estimated = Limit("session:a:estimated", None, rolling=False)
    await settle(store, "t", dict.fromkeys([session_limit(None), estimated], 4), NOW)
    found = await store.load("a", NOW)
    assert (found.used, found.estimated) == (14, 4)


async def test_a_commit_that_settles(store: Store) -> None:
    limits = [session_limit(100), hour_limit(100)]
    await store.reserve("t", limits, 60, NOW, NOW + 60)
    before = await commit(store, "a", ONE_TURN, NOW, Settlement("t", dict.fromkeys(limits, 12)))
    assert before == {"session:a": 0, "hour": 0}
    found = await store.load("a", NOW, limits)
    assert (found.turns, found.used, found.reserved) == (1, 12, 0)
    assert found.counts == {"session:a": 12, "hour": 12}
    sticky = {"auto": Sticky("standard", NOW + 300)}
    delta = Change(turns=1, sticky=sticky)
    before = await commit(store, "a", delta, NOW, Settlement("u", dict.fromkeys(limits, 1)))
    assert before == {"session:a": 12, "hour": 12}
    found = await store.load("a", NOW)
    assert (found.turns, found.used, found.sticky) == (2, 13, sticky)
    assert await commit(store, "a", ONE_TURN, NOW) == {}


async def test_a_session_that_only_spends_is_listed_and_has_no_turn(store: Store) -> None:
    amounts = {session_limit(100): 60, hour_limit(100): 60}
    await commit(store, "a", Change(), NOW, Settlement("t", amounts))
    (found,) = await store.sessions(NOW)
    assert (found.session, found.used, found.turns) == ("a", 60, 0)


# Breakers and events


async def test_breakers(store: Store) -> None:
    assert await store.breakers() == {}
    await save_breaker(store, "fast", BreakerState(3, NOW + 30, 30.0))
    await save_breaker(store, "standard", BreakerState(1))
    await save_breaker(store, "fast", BreakerState())
    assert await store.breakers() == {"fast": BreakerState(), "standard": BreakerState(1)}


def event(kind: str, session: str = "a", time: float = NOW) -> dict[str, Any]:
    return {"time": time, "kind": kind, "session": session, "detail": {"n": [1, "ü", None]}}


EVENTS = [
    event("escalated"),
    event("loop_break", "b", NOW + 1),
    event("escalated", "b", NOW + 2),
    {**event("exhausted", "a", NOW + 3), "request_id": 'it\'s "one"', "agent": "it's me"},
]


@pytest.mark.parametrize(
    ("query", "places"),
    [
        (EventQuery(), [0, 1, 2, 3]),
        (EventQuery(kind="escalated"), [0, 2]),
        (EventQuery(session="b"), [1, 2]),
        (EventQuery(session=""), [0, 1, 2, 3]),
        (EventQuery(after=0), [0, 1, 2, 3]),
        (EventQuery(after=0, limit=2), [0, 1]),  # the first
        (EventQuery(after=0, kind="escalated", limit=1), [0]),
        (EventQuery(kind="escalated", session="b"), [2]),
        (EventQuery(kind="nothing"), []),
        (EventQuery(request_id='it\'s "one"'), [3]),
        (EventQuery(request_id="it's", after=0), []),
        (EventQuery(since=NOW + 2), [2, 3]),
        (EventQuery(limit=2), [2, 3]),  # the latest, oldest first
        (EventQuery(limit=0), []),
        (EventQuery(agent="it's me"), [3]),
        (EventQuery(agent="it's"), []),
        (EventQuery(before=0), []),
        (EventQuery(before=1), []),
    ],
)
async def test_events_are_found(store: Store, query: EventQuery, places: list[int]) -> None:
    await add_events(store, EVENTS[:3])
    await add_events(store, EVENTS[3:])
    assert [found for _, found in await store.events(query)] == [EVENTS[at] for at in places]


async def test_events_of_a_session_by_the_beginning_of_its_hash(store: Store) -> None:
    names = ["0123456789abcdef", "0123456789abffff", "0123456789", "fedcba9876543210"]
    await add_events(store, [event("k", name) for name in names])
    found = await store.events(EventQuery(session="0123456789ab"))
    assert [one["session"] for _, one in found] == names[:2]


async def test_events_are_read_on_from_a_number(store: Store) -> None:
    await add_events(store, EVENTS)
    numbers = [number for number, _ in await store.events(EventQuery())]
    assert numbers == sorted(set(numbers))
    following = await store.events(EventQuery(after=numbers[0], limit=2))
    assert [number for number, _ in following] == numbers[1:3]  # the next, none left out
    assert await store.events(EventQuery(after=numbers[-1])) == []
    earlier = await store.events(EventQuery(before=numbers[3], limit=2))
    assert [number for number, _ in earlier] == numbers[1:3]  # those right before it
    between = await store.events(EventQuery(after=numbers[0], before=numbers[2]))
    assert [number for number, _ in between] == numbers[1:2]
    await add_events(store, [event("late")])
    ((number, late),) = await store.events(EventQuery(after=numbers[-1]))
    assert number > numbers[-1] and late["kind"] == "late"


async def test_what_a_session_spent_on_tiers_goes_with_it(store: Store) -> None:
    within, other = Limit("session:a:tier:fast", None, False), Limit("session:ab", None, False)
    await commit(store, "a", ONE_TURN, NOW)
    for limit in (within, other):
        await spend(store, limit, 7)
    await store.delete("a")
    assert (await used(store, within), await used(store, other)) == (0, 7)


@pytest.mark.parametrize(("idle", "left"), [(TTL, 7), (TTL + 1, 0)])
async def test_a_count_that_nobody_touches_is_forgotten_as_a_session_is(
    store: Store, idle: float, left: int
) -> None:
    """Also where its session never commits: a parent that only sub-agents name."""
    limit = session_limit(None, "parent")
    await spend(store, limit, 7)
    assert await used(store, limit, NOW + idle) == left
    await spend(store, limit, 1, NOW + idle)
    assert await used(store, limit, NOW + idle) == left + 1


async def test_a_count_beyond_all_numbers_stops_nothing(store: Store) -> None:
    """What upstream says is checked where it enters; one that got here is its own trouble alone."""
    for limit in (session_limit(None), hour_limit(None)):
        for _ in range(3):
            await spend(store, limit, 2**64 - 1)
        assert await used(store, limit) >= MAX_TOKENS
    other = session_limit(None, "b")
    await spend(store, other, 7)
    assert await used(store, other) == 7
    assert store.health.sentence is None
