import time
from pathlib import Path

from benchmarks.cost import growth
from mlx_stack_proxy.engine.session_id import digest


async def test_a_filled_store_has_the_sessions_that_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "state.db"

    await growth.fill(path, 5, most=10)

    store = growth.store_at(path, most=10)
    await store.open()
    try:
        assert await store.count_sessions(0.0) == 5
        found = await store.load(digest("", growth.session(4)), time.time())
        assert (found.turns, found.used) == (1, 4321)
    finally:
        await store.close()
