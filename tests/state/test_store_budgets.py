"""The contract of every store: budgets, exact to the token and the minute."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mlx_stack_proxy.state.store import ReservationRefused, Reserved, Store
from tests.state.conftest import TTL
from tests.state.spending import HOUR, NOW, hour_limit, session_limit, spend, used
from tests.support.storing import settle


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
    assert isinstance(found, ReservationRefused)
    assert (found.limit, found.used, found.waits_for_others) == (limits[1], 60, False)
    assert (await store.load("a", NOW)).reserved == 0
    # Nothing of it is left in the way of another.
    assert isinstance(await store.reserve("u", [session_limit(100)], 100, NOW, NOW + 60), Reserved)


async def test_a_refusal_that_only_waits_for_others(store: Store) -> None:
    await spend(store, session_limit(None), 10)
    limits = [session_limit(100)]
    await store.reserve("t", limits, 60, NOW, NOW + 60)
    found = await store.reserve("u", limits, 40, NOW, NOW + 60)
    assert isinstance(found, ReservationRefused)
    assert (found.used, found.waits_for_others) == (10, True)
    await settle(store, "t", dict.fromkeys(limits, 5), NOW)
    assert isinstance(await store.reserve("u", limits, 40, NOW, NOW + 60), Reserved)


async def test_a_partial_reservation_takes_what_is_left(store: Store) -> None:
    limits = [session_limit(100)]
    assert isinstance(await store.reserve("t", limits, 500, NOW, NOW + 60, least=1), Reserved)
    # Another one waits, however little it may need, because the first may use all there is.
    found = await store.reserve("u", limits, 1, NOW, NOW + 60, least=1)
    assert isinstance(found, ReservationRefused)
    assert found.waits_for_others
    await settle(store, "t", dict.fromkeys(limits, 99), NOW)
    assert isinstance(await store.reserve("u", limits, 500, NOW, NOW + 60, least=1), Reserved)
    await settle(store, "u", dict.fromkeys(limits, 1), NOW)
    found = await store.reserve("v", limits, 1, NOW, NOW + 60, least=1)
    assert isinstance(found, ReservationRefused)
    assert (found.used, found.waits_for_others) == (100, False)


async def test_partial_reservations_that_fit_do_not_wait(store: Store) -> None:
    limits = [session_limit(100)]
    assert isinstance(await store.reserve("t", limits, 40, NOW, NOW + 60, least=1), Reserved)
    assert isinstance(await store.reserve("u", limits, 60, NOW, NOW + 60, least=1), Reserved)


async def test_of_those_who_settle_at_once_one_crosses_a_threshold(store: Store) -> None:
    limits = [hour_limit(100)]
    found = await asyncio.gather(
        *(settle(store, f"t{n}", dict.fromkeys(limits, 9), NOW) for n in range(20))
    )
    assert sorted(before["hour"] for before in found) == [9 * n for n in range(20)]


async def test_to_settle_nothing_is_no_use(store: Store) -> None:
    limits = [session_limit(100), hour_limit(100)]
    await spend(store, session_limit(None), 7)
    assert await settle(store, "t", dict.fromkeys(limits, 0), NOW + TTL) == {
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
    assert (await store.load("a", NOW + later)).reserved == (0 if free else 100)
    found = await store.reserve("u", limits, 100, NOW + later, NOW + 300)
    assert isinstance(found, Reserved) is free


async def test_an_expired_reservation_still_counts_what_was_used(store: Store) -> None:
    limits = [session_limit(100)]
    await store.reserve("t", limits, 40, NOW, NOW + 60)
    await store.reserve("u", limits, 20, NOW + 70, NOW + 200)  # sweeps the first out
    await settle(store, "t", dict.fromkeys(limits, 33), NOW + 80)
    assert await used(store, limits[0], NOW + 80) == 33
    assert (await store.load("a", NOW + 80)).reserved == 20


async def test_to_settle_more_than_was_set_aside_counts_it_all(store: Store) -> None:
    limits = [session_limit(100)]
    await store.reserve("t", limits, 10, NOW, NOW + 60)
    await settle(store, "t", dict.fromkeys(limits, 150), NOW)
    assert await used(store, limits[0]) == 150
    found = await store.reserve("u", limits, 0, NOW, NOW + 60)
    assert isinstance(found, ReservationRefused)
    assert (found.used, found.waits_for_others) == (150, False)


async def test_a_limit_without_a_number_only_counts(store: Store) -> None:
    limit = session_limit(None)
    assert isinstance(await store.reserve("t", [limit], 10**9, NOW, NOW + 60), Reserved)
    await settle(store, "t", dict.fromkeys([limit], 10**9), NOW)
    assert await used(store, limit) == 10**9


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
        assert isinstance(found, ReservationRefused)
        assert not found.waits_for_others
        return found.resets_in

    # Once the first minute's 40 are out, 50 fit; more need the second's too.
    assert await resets_in(50) == HOUR - 600
    assert await resets_in(51) == HOUR + 120 - 600
    assert await resets_in(100) == HOUR + 120 - 600
    assert await resets_in(101) == HOUR  # never, as far as it is known
    await spend(store, limit, 20, minute + 240)
    found = await store.reserve("t", [limit], 90, now, now, least=1)
    assert isinstance(found, ReservationRefused)
    # 110 are used: once the first minute's are out, one more may begin.
    assert found.resets_in == HOUR - 600
    await settle(store, "none", dict.fromkeys([limit], -20), minute + 240)
    later = await store.reserve("t", [limit], 50, now + HOUR - 600, now + HOUR)
    assert isinstance(later, Reserved)


async def test_a_session_limit_resets_with_the_session(store: Store) -> None:
    found = await store.reserve("t", [session_limit(10)], 11, NOW, NOW)
    assert isinstance(found, ReservationRefused)
    assert found.resets_in == TTL
    await spend(store, session_limit(None), 10)
    found = await store.reserve("t", [session_limit(10)], 1, NOW + 100, NOW, least=1)
    assert isinstance(found, ReservationRefused)
    assert found.resets_in == TTL - 100


async def test_a_reservation_does_not_stand_in_its_own_way(store: Store) -> None:
    limits = [session_limit(100)]
    await store.reserve("t", limits, 60, NOW, NOW + 60)
    assert isinstance(await store.reserve("t", limits, 90, NOW, NOW + 60), Reserved)
    assert (await store.load("a", NOW)).reserved == 90
    # One that is refused leaves the one before as it was.
    assert isinstance(await store.reserve("t", limits, 101, NOW, NOW + 60), ReservationRefused)
    assert (await store.load("a", NOW)).reserved == 90
    await settle(store, "t", dict.fromkeys(limits, 0), NOW)
    assert (await store.load("a", NOW)).reserved == 0


async def test_a_reservation_moves_to_other_scopes_whole(store: Store) -> None:
    await store.reserve("t", [session_limit(100, "a"), hour_limit(100)], 60, NOW, NOW + 60)
    await store.reserve("t", [session_limit(100, "b")], 70, NOW, NOW + 60)
    assert (await store.load("a", NOW)).reserved == 0
    assert (await store.load("b", NOW)).reserved == 70
    assert isinstance(await store.reserve("u", [hour_limit(100)], 100, NOW, NOW + 60), Reserved)


async def test_reserved_and_settled_under_different_scopes_leaves_nothing(store: Store) -> None:
    await store.reserve("t", [session_limit(100), hour_limit(100)], 60, NOW, NOW + 60)
    await settle(store, "t", dict.fromkeys([hour_limit(100)], 5), NOW)
    assert (await store.load("a", NOW)).reserved == 0
    assert isinstance(await store.reserve("u", [session_limit(100)], 100, NOW, NOW + 60), Reserved)


@pytest.mark.parametrize("jump", [120, HOUR, 24 * HOUR])
async def test_a_clock_that_jumps_back_keeps_nothing_longer_than_an_hour_after_the_next_write(
    store: Store, jump: float
) -> None:
    limit = hour_limit(100)
    await spend(store, limit, 40, NOW)
    then = NOW - jump
    assert await used(store, limit, then) == 40
    await spend(store, limit, 30, then + 120)
    assert await used(store, limit, then + 120) == 70
    minute = (then + 120) // 60 * 60
    assert await used(store, limit, minute + HOUR - 1) == 70
    assert await used(store, limit, minute + HOUR) == 0


async def test_a_caller_whose_clock_lags_a_little_changes_nothing(store: Store) -> None:
    limit = hour_limit(100)
    minute = NOW // 60 * 60
    await spend(store, limit, 40, minute + 60)
    await spend(store, limit, 2, minute + 59)
    assert await used(store, limit, minute + 58) == 42
    assert await used(store, limit, minute + HOUR + 59) == 40
    assert await used(store, limit, minute + HOUR + 60) == 0
