"""A process that counts in a SQLite store as hard as it can, to be killed at any moment.

`python -m tests.state.counting FILE [SESSIONS]`: prints a line for each settlement that the store
has acknowledged: the session, and how often it was settled. Prints nothing before it is written.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from mlx_stack_proxy.state import sqlite
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, Limit, Sizes, StoreError
from tests.support.storing import commit, settle

TOKENS = 7
SIZES = Sizes(10_000, 86_400.0, 1e6, 10_000)
HOUR = Limit("hour", None, rolling=True)


def session_limit(name: str) -> Limit:
    return Limit(f"session:{name}", None, rolling=False)


async def count(store: SqliteStore, name: str, start: int, stop: asyncio.Event) -> None:
    number = start
    while not stop.is_set():
        number += 1
        now = time.time()
        limits = [session_limit(name), HOUR]
        try:
            await store.reserve(f"{name}:{number}", limits, TOKENS, now, now + 600)
            await settle(store, f"{name}:{number}", dict.fromkeys(limits, TOKENS), now)
            await commit(store, name, Change(turns=1), now)
        except StoreError:
            return
        os.write(1, f"{name} {number}\n".encode())


async def main(path: str, sessions: int) -> None:
    # So that a kill often comes while the write-ahead log is moved into the file.
    sqlite.HOUSEKEEPING_SECONDS = 0.01
    store = SqliteStore(path, SIZES)
    await store.open()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    names = [f"s{number}" for number in range(sessions)]
    before = [(await store.load(name, time.time())).turns for name in names]
    await asyncio.gather(
        *(count(store, name, start, stop) for name, start in zip(names, before, strict=True))
    )
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8))
