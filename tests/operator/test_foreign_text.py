"""What a foreign server says, as the commands print it: no cursor is moved, no text reordered."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.operator.conftest import Ran, Typed
from tests.operator.remote.test_status import found, tier
from tests.support.scripted_server import Reply, ScriptedServer

EVIL = "evil\x1b]0;owned\x07\u202egnp.exe"
RAW = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
STATUS = ("GET", "/mlx-stack/status")
MODELS = ("GET", "/v1/models")


def is_safe(ran: Ran) -> bool:
    """Whether it names the evil text, and nothing in it is raw."""
    whole = ran.out + ran.err
    return "evil" in whole and not RAW.search(whole)


@pytest.mark.parametrize("word", ["status", "events", "report", "sessions"])
@pytest.mark.parametrize("status", [403, 500])
async def test_an_error_of_a_foreign_server(
    word: str, status: int, typed: Typed, upstream: ScriptedServer
) -> None:
    error = Reply.json({"error": {"message": EVIL}}, status=status)
    upstream.routes["GET", f"/mlx-stack/{word}"] = error
    ran = await typed.beside(word, "--url", upstream.url)
    assert ran.code == 1 and is_safe(ran)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": EVIL},
        {"litellm": EVIL},
        {"store": EVIL},
        {"tiers": {EVIL: tier(state=EVIL)}},
        {"budgets": [{"scope": EVIL, "used": 1, "limit": 2}]},
        {"configuration": {"refused": [EVIL], "restart_due": []}},
        {"memory_pressure": {"level": "critical", "cause": EVIL}},
    ],
    ids=lambda changes: next(iter(changes)),
)
async def test_a_foreign_status(
    changes: dict[str, Any], typed: Typed, upstream: ScriptedServer
) -> None:
    upstream.routes[STATUS] = Reply.json(found(**changes))
    ran = await typed.beside("status", "--url", upstream.url)
    assert ran.code == 0 and is_safe(ran)


@pytest.mark.parametrize("words", [["check"], ["init", "--dry-run"]])
async def test_what_litellm_lists(words: list[str], typed: Typed) -> None:
    async with ScriptedServer(models=(EVIL,)) as litellm:
        typed.write(f"upstream: {{base_url: '{litellm.url}'}}")
        base_url = ["--base-url", litellm.url] if words[0] == "init" else []
        assert is_safe(await typed.beside(*words, *base_url))


async def test_an_error_of_litellm(typed: Typed, litellm: ScriptedServer) -> None:
    typed.write(f"upstream: {{base_url: '{litellm.url}'}}\ntiers: {{fast: }}")
    litellm.always(Reply.json({"error": {"message": EVIL}}, status=500))
    ran = await typed.beside("check")
    assert ran.code == 1 and is_safe(ran)


def test_a_file_of_the_users(typed: Typed) -> None:
    typed.write('tiers: {"evil\\e[2J\\u202e": {context_window: 0}}')
    for words in (["check"], ["serve"]):
        ran = typed(*words)
        assert ran.code != 0 and is_safe(ran)
