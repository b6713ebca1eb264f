"""When settings are read again, what of them is taken, and what is said."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from mlx_stack_proxy import log, reload
from mlx_stack_proxy.reload import AT_START, Reloader, SettingsOrigin, differences, with_old
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping
from tests.support.waiting import until

DeltaContent = list[Any]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MLX_STACK_"):
            monkeypatch.delenv(name)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> DeltaContent:
    capture = structlog.testing.LogCapture()
    every_level = structlog.make_filtering_bound_logger(0)  # whatever a test before has configured
    logger = structlog.wrap_logger(
        structlog.PrintLogger(), processors=[capture], wrapper_class=every_level
    )
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


class Reloading:
    """A reloader over a file, and what it has let become of the settings."""

    def __init__(self, given: SettingsOrigin) -> None:
        self.taken: list[Settings] = []
        self.events: list[Any] = []
        self.reloader = Reloader(
            given, given.read(), self.taken.append, lambda *event: self.events.append(event)
        )


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
            "reliability": {"loop_detection": {"max_sessions": 5, "window_size": 5}},
        }
    )
    both = with_old(new, old, AT_START)
    assert list(differences(old, both)) == [
        "upstream.stream",
        "reliability.loop_detection.window_size",
    ]
    assert with_old(new, old, {("server",)}).server == old.server


TIERS = "tiers: {fast: , standard: }"
PORT = f"server: {{port: 9}}\n{TIERS}"
CHANGED, REFUSED, UNCHANGED = "settings_changed", "settings_refused", "settings_unchanged"
RESTART = "settings_need_restart"
EMPTIED = "gives no setting at all; if that is intended, restart"
FAST: Any = ["tiers.standard", "reliability.escalation.chain"]
ASK = "ASK "  # somebody asks, as with SIGHUP, and hears of it also where nothing has changed


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([TIERS], []),
        (
            ["tiers: {fast: {max_concurrency: 9}, standard: }"],
            [(CHANGED, ["tiers.fast.max_concurrency"])],
        ),
        # One that can't be used changes nothing.
        (["tiers: {fast: {modle: x}}", "tiers: {fast: }"], [(REFUSED, None), (CHANGED, FAST)]),
        (["a: [", "tiers: {fast: }"], [(REFUSED, None), (CHANGED, FAST)]),
        ([None, "tiers: {fast: }"], [(REFUSED, None), (CHANGED, FAST)]),
        # As an editor leaves it that saves to a full disk; not where nothing ever stood.
        (["tiers: {mine: }", ""], [(CHANGED, ...), (REFUSED, [EMPTIED])]),
        (["tiers: {mine: }", "# tiers:\n#   fa"], [(CHANGED, ...), (REFUSED, [EMPTIED])]),
        (["tiers: {fast: , standard: , longctx: , premium: }", ""], [(CHANGED, ...)]),
        # What needs a restart is said once, and to whoever asks.
        ([PORT, PORT], [(RESTART, ["server.port"])]),
        ([ASK + PORT, ASK + PORT], [(RESTART, ["server.port"])] * 2),
        (
            [PORT, f"state: {{backend: memory}}\n{TIERS}"],
            [(RESTART, ["server.port"]), (RESTART, ["state.backend"])],
        ),
        # That nothing changed is said where somebody waits for it, once.
        ([ASK + TIERS, TIERS], [(UNCHANGED, None)]),
        (["a: [", TIERS, TIERS], [(REFUSED, None), (UNCHANGED, None)]),
    ],
)
async def test_each_reading_and_what_is_said_of_it(
    texts: list[str | None], told: list[tuple[str, Any]], file: Path, said: DeltaContent
) -> None:
    reloading = Reloading(SettingsOrigin(file))
    for text in texts:
        if text is not None and text.startswith(ASK):
            reloading.reloader.ask()
        write(file, text and text.removeprefix(ASK))
        before = len(said)
        could = await reloading.reloader.reload()
        assert could == (REFUSED not in [one["event"] for one in said[before:]])
    assert [one["event"] for one in said] == [event for event, _ in told]
    for one, (event, about) in zip(said, told, strict=True):
        if event == REFUSED:
            assert (one["source"], one["kept"]) == (str(file), "the old")
            assert about in (None, one["problems"])
        elif about is not ...:
            assert one.get("keys") == about
    assert len(reloading.taken) == [event for event, _ in told].count(CHANGED)


async def test_a_fault_of_ours_changes_nothing_either(file: Path, said: DeltaContent) -> None:
    def broken(_: Settings) -> None:
        raise RuntimeError("ours")

    reloader = Reloader(SettingsOrigin(file), from_mapping({}), broken)
    assert not await reloader.reload()
    assert said[0]["event"] == "settings_fault"


async def test_without_a_file_the_variables_are_read_anew(
    tmp_path: Path, said: DeltaContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    reloading = Reloading(SettingsOrigin(None))
    monkeypatch.setenv("MLX_STACK_STREAM__KEEPALIVE_SECONDS", "3")
    assert await reloading.reloader.reload()
    assert reloading.taken[0].stream.keepalive_seconds == 3


async def test_the_command_line_stays_stronger(file: Path, said: DeltaContent) -> None:
    reloading = Reloading(SettingsOrigin(file, "localhost", 7))
    write(file, "server: {host: 127.0.0.1, port: 9}\ntiers: {fast: }")
    assert await reloading.reloader.reload()
    assert [one["event"] for one in said] == ["settings_changed"]
    assert (reloading.taken[0].server.host, reloading.taken[0].server.port) == ("localhost", 7)


async def test_a_changed_file_is_read_without_a_signal(
    file: Path, said: DeltaContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.01)
    reloading = Reloading(SettingsOrigin(file))
    reloading.reloader.start()
    write(file, "tiers: {fast: }")
    await until(lambda: reloading.taken)
    await reloading.reloader.close()
    assert [list(one.tiers) for one in reloading.taken] == [["fast"]]


async def test_a_pipe_in_the_files_place_holds_nothing_up(file: Path, said: DeltaContent) -> None:
    """Nobody writes into it, so that a reader would wait for good."""
    reloading = Reloading(SettingsOrigin(file))
    write(file, None)
    os.mkfifo(file)
    assert not await reloading.reloader.reload()
    assert [one["event"] for one in said] == ["settings_refused"]
    assert said[0]["problems"] == ["is not a regular file"]
    problem = f"{file}: is not a regular file"  # which file: `status` shows the sentence alone
    assert reloading.events == [("config_refused", {"problems": [problem]})]


async def test_a_file_system_that_hangs_ends_no_reloading(
    file: Path, said: DeltaContent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading is given up, and tried again when somebody asks or the file system is back."""
    monkeypatch.setattr(reload, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(reload, "READ_SECONDS", 0.05)
    back, looks = threading.Event(), 0
    look = reload._signature

    def hangs(path: Path | None) -> reload.Signature:
        nonlocal looks
        looks += 1
        back.wait()
        return look(path)

    monkeypatch.setattr(reload, "_signature", hangs)
    reloading = Reloading(SettingsOrigin(file))
    reloading.reloader.start()
    await until(lambda: said)
    assert said[0]["problems"] == ["can't be read: no answer within 0.05 s"]
    for _ in range(reload.MAX_HANGING + 2):  # more than may hang
        heard = len(said)
        reloading.reloader.ask()
        await until(lambda heard=heard: len(said) > heard)
    assert looks == reload.MAX_HANGING, "none but those that were asked for"
    back.set()
    write(file, "tiers: {fast: }")
    await until(lambda: reloading.taken)
    await reloading.reloader.close()
