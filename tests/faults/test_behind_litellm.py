"""Model servers that fail behind a real LiteLLM, with the configuration that ships.

Two columns: the proxy before that LiteLLM, and its reliability layer inside it.

A part of the table of benchmarks/faults.md; `make faults` has all of it.
"""

from __future__ import annotations

import pytest

from tests.faults.catalogue import FAULTS, RETRIES, SILENCE_SECONDS, Fault, settings
from tests.faults.clients import GOOD, Client, ask
from tests.faults.places import Behind, clients_of
from tests.faults.spoken import CHAT, SPOKEN
from tests.support.replies import litellm_error

IN_CI = (
    *("reset mid-stream, after text", "stall after text", "500", "empty reply", "bad tool call"),
    *("lost tool call", "loop across turns", "loop while generating", "context overflow, 400"),
)


# All faults in all dialects: tests/server/test_escalation.py, without LiteLLM.
IN_ALL_DIALECTS = ("reset mid-stream, after text", "bad tool call")


@pytest.mark.parametrize(
    "fault", [one for one in FAULTS if one.name in IN_CI], ids=lambda fault: fault.name
)
async def test_a_model_server_that_fails(fault: Fault, column: Behind) -> None:
    speaking = SPOKEN if fault.name in IN_ALL_DIALECTS else (CHAT,)
    rows = await column.rows(fault, SILENCE_SECONDS, RETRIES, speaking, replies=1)
    assert [row.client for row in rows] == clients_of(fault, speaking)
    assert [row.verdict for row in rows] == [fault.expected(row.client) for row in rows]
    for row in rows:
        # Not one call more than ours: LiteLLM neither retries nor falls back by itself.
        good = fault.expected(row.client) == GOOD
        assert row.arrived == {"fast": fault.calls_of(row.client), "standard": int(good)}
        assert row.outcome.tier == ("standard" if good else "fast")


async def test_attempts_do_not_multiply(behind: Behind) -> None:
    """Nor when there is no tier left, with all retries; and what we tell LiteLLM ends there."""
    client = Client("whole", tools=False)
    async with behind.proxy(settings(SILENCE_SECONDS, retries=3), replies=1) as proxy:
        for server in behind.servers.values():
            server.always(litellm_error(500, "the model fell over"))
        outcome = await ask(proxy.client, client)
    assert (outcome.status, outcome.attempts) == (502, 8)
    for server in behind.servers.values():
        assert len(server.calls) == 4
        for call in server.calls:
            sent = call.json()
            assert sent["stream"] is True
            assert sent["messages"] == client.body()["messages"]
            assert not {"num_retries", "disable_fallbacks", "max_retries"} & set(sent)
