"""Which store the settings ask for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from mlx_stack_proxy.settings_source import SettingsError, from_mapping
from mlx_stack_proxy.state import open_store
from mlx_stack_proxy.state.redis import RedisStore
from mlx_stack_proxy.state.sqlite import SqliteStore
from mlx_stack_proxy.state.store import Change, EventQuery
from tests.support.storing import add_events, commit

URL = "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, SqliteStore),
        ({"backend": "sqlite"}, SqliteStore),
        ({"backend": "memory"}, SqliteStore),
        ({"backend": "redis", "redis_url": URL}, RedisStore),
    ],
    ids=str,
)
def test_the_backend_is_the_settings(given: dict[str, Any], kind: type) -> None:
    assert isinstance(open_store(from_mapping({"state": given})), kind)


@pytest.mark.parametrize(
    "given", [{"backend": "redis"}, {"redis_url": "http://x"}, {"redis_url": "redis://"}]
)
def test_an_address_that_is_none_stops_the_start(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="redis_url"):
        from_mapping({"state": given})


async def test_in_memory_it_is_a_store_like_the_others_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    store = open_store(from_mapping({"state": {"backend": "memory"}}))
    await store.open()
    await commit(store, "a", Change(turns=1), 1.0)
    await add_events(store, [{"time": 1.0, "kind": "k", "session": "a"}])
    assert await store.count_events(EventQuery(session="a")) == 1
    assert (store.health.sentence, os.listdir(tmp_path)) == (None, [])
    await store.close()


async def test_the_file_lies_where_the_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    store = open_store(from_mapping({}))
    await store.open()
    assert store.health.sentence is None
    await store.close()
    folder = tmp_path / ".mlx-stack"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {f.name: f.stat().st_mode & 0o777 for f in folder.iterdir()} == {
        "reliability.db": 0o600,
        "reliability.db.lock": 0o600,
    }
