"""When settings are read anew, what of them is taken, and what is said."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import structlog

from mlx_stack_proxy import reload
from mlx_stack_proxy.reload import AT_START, Given, Reloader, differences, with_old
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.telemetry import log

Said = list[Any]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MLX_STACK_"):
            monkeypatch.delenv(name)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    capture = structlog.testing.LogCapture()
    logger = structlog.wrap_logger(structlog.PrintLogger(), processors=[capture])
    monkeypatch.setattr(log, "get", lambda: logger)
    return capture.entries


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text("tiers: {fast: , standard: }", encoding="utf-8")
    return file


def write(file: Path, text: str | None) -> None:
    if text is None:
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")


def replace(file: Path, text: str) -> None:
    """As editors do."""
    other = file.with_suffix(".new")
    write(other, text)
    other.replace(file)


class Reloading:
    """A reloader over a file, and what it has let become of the settings."""

    def __init__(self, given: Given) -> None:
        self.taken: list[Settings] = []
        self.told = asyncio.Event()
        self.reloader = Reloader(given, given.read(), self.take)

    def take(self, settings: Settings) -> None:
        self.taken.append(settings)
        self.told.set()


def test_every_path_that_needs_a_restart_is_one() -> None:
    for path in AT_START:
        place: Any = from_mapping({})
        for name in path:
            place = getattr(place, name)


def test_differences_name_keys_and_never_values() -> None:
    old = from_mapping({"tiers": {"a": {}, "b": {}}})
    new = from_mapping(
        {
            "tiers": {"a": {"idle_timeout": 3}, "c": {}},
            "reliability": {"token_budget": {"per_key": {"sk-1": {"per_hour": 5}}}},
            "server": {"admin_key": "sk-2"},
        }
    )
    assert list(differences(old, old)) == []
    assert list(differences(old, new)) == [
        "server.admin_key",
        "tiers.a.idle_timeout",
        "tiers.b",
        "tiers.c",
        "reliability.token_budget.per_key",
        "reliability.escalation.chain",
    ]


def test_what_needs_a_restart_stays_as_it_was() -> None:
    old = from_mapping({"server": {"port": 1}, "state": {"path": "/a"}})
    new = from_mapping(
        {
            "server": {"port": 2},
            "state": {"path": "/b"},
            "upstream": {"base_url": "http://h", "stream": "as_requested"},
            "reliability": {"loop_detection": {"max_sessions": 5, "max_period": 5}},
        }
    )
    both = with_old(new, old, AT_START)
    assert list(differences(old, both)) == [
        "upstream.stream",
        "reliability.loop_detection.max_period",
    ]
    assert with_old(new, old, {("server",)}).server == old.server


async def test_a_change_is_taken_and_said(file: Path, said: Said) -> None:
    reloading = Reloading(Given(file))
    assert await reloading.reloader.reload()
    assert (reloading.taken, said) == ([], [])
    write(file, "tiers: {fast: {max_concurrency: 9}, standard: }")
    assert await reloading.reloader.reload()
    assert [one.tiers["fast"].max_concurrency for one in reloading.taken] == [9]
    assert said == [
        {
            "event": "settings_changed",
            "keys": ["tiers.fast.max_concurrency"],
            "log_level": "info",
        }
    ]


@pytest.mark.parametrize("text", ["tiers: {fast: {modle: x}}", "a: [", None])
async def test_a_file_that_cannot_be_used_changes_nothing(
    text: str | None, file: Path, said: Said
) -> None:
    reloading = Reloading(Given(file))
    write(file, text)
    assert not await reloading.reloader.reload()
    assert reloading.taken == []
    (only,) = said
    assert (only["event"], only["log_level"]) == ("settings_refused", "error")
    assert (only["source"], only["kept"]) == (str(file), "the old")
    write(file, "tiers: {fast: }")
    assert await reloading.reloader.reload()
    assert [list(one.tiers) for one in reloading.taken] == [["fast"]]
    assert said[-1]["event"] == "settings_changed"


@pytest.mark.parametrize("text", ["", "\n", "# tiers:\n#   fa"])
async def test_a_file_in_which_nothing_stands_any_more_changes_nothing(
    text: str, file: Path, said: Said
) -> None:
    """As an editor leaves it that saves to a full disk."""
    write(file, "tiers: {mine: }")
    reloading = Reloading(Given(file))
    write(file, text)
    assert not await reloading.reloader.reload()
    assert reloading.taken == []
    (problem,) = said[0]["problems"]
    assert problem == "gives no setting at all; if it is meant to, restart"


async def test_a_file_in_which_nothing_ever_stood_is_none_that_was_cut(
    file: Path, said: Said
) -> None:
    write(file, "")
    reloading = Reloading(Given(file))
    assert await reloading.reloader.reload()
    write(file, "# tiers:")
    assert await reloading.reloader.reload()
    assert said == []


@pytest.mark.parametrize("way", ["asked", "refused"])
async def test_that_nothing_changed_is_said_where_somebody_waits_for_it(
    way: str, file: Path, said: Said
) -> None:
    reloading = Reloading(Given(file))
    if way == "asked":
        reloading.reloader.ask()
    else:
        write(file, "a: [")
        assert not await reloading.reloader.reload()
        write(file, "tiers: {fast: , standard: }")
    for _ in range(2):  # once
        assert await reloading.reloader.reload()
    assert [one["event"] for one in said if one["log_level"] == "info"] == ["settings_unchanged"]


async def test_what_needs_a_restart_is_said_once(file: Path, said: Said) -> None:
    reloading = Reloading(Given(file))
    tiers = "tiers: {fast: , standard: }"
    write(file, f"server: {{port: 9}}\n{tiers}")
    for _ in range(2):
        assert await reloading.reloader.reload()
    assert [(one["event"], one["keys"]) for one in said] == [
        ("settings_need_restart", ["server.port"])
    ]
    assert reloading.taken == []
    write(file, f"state: {{backend: memory}}\n{tiers}")
    assert await reloading.reloader.reload()
    assert said[-1]["keys"] == ["state.backend"]


async def test_who_asks_hears_again_what_needs_a_restart(file: Path, said: Said) -> None:
    """The file says something other than what is in force: that isn't unchanged."""
    reloading = Reloading(Given(file))
    write(file, "server: {port: 9}\ntiers: {fast: , standard: }")
    for _ in range(2):
        reloading.reloader.ask()
        assert await reloading.reloader.reload()
    assert [one["event"] for one in said] == ["settings_need_restart"] * 2


async def test_a_fault_of_ours_changes_nothing_either(file: Path, said: Said) -> None:
    def broken(_: Settings) -> None:
        raise RuntimeError("ours")

    reloader = Reloader(Given(file), from_mapping({}), broken)
    assert not await reloader.reload()
    assert said[0]["event"] == "settings_fault"


async def test_the_command_line_stays_stronger(file: Path, said: Said) -> None:
    reloading = Reloading(Given(file, "localhost", 7))
    write(file, "server: {host: 127.0.0.1, port: 9}\ntiers: {fast: }")
    assert await reloading.reloader.reload()
    assert [one["event"] for one in said] == ["settings_changed"]
    assert (reloading.taken[0].server.host, reloading.taken[0].server.port) == ("localhost", 7)


async def test_a_changed_file_is_noticed(
    file: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.01)
    reloading = Reloading(Given(file))
    reloading.reloader.start()
    try:
        replace(file, "tiers: {fast: {model: x}}")
        await reloading.told.wait()
        reloading.told.clear()
        write(file, "tiers: {fast: {model: y}}")
        await reloading.told.wait()
    finally:
        await reloading.reloader.close()
    assert [one.tiers["fast"].model for one in reloading.taken] == ["x", "y"]


async def test_who_asks_waits_for_no_look(
    file: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "POLL_SECONDS", 3600.0)
    reloading = Reloading(Given(file))
    reloading.reloader.start()
    try:
        write(file, "tiers: {fast: {model: x}}")
        reloading.reloader.ask()
        await reloading.told.wait()
    finally:
        await reloading.reloader.close()
    assert reloading.taken[0].tiers["fast"].model == "x"


async def test_without_a_file_the_variables_are_read_anew(
    tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reloading = Reloading(Given(None))
    monkeypatch.setenv("MLX_STACK_STREAM__KEEPALIVE_SECONDS", "3")
    assert await reloading.reloader.reload()
    assert reloading.taken[0].stream.keepalive_seconds == 3
