"""How `mlx-stack-proxy events` shows what a proxy has kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import respx

from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.operator.remote import events
from mlx_stack_proxy.operator.remote.client import Remote
from mlx_stack_proxy.settings import ServerSettings

Json = dict[str, Any]
HASH = "ab" * 16
EVIL = "look\x1b[2J\n2026-11-22 08:00:00 escalated"
LOOP = {"kind": "loop_warning", "session": HASH, "tier": "fast"}
REPEATED = {"detector": "repetition", "pattern": "e9838d9ec5ad1f0b"}
OPINION = {**REPEATED, "action": "second_opinion", "tool": "look"}
STALLS = {"from": "warning", "to": "critical", "cause": "stalls"}
NOBODYS = {"kind": "pressure_changed", "session": "", "tier": ""}


URL = "http://proxy"
EVENTS = f"{URL}/mlx-stack/events"


def keep(router: respx.MockRouter, kept: list[Json], kind: str = "events") -> None:
    """Let the proxy at ``URL`` have kept these events, or sessions."""

    def page(request: httpx.Request) -> httpx.Response:
        limit, after = (request.url.params.get(name) for name in ("limit", "after"))
        assert int(limit) <= events.PAGE
        found = kept[-int(limit) :] if after is None else kept[int(after) :][: int(limit)]
        return httpx.Response(200, json={kind: found, "total": len(kept)})

    router.get(f"{URL}/mlx-stack/{kind}").side_effect = page


def shown(router: respx.MockRouter, capsys: pytest.CaptureFixture[str], event: Json) -> str:
    keep(router, [{"time": 1_780_000_000.0, **event}])
    assert cli.main(["events", "--url", URL]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({**LOOP, "detail": {**REPEATED, "action": "warning", "tool": ""}}, "detector=repetition"),
        ({**LOOP, "detail": OPINION}, "detector=repetition action=second_opinion tool=look"),
        ({**NOBODYS, "detail": STALLS}, "pressure_changed   warning > critical, stalls"),
        (
            {**LOOP, "kind": "escalated", "detail": {"from": "a", "to": "b", "reason": "timeout"}},
            "a > b, timeout",
        ),
        ({**LOOP, "kind": "exhausted", "detail": {"attempts": [{}, {}]}}, "attempts=2"),
    ],
)
def test_what_the_kind_says_already_is_not_told_again(
    event: Json, told: str, respx_mock: respx.MockRouter, capsys: pytest.CaptureFixture[str]
) -> None:
    who = "abababababab " if event["session"] else ""
    assert shown(respx_mock, capsys, event).endswith(f"{who}{told}\n")


def test_a_clients_text_moves_no_cursor_and_begins_no_line(
    respx_mock: respx.MockRouter, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tool's name is the client's; so is the name of a model that passes through."""
    out = shown(respx_mock, capsys, {**LOOP, "tier": EVIL, "detail": {"tool": EVIL}})
    row = {"session": HASH, "turns": 1, "used": 0, "limit": None, "tier": EVIL, "last_seen": 0.0}
    keep(respx_mock, [row], "sessions")
    assert cli.main(["sessions", "--url", URL]) == 0
    listed = capsys.readouterr().out
    for text, lines in ((out, 1), (listed, 3)):
        assert "\x1b" not in text and r"look\u001b[2J\u000a2026" in text
        assert len(text.splitlines()) == lines


@pytest.mark.parametrize(("limit", "count"), [(50, 50), (1500, 1500), (10**9, 2300)])
def test_events_come_page_by_page(respx_mock: respx.MockRouter, limit: int, count: int) -> None:
    keep(respx_mock, [{"number": number} for number in range(1, 2301)])
    found, total = events.newest(Remote(URL, ServerSettings()), {"kind": None}, limit)
    assert [one["number"] for one in found] == list(range(2301 - count, 2301))
    assert total == 2300


def test_a_line_separator_within_an_event_ends_no_line() -> None:
    pieces = [b'data: {"tool": "a\xe2\x80', b'\xa8b"}\n\n: keepalive\n\n']
    stream = httpx.Response(200, content=iter(pieces))
    assert list(events.events_in(stream)) == [{"tool": "a\u2028b"}]


def told(number: int) -> bytes:
    return b'data: {"number": %d}\n\n' % number


def broken(*pieces: bytes) -> Iterator[bytes]:
    yield from pieces
    raise httpx.ReadError("the connection was reset")


@pytest.mark.specification(183)
def test_events_are_followed_over_a_restart(
    respx_mock: respx.MockRouter,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is missing and none comes twice; that the proxy was gone is said, apart from them."""
    monkeypatch.setattr(events, "RETRY_SECONDS", 0.0)
    followed = respx_mock.get(EVENTS)
    followed.side_effect = [
        httpx.Response(200, content=broken(told(1), b": keepalive\n\n")),
        httpx.RemoteProtocolError("Server disconnected without sending a response."),
        httpx.Response(200, content=told(2)),
        httpx.Response(403, json={"error": {"message": "the key is wrong"}}),
    ]
    assert cli.main(["events", "--follow", "--json", "--url", URL]) == 1
    out, err = capsys.readouterr()
    assert [json.loads(line)["number"] for line in out.splitlines()] == [1, 2]
    asked = [call.request.headers.get("last-event-id") for call in followed.calls]
    assert asked == [None, "1", "1", "2"]
    said = err.splitlines()
    assert ["waiting for the proxy" in line for line in said] == [True, False, True, False]
    assert said[1] == "the proxy is back" and "the key is wrong" in said[3]
