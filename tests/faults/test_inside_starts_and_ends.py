"""The start and the end of a LiteLLM that has the reliability layer in its process."""

from __future__ import annotations

import asyncio

from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.state import open_store
from mlx_stack_proxy.state.store import EventQuery
from tests.faults.catalogue import BAD_CALL
from tests.faults.clients import Client
from tests.faults.conftest import STATE
from tests.faults.litellm import START_SECONDS, LiteLLM
from tests.faults.places import Inside


def test_settings_that_cannot_hold_are_said_and_it_does_not_start(
    all_three: dict[str, LiteLLM],
) -> None:
    refused = all_three["refused"]
    assert refused.process.wait(START_SECONDS) != 0
    said = "server.api_keys: can't be set inside LiteLLM: LiteLLM checks clients by its own keys"
    assert said in refused.log.read_text()


async def test_what_it_kept_outlives_its_end(litellm_inside: LiteLLM) -> None:
    """The last test here, because it ends the LiteLLM that the others share."""
    column = Inside(litellm_inside, litellm_inside.ports)
    async with column.proxy({}, replies=1) as front:
        for server in column.servers.values():
            server.always(BAD_CALL)
        body = Client("whole", tools=True).body()
        response = await front.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 422, response.text
        await asyncio.to_thread(litellm_inside.stop)  # by SIGTERM
    store = open_store(from_mapping({"state": {"path": str(litellm_inside.run_dir / STATE)}}))
    await store.open()
    request_id = response.headers["x-mlx-stack-request-id"]
    found = await store.events(EventQuery(request_id=request_id))
    await store.close()
    kinds = [event["kind"] for _, event in found]
    assert kinds.count("tool_call_invalid") == 4
    assert kinds[-1] == "exhausted"
