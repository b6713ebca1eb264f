"""Where the commands ask, with which key, and how much they read of an answer."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.operator.remote import client, events
from mlx_stack_proxy.operator.remote.client import find, is_configured
from mlx_stack_proxy.settings import ServerSettings
from tests.operator.conftest import Typed
from tests.operator.remote.test_status import found
from tests.support.scripted_server import Reply, ScriptedServer

STATUS = ("GET", "/mlx-stack/status")
EVENTS = ("GET", "/mlx-stack/events")


@pytest.mark.parametrize(
    ("url", "gets_it"),
    [
        ("http://10.0.0.7:4200", True),  # as configured
        ("http://10.0.0.7:4201", False),
        ("http://10.0.0.8:4200", False),
        ("http://127.0.0.1:4999", True),
        ("http://localhost", True),
        ("http://[::1]:1", True),
        ("http://localhost.example.com:4200", False),
        ("http://127.0.0.1:4200@example.com", False),
        ("http://10.0.0.7:4200@example.com:4200", False),
        ("http://example.com\\@127.0.0.1", True),  # read as httpx reads it, which then asks there
        ("http://[::1", False),
        ("x://there", False),
    ],
)
def test_who_gets_the_admin_key(url: str, gets_it: bool) -> None:
    assert is_configured(url, ServerSettings(host="10.0.0.7", port=4200)) is gets_it


async def test_the_admin_key_goes_to_no_other_address(
    typed: Typed, upstream: ScriptedServer
) -> None:
    typed.write("server: {admin_key: secret-1}")
    upstream.always(lambda _: Reply.json(found()))
    elsewhere = f"http://0.0.0.0:{upstream.port}"  # reaches it here, and names no machine
    for url, sent in ((elsewhere, None), (upstream.url, "Bearer secret-1")):
        assert (await typed.beside("status", "--url", url)).code == 0
        assert upstream.calls.pop().header("authorization") == sent
    upstream.always(lambda _: Reply.json({"error": {"message": "no"}}, status=401))
    ran = await typed.beside("status", "--url", elsewhere)
    assert "no; server.admin_key goes only to the configured address or to this" in ran.said


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("word", ["status", "report", "events"])
async def test_an_answer_without_end_is_not_read(
    word: str,
    status: int,
    typed: Typed,
    upstream: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "MAX_ANSWER", 100_000)
    upstream.routes["GET", f"/mlx-stack/{word}"] = Reply.json({"a": "x" * 30_000_000}, status)
    ran = await typed.beside(word, "--url", upstream.url)
    why = "status 500" if status == 500 else "a response of more than 100,000 bytes"
    assert ran.code == 1 and why in ran.said


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (b"data: " + b"x" * 30_000, "an event of more than 10,000 bytes"),
        (b"data: no JSON\n", "an event that can't be read"),
    ],
)
async def test_an_event_without_end_is_not_read(
    piece: bytes,
    why: str,
    typed: Typed,
    upstream: ScriptedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "MAX_EVENT", 10_000)
    upstream.routes[EVENTS] = Reply.sse(piece)
    ran = await typed.beside("events", "--follow", "--url", upstream.url)
    assert ran.code == 1 and why in ran.said


@pytest.mark.parametrize("answer", [[], "text", 1])
async def test_an_answer_that_is_no_object(
    answer: Any, typed: Typed, upstream: ScriptedServer
) -> None:
    upstream.routes[STATUS] = Reply.json(answer)
    ran = await typed.beside("status", "--url", upstream.url)
    assert ran.code == 1 and "its answer is not a JSON object" in ran.said


SERVER = "server: {port: %d, admin_key: secret-1}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{SERVER}tiers: {{fast: {{context_window: none}}}}\n", "tiers.fast.context_window"),
        (f"{SERVER}tiers:\n\tfast:\n", "is not valid YAML"),
        ("# mine\nserver:\n  # a remark\n  port: %d\n  admin_key: secret-1\nx: [\n", "valid YAML"),
        (f"{SERVER}sever: {{}}\nstate: {{backend: no}}\n", "sever: unknown key"),
    ],
)
@pytest.mark.parametrize("word", ["status", "events", "report", "sessions"])
async def test_a_broken_configuration_says_where_and_is_said_first(
    word: str, text: str, problem: str, typed: Typed, upstream: ScriptedServer
) -> None:
    typed.write(text % upstream.port)
    answer = (
        {**found(), "events": [], "total": 0, "sessions": [], "since": 0, "until": 1, "agent": None}
        | ({"said": [], "advice": []} if word == "report" else {})
        | ({"sessions": 3} if word == "status" else {})
    )
    upstream.always(lambda _: Reply.json(answer))
    ran = await typed.beside(word)
    assert ran.code == 0, ran.err
    first = ran.err.splitlines()[0]
    assert first.startswith("config.yaml: ") and problem in first
    assert first.endswith("; only the proxy's address is taken from it")
    assert upstream.calls[-1].header("authorization") == "Bearer secret-1"


async def test_with_an_address_no_file_is_needed(typed: Typed, upstream: ScriptedServer) -> None:
    upstream.routes[STATUS] = Reply.json(found())
    ran = await typed.beside("status", "--config", "nowhere.yaml", "--url", upstream.url)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("server: {port: 70000, host: 10.0.0.7}\n", "10.0.0.7", 4100),
        ("server: {port: 4200, prot: 1}\n", "127.0.0.1", 4200),
        ("server: [\nx: 1\n", "127.0.0.1", 4100),
        ("server: 7\n", "127.0.0.1", 4100),
        ("server:7\n", "127.0.0.1", 4100),
        ("x: 1\n", "127.0.0.1", 4100),
    ],
)
def test_what_can_be_used_of_a_section_is_used(
    text: str, host: str, port: int, typed: Typed
) -> None:
    typed.write(text)
    server = find(None).server
    assert (server.host, server.port) == (host, port)
    typed.monkeypatch.setenv("MLX_STACK_SERVER__PORT", "4300")
    typed.monkeypatch.setenv("MLX_STACK_SEVER__X", "1")
    assert find(None).server.port == 4300
