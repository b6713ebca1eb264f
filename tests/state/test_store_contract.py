"""What every store does, whichever backend it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.state.store import (
    BreakerState,
    EventQuery,
    Limit,
    Refused,
    Reserved,
    SessionDelta,
    SessionState,
    Settlement,
    Sticky,
    Store,
)
from tests.state.conftest import MAX_SESSIONS, TTL, WINDOW_SIZE

NOW = 1_780_000_020.0  # a third into a minute
HOUR = 3600.0
ONE_TURN = SessionDelta(turns=1)


def session_limit(most: int | None, name: str = "a") -> Limit:
    return Limit(f"session:{name}", most, rolling=False)


def hour_limit(most: int | None) -> Limit:
    return Limit("hour", most, rolling=True)


async def used(store: Store, limit: Limit, now: float = NOW) -> int:
    """What counts under a limit, asked without setting anything aside."""
    free = Limit(limit.scope, None, limit.rolling)
    found = await store.reserve("probe", [free], 0, now, now)
    assert isinstance(found, Reserved)
    return found.used[limit.scope]


async def spend(store: Store, limit: Limit, tokens: int, now: float = NOW) -> None:
    await store.settle("none", dict.fromkeys([limit], tokens), now)


# Sessions


async def test_a_session_nobody_has_seen_is_new(store: Store) -> None:
    assert await store.load("a", NOW) == SessionState("a", first_seen=NOW, last_seen=NOW)
    assert await store.count_sessions() == 0
    assert await store.sessions(NOW) == []


async def test_what_is_committed_is_loaded(store: Store) -> None:
    sticky = {"auto": Sticky("standard", NOW + 300)}
    delta = SessionDelta(turns=2, tier="fast", window=(b"1", b"2"), sticky=sticky)
    await store.commit("a", delta, NOW)
    await store.commit("b", ONE_TURN, NOW)
    assert await store.load("a", NOW + 5) == SessionState(
        "a",
        turns=2,
        tier="fast",
        window=(b"1", b"2"),
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
        await store.commit("a", SessionDelta(turns=1, sticky=sticky), NOW + number)

    await asyncio.gather(*(exchange(number) for number in range(20)))
    found = await store.load("a", NOW)
    assert found.turns == 20
    assert len(found.sticky) == 20
    assert (found.first_seen, found.last_seen) == (NOW, NOW + 19)


async def test_the_window_keeps_the_last_turns(store: Store) -> None:
    for number in range(5):
        await store.commit("a", SessionDelta(turns=1, window=(bytes([number]),)), NOW)
    found = await store.load("a", NOW)
    assert found.window == tuple(bytes([number]) for number in range(5 - WINDOW_SIZE, 5))
    assert found.turns == 5
    await store.commit("a", SessionDelta(window=(b"x", b"y", b"z", b"!")), NOW)
    assert (await store.load("a", NOW)).window == (b"y", b"z", b"!")
    await store.commit("a", ONE_TURN, NOW)
    assert (await store.load("a", NOW)).window == (b"y", b"z", b"!")


async def test_a_tier_stays_until_there_is_another(store: Store) -> None:
    await store.commit("a", SessionDelta(tier="fast"), NOW)
    await store.commit("a", ONE_TURN, NOW)
    assert (await store.load("a", NOW)).tier == "fast"
    await store.commit("a", SessionDelta(tier="standard"), NOW)
    assert (await store.load("a", NOW)).tier == "standard"


async def test_sticky_tiers_are_set_replaced_and_removed_each_by_itself(store: Store) -> None:
    one, two = Sticky("standard", NOW + 1), Sticky("longctx", NOW + 2)
    await store.commit("a", SessionDelta(sticky={"auto": one, "fast": one}), NOW)
    await store.commit("a", SessionDelta(sticky={"auto": two}), NOW)
    assert (await store.load("a", NOW)).sticky == {"auto": two, "fast": one}
    await store.commit("a", SessionDelta(sticky={"fast": None, "never": None}), NOW)
    assert (await store.load("a", NOW)).sticky == {"auto": two}


async def test_a_sticky_tier_that_has_ended_is_forgotten(store: Store) -> None:
    one, two = Sticky("standard", NOW + 10), Sticky("longctx", NOW + 30)
    await store.commit("a", SessionDelta(sticky={"auto": one}), NOW)
    assert (await store.load("a", NOW + 9)).sticky == {"auto": one}
    assert (await store.load("a", NOW + 10)).sticky == {}
    await store.commit("a", SessionDelta(sticky={"fast": two}), NOW + 20)
    # Not only hidden: looked at from before its end, it is not there any more.
    assert (await store.load("a", NOW)).sticky == {"fast": two}


async def test_a_late_commit_does_not_turn_back_the_clock(store: Store) -> None:
    await store.commit("a", ONE_TURN, NOW)
    await store.commit("a", ONE_TURN, NOW - 50)
    assert (await store.load("a", NOW)).last_seen == NOW


@pytest.mark.parametrize(("idle", "turns"), [(TTL, 1), (TTL + 1, 0)])
async def test_a_session_idle_for_too_long_is_new(store: Store, idle: float, turns: int) -> None:
    await store.commit("a", ONE_TURN, NOW)
    await spend(store, session_limit(None), 7)
    found = await store.load("a", NOW + idle)
    assert (found.turns, found.used) == (turns, 7 * turns)
    assert found.first_seen == (NOW if turns else NOW + idle)
    await store.commit("a", ONE_TURN, NOW + idle)
    assert (await store.load("a", NOW + idle)).turns == turns + 1


@pytest.mark.parametrize("how", ["idle", "one too many"])
async def test_what_sub_agents_spend_outlives_their_parents_own_use(store: Store, how: str) -> None:
    await store.commit("a", ONE_TURN, NOW)
    await spend(store, session_limit(None), 7)
    await spend(store, session_limit(None), 5, NOW + TTL - 1)  # a sub-agent's
    if how == "one too many":
        for number in range(MAX_SESSIONS):
            await store.commit(f"s{number}", ONE_TURN, NOW + TTL - 1)
        assert (await store.load("a", NOW + TTL - 1)).turns == 0
    found = await store.load("a", NOW + TTL + 1)
    assert (found.turns, found.used) == (0, 12)
    await store.commit("b", ONE_TURN, NOW + TTL + 2)
    assert await used(store, session_limit(None), NOW + TTL + 3) == 12
    assert await used(store, session_limit(None), NOW + 2 * TTL) == 0


async def test_to_delete_a_session_deletes_what_sub_agents_spent(store: Store) -> None:
    await store.commit("a", ONE_TURN, NOW)
    await spend(store, session_limit(None), 5, NOW + 50)
    assert await store.delete("a")
    assert await used(store, session_limit(None), NOW + 50) == 0


async def test_idle_sessions_are_not_listed(store: Store) -> None:
    await store.commit("a", ONE_TURN, NOW)
    await store.commit("b", ONE_TURN, NOW + TTL)
    assert [found.session for found in await store.sessions(NOW + TTL + 1)] == ["b"]


async def test_a_session_deleted_is_forgotten_with_its_counts(store: Store) -> None:
    await store.commit("a", SessionDelta(turns=1, tier="fast"), NOW)
    await spend(store, session_limit(None), 7)
    assert await store.delete("a") is True
    assert await store.delete("a") is False
    assert await store.load("a", NOW) == SessionState("a", first_seen=NOW, last_seen=NOW)
    assert await used(store, session_limit(None)) == 0
    assert await store.count_sessions() == 0


async def test_sessions_are_paged_by_their_last_use(store: Store) -> None:
    for number, name in enumerate("abcd"):
        await store.commit(name, ONE_TURN, NOW + number)
    await store.commit("b", ONE_TURN, NOW + 9)
    await store.load("a", NOW + 10)  # to look is no use

    async def names(*page: int) -> str:
        return "".join(found.session for found in await store.sessions(NOW + 10, *page))

    assert await names() == "bdca"
    assert (await names(0, 2), await names(2, 2), await names(4, 2)) == ("bd", "ca", "")
    assert await store.count_sessions() == 4


async def test_the_least_recently_used_sessions_go_first(store: Store) -> None:
    for number in range(MAX_SESSIONS):
        await store.commit(f"s{number}", ONE_TURN, NOW + number)
    await spend(store, session_limit(None, "s1"), 7)
    await store.commit("s0", ONE_TURN, NOW + 50)
    await store.commit("new", ONE_TURN, NOW + 60)
    assert await store.count_sessions() == MAX_SESSIONS
    listed = {found.session for found in await store.sessions(NOW + 60)}
    assert listed == {"new", "s0", *(f"s{number}" for number in range(2, MAX_SESSIONS))}
    assert (await store.load("s1", NOW + 60)).used == 0


async def test_what_a_session_has_used_and_set_aside(store: Store) -> None:
    await store.commit("a", ONE_TURN, NOW)
    limits = [session_limit(100), hour_limit(100)]
    assert isinstance(await store.reserve("t", limits, 30, NOW, NOW + 60), Reserved)
    found = await store.load("a", NOW)
    assert (found.used, found.reserved) == (0, 30)
    await store.settle("t", dict.fromkeys(limits, 12), NOW)
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
    await store.settle("t", dict.fromkeys([session_limit(None), estimated], 4), NOW)
    found = await store.load("a", NOW)
    assert (found.used, found.estimated) == (14, 4)


async def test_a_commit_that_settles(store: Store) -> None:
    limits = [session_limit(100), hour_limit(100)]
    await store.reserve("t", limits, 60, NOW, NOW + 60)
    before = await store.commit("a", ONE_TURN, NOW, Settlement("t", dict.fromkeys(limits, 12)))
    assert before == {"session:a": 0, "hour": 0}
    found = await store.load("a", NOW, limits)
    assert (found.turns, found.used, found.reserved) == (1, 12, 0)
    assert found.counts == {"session:a": 12, "hour": 12}
    sticky = {"auto": Sticky("standard", NOW + 300)}
    delta = SessionDelta(turns=1, sticky=sticky)
    before = await store.commit("a", delta, NOW, Settlement("u", dict.fromkeys(limits, 1)))
    assert before == {"session:a": 12, "hour": 12}
    found = await store.load("a", NOW)
    assert (found.turns, found.used, found.sticky) == (2, 13, sticky)
    assert await store.commit("a", ONE_TURN, NOW) == {}


# Budgets


async def test_a_reservation_tells_what_was_used_before(store: Store) -> None:
    await spend(store, session_limit(None), 10)
    await spend(store, hour_limit(None), 20)
    limits = [session_limit(100), hour_limit(100)]
    found = await store.reserve("t", limits, 50, NOW, NOW + 60)
    assert found == Reserved({"session:a": 10, "hour": 20})
    # Settled tokens only: what is set aside may come to nothing.
    found = await store.reserve("u", limits, 5, NOW, NOW + 60)
    assert found == Reserved({"session:a": 10, "hour": 20})


@pytest.mark.parametrize(("tokens", "fits"), [(90, True), (91, False)])
async def test_up_to_the_limit_and_not_beyond(store: Store, tokens: int, fits: bool) -> None:
    await spend(store, session_limit(None), 10)
    found = await store.reserve("t", [session_limit(100)], tokens, NOW, NOW + 60)
    assert isinstance(found, Reserved) is fits


async def test_all_scopes_or_none(store: Store) -> None:
    await spend(store, hour_limit(None), 60)
    limits = [session_limit(100), hour_limit(100)]
    found = await store.reserve("t", limits, 50, NOW, NOW + 60)
    assert isinstance(found, Refused)
    assert (found.limit, found.used, found.waits_for_others) == (limits[1], 60, False)
    assert (await store.load("a", NOW)).reserved == 0
    # Nothing of it is left in the way of another.
    assert isinstance(await store.reserve("u", [session_limit(100)], 100, NOW, NOW + 60), Reserved)


async def test_a_refusal_that_only_waits_for_others(store: Store) -> None:
    await spend(store, session_limit(None), 10)
    limits = [session_limit(100)]
    await store.reserve("t", limits, 60, NOW, NOW + 60)
    found = await store.reserve("u", limits, 40, NOW, NOW + 60)
    assert isinstance(found, Refused)
    assert (found.used, found.waits_for_others) == (10, True)
    await store.settle("t", dict.fromkeys(limits, 5), NOW)
    assert isinstance(await store.reserve("u", limits, 40, NOW, NOW + 60), Reserved)


async def test_a_partial_reservation_takes_what_is_left(store: Store) -> None:
    limits = [session_limit(100)]
    assert isinstance(await store.reserve("t", limits, 500, NOW, NOW + 60, partial=True), Reserved)
    # Another one waits, however little it may need, for the first may use all there is.
    found = await store.reserve("u", limits, 1, NOW, NOW + 60, partial=True)
    assert isinstance(found, Refused)
    assert found.waits_for_others
    await store.settle("t", dict.fromkeys(limits, 99), NOW)
    assert isinstance(await store.reserve("u", limits, 500, NOW, NOW + 60, partial=True), Reserved)
    await store.settle("u", dict.fromkeys(limits, 1), NOW)
    found = await store.reserve("v", limits, 1, NOW, NOW + 60, partial=True)
    assert isinstance(found, Refused)
    assert (found.used, found.waits_for_others) == (100, False)


async def test_partial_reservations_that_fit_do_not_wait(store: Store) -> None:
    limits = [session_limit(100)]
    assert isinstance(await store.reserve("t", limits, 40, NOW, NOW + 60, partial=True), Reserved)
    assert isinstance(await store.reserve("u", limits, 60, NOW, NOW + 60, partial=True), Reserved)


async def test_of_those_who_settle_at_once_one_crosses_a_threshold(store: Store) -> None:
    limits = [hour_limit(100)]
    found = await asyncio.gather(
        *(store.settle(f"t{n}", dict.fromkeys(limits, 9), NOW) for n in range(20))
    )
    assert sorted(before["hour"] for before in found) == [9 * n for n in range(20)]


async def test_to_settle_nothing_is_no_use(store: Store) -> None:
    limits = [session_limit(100), hour_limit(100)]
    await spend(store, session_limit(None), 7)
    assert await store.settle("t", dict.fromkeys(limits, 0), NOW + TTL) == {
        "session:a": 7,
        "hour": 0,
    }
    assert (await store.load("a", NOW + TTL + 1)).used == 0


async def test_parallel_reservations_never_exceed_a_limit(store: Store) -> None:
    limits = [session_limit(100)]

    async def ask(number: int) -> Any:
        await asyncio.sleep(0)
        return await store.reserve(f"t{number}", limits, 30, NOW, NOW + 60)

    found = await asyncio.gather(*(ask(number) for number in range(10)))
    assert sum(isinstance(one, Reserved) for one in found) == 3


@pytest.mark.parametrize(("later", "free"), [(59.9, False), (60.0, True)])
async def test_a_reservation_expires(store: Store, later: float, free: bool) -> None:
    limits = [session_limit(100)]
    await store.reserve("t", limits, 100, NOW, NOW + 60)
    found = await store.reserve("u", limits, 100, NOW + later, NOW + 300)
    assert isinstance(found, Reserved) is free


async def test_an_expired_reservation_still_counts_what_was_used(store: Store) -> None:
    limits = [session_limit(100)]
    await store.reserve("t", limits, 40, NOW, NOW + 60)
    await store.reserve("u", limits, 20, NOW + 70, NOW + 200)  # sweeps the first out
    await store.settle("t", dict.fromkeys(limits, 33), NOW + 80)
    assert await used(store, limits[0], NOW + 80) == 33
    assert (await store.load("a", NOW + 80)).reserved == 20


async def test_what_expired_is_no_longer_set_aside(store: Store) -> None:
    await store.commit("a", ONE_TURN, NOW)
    await store.reserve("t", [session_limit(100)], 40, NOW, NOW + 60)
    assert (await store.load("a", NOW + 59)).reserved == 40
    assert (await store.load("a", NOW + 60)).reserved == 0
    assert (await store.sessions(NOW + 60))[0].reserved == 0


async def test_a_session_has_counts_before_its_first_commit(store: Store) -> None:
    await store.reserve("t", [session_limit(100)], 40, NOW, NOW + 60)
    await spend(store, session_limit(None), 7)
    found = await store.load("a", NOW)
    assert (found.turns, found.used, found.reserved) == (0, 7, 40)


async def test_to_settle_more_than_was_set_aside_counts_it_all(store: Store) -> None:
    limits = [session_limit(100)]
    await store.reserve("t", limits, 10, NOW, NOW + 60)
    await store.settle("t", dict.fromkeys(limits, 150), NOW)
    assert await used(store, limits[0]) == 150
    found = await store.reserve("u", limits, 0, NOW, NOW + 60)
    assert isinstance(found, Refused)
    assert (found.used, found.waits_for_others) == (150, False)


async def test_a_limit_without_a_number_only_counts(store: Store) -> None:
    limit = session_limit(None)
    assert isinstance(await store.reserve("t", [limit], 10**9, NOW, NOW + 60), Reserved)
    await store.settle("t", dict.fromkeys([limit], 10**9), NOW)
    assert await used(store, limit) == 10**9


async def test_scopes_are_apart(store: Store) -> None:
    await spend(store, session_limit(None, "a"), 5)
    assert await used(store, session_limit(None, "b")) == 0
    assert await used(store, session_limit(None, "a")) == 5


# The rolling hour, exact to the minute


async def test_tokens_leave_the_hour_with_their_minute(store: Store) -> None:
    limit = hour_limit(100)
    minute = NOW // 60 * 60
    await spend(store, limit, 40, minute)
    await spend(store, limit, 2, minute + 59)
    await spend(store, limit, 50, minute + 60)
    assert await used(store, limit, minute + HOUR - 1) == 92
    assert await used(store, limit, minute + HOUR) == 50
    assert await used(store, limit, minute + HOUR + 60) == 0


async def test_when_there_is_room_again(store: Store) -> None:
    limit = hour_limit(100)
    minute = NOW // 60 * 60
    await spend(store, limit, 40, minute)
    await spend(store, limit, 50, minute + 120)
    now = minute + 600

    async def resets_in(tokens: int) -> float:
        found = await store.reserve("t", [limit], tokens, now, now)
        assert isinstance(found, Refused)
        assert not found.waits_for_others
        return found.resets_in

    # Once the first minute's 40 are out, 50 fit; more need the second's too.
    assert await resets_in(50) == HOUR - 600
    assert await resets_in(51) == HOUR + 120 - 600
    assert await resets_in(100) == HOUR + 120 - 600
    assert await resets_in(101) == HOUR  # never, as far as it is known
    await spend(store, limit, 20, minute + 240)
    found = await store.reserve("t", [limit], 90, now, now, partial=True)
    assert isinstance(found, Refused)
    # 110 are used: once the first minute's are out, one more may begin.
    assert found.resets_in == HOUR - 600
    await store.settle("none", dict.fromkeys([limit], -20), minute + 240)
    later = await store.reserve("t", [limit], 50, now + HOUR - 600, now + HOUR)
    assert isinstance(later, Reserved)


async def test_a_session_limit_resets_with_the_session(store: Store) -> None:
    found = await store.reserve("t", [session_limit(10)], 11, NOW, NOW)
    assert isinstance(found, Refused)
    assert found.resets_in == TTL
    await spend(store, session_limit(None), 10)
    found = await store.reserve("t", [session_limit(10)], 1, NOW + 100, NOW, partial=True)
    assert isinstance(found, Refused)
    assert found.resets_in == TTL - 100


async def test_a_clock_that_jumps_back_loses_nothing(store: Store) -> None:
    limit = hour_limit(100)
    await spend(store, limit, 40, NOW)
    await spend(store, limit, 30, NOW - 300)
    assert await used(store, limit, NOW - 300) == 70
    assert await used(store, limit, NOW) == 70
    # Nor does it stay for good.
    assert await used(store, limit, NOW + HOUR + 60) == 0


# Breakers and events


async def test_breakers(store: Store) -> None:
    assert await store.breakers() == {}
    await store.save_breaker("fast", BreakerState(3, NOW + 30, 30.0))
    await store.save_breaker("standard", BreakerState(1))
    await store.save_breaker("fast", BreakerState())
    assert await store.breakers() == {"fast": BreakerState(), "standard": BreakerState(1)}


def event(kind: str, session: str = "a", time: float = NOW) -> dict[str, Any]:
    return {"time": time, "kind": kind, "session": session, "detail": {"n": [1, "ü", None]}}


EVENTS = [
    event("escalated"),
    event("loop_break", "b", NOW + 1),
    event("escalated", "b", NOW + 2),
    event("exhausted", "a", NOW + 3),
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
        (EventQuery(since=NOW + 2), [2, 3]),
        (EventQuery(limit=2), [2, 3]),  # the latest, oldest first
        (EventQuery(limit=0), []),
    ],
)
async def test_events_are_found(store: Store, query: EventQuery, places: list[int]) -> None:
    await store.add_events(EVENTS[:3])
    await store.add_events(EVENTS[3:])
    assert [found for _, found in await store.events(query)] == [EVENTS[at] for at in places]


async def test_events_of_a_session_by_the_beginning_of_its_hash(store: Store) -> None:
    names = ["0123456789abcdef", "0123456789abffff", "0123456789", "fedcba9876543210"]
    await store.add_events([event("k", name) for name in names])
    found = await store.events(EventQuery(session="0123456789ab"))
    assert [one["session"] for _, one in found] == names[:2]


async def test_events_are_read_on_from_a_number(store: Store) -> None:
    await store.add_events(EVENTS)
    numbers = [number for number, _ in await store.events(EventQuery())]
    assert numbers == sorted(set(numbers))
    following = await store.events(EventQuery(after=numbers[0], limit=2))
    assert [number for number, _ in following] == numbers[1:3]  # the next, none left out
    assert await store.events(EventQuery(after=numbers[-1])) == []
    await store.add_events([event("late")])
    ((number, late),) = await store.events(EventQuery(after=numbers[-1]))
    assert number > numbers[-1] and late["kind"] == "late"


async def test_reservations_of_nothing_only_count(store: Store) -> None:
    """Policies that refuse nobody reserve no tokens; several may be open at once."""
    limits = [Limit("hour", None, rolling=True)]
    assert await store.reserve("a", limits, 0, NOW, NOW + 60) == Reserved({"hour": 0})
    assert await store.reserve("b", limits, 0, NOW, NOW + 60) == Reserved({"hour": 0})
    await store.settle("a", dict.fromkeys(limits, 5), NOW)
    await store.settle("b", dict.fromkeys(limits, 7), NOW)
    assert await store.reserve("c", limits, 0, NOW, NOW + 60) == Reserved({"hour": 12})


async def test_a_reservation_made_again_replaces_the_first(store: Store) -> None:
    limits = [Limit("session:s", 100, rolling=False)]
    await store.reserve("a", limits, 60, NOW, NOW + 60)
    await store.reserve("a", limits, 40, NOW, NOW + 60)
    await store.settle("a", dict.fromkeys(limits, 0), NOW)
    assert isinstance(await store.reserve("b", limits, 100, NOW, NOW + 60), Reserved)


async def test_a_reservation_does_not_stand_in_its_own_way(store: Store) -> None:
    limits = [session_limit(100)]
    await store.reserve("t", limits, 60, NOW, NOW + 60)
    assert isinstance(await store.reserve("t", limits, 90, NOW, NOW + 60), Reserved)
    assert (await store.load("a", NOW)).reserved == 90
    # One that is refused leaves the one before as it was.
    assert isinstance(await store.reserve("t", limits, 101, NOW, NOW + 60), Refused)
    assert (await store.load("a", NOW)).reserved == 90
    await store.settle("t", dict.fromkeys(limits, 0), NOW)
    assert (await store.load("a", NOW)).reserved == 0


async def test_a_reservation_moves_to_other_scopes_whole(store: Store) -> None:
    await store.reserve("t", [session_limit(100, "a"), hour_limit(100)], 60, NOW, NOW + 60)
    await store.reserve("t", [session_limit(100, "b")], 70, NOW, NOW + 60)
    assert (await store.load("a", NOW)).reserved == 0
    assert (await store.load("b", NOW)).reserved == 70
    assert isinstance(await store.reserve("u", [hour_limit(100)], 100, NOW, NOW + 60), Reserved)


async def test_reserved_and_settled_under_different_scopes_leaves_nothing(store: Store) -> None:
    await store.reserve("t", [session_limit(100), hour_limit(100)], 60, NOW, NOW + 60)
    await store.settle("t", dict.fromkeys([hour_limit(100)], 5), NOW)
    assert (await store.load("a", NOW)).reserved == 0
    assert isinstance(await store.reserve("u", [session_limit(100)], 100, NOW, NOW + 60), Reserved)


@pytest.mark.parametrize("jump", [120, HOUR, 24 * HOUR])
async def test_a_clock_that_jumps_back_keeps_nothing_for_longer_than_an_hour(
    store: Store, jump: float
) -> None:
    limit = hour_limit(100)
    await spend(store, limit, 40, NOW)
    then = NOW - jump
    assert await used(store, limit, then) == 40
    await spend(store, limit, 30, then + 120)
    assert await used(store, limit, then + 120) == 70
    minute = then // 60 * 60
    assert await used(store, limit, minute + HOUR - 1) == 70
    assert await used(store, limit, minute + HOUR) == 30
    assert await used(store, limit, minute + HOUR + 120) == 0


async def test_a_caller_whose_clock_lags_a_little_changes_nothing(store: Store) -> None:
    limit = hour_limit(100)
    minute = NOW // 60 * 60
    await spend(store, limit, 40, minute + 60)
    await spend(store, limit, 2, minute + 59)
    assert await used(store, limit, minute + 58) == 42
    assert await used(store, limit, minute + HOUR + 59) == 42
    assert await used(store, limit, minute + HOUR + 60) == 0


async def test_what_a_session_spent_on_tiers_goes_with_it(store: Store) -> None:
    within, other = Limit("session:a:tier:fast", None, False), Limit("session:ab", None, False)
    await store.commit("a", ONE_TURN, NOW)
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


async def test_a_backend_that_works_has_no_trouble(store: Store) -> None:
    assert store.trouble is None
