"""The start and the end of a LiteLLM that has the reliability layer in its process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.state import open_store
from mlx_stack_proxy.state.store import EventQuery
from tests.faults.catalogue import BAD_CALL, inside_settings
from tests.faults.clients import Client
from tests.faults.litellm import START_SECONDS, LiteLLM
from tests.support.ports import free_port
from tests.support.scripted_server import ScriptedServer


def test_settings_that_cannot_hold_are_said_and_it_does_not_start(tmp_path: Path) -> None:
    config = {**inside_settings(), "server": {"api_keys": ["sk-1"]}}
    litellm = LiteLLM(tmp_path, free_port(), {}, inside=config)
    try:
        assert litellm.process.wait(START_SECONDS) != 0
    finally:
        litellm.stop()
    said = "server.api_keys: can't be set inside LiteLLM: LiteLLM lets clients in, by its own keys"
    assert said in litellm.log.read_text()


async def test_what_it_kept_outlives_its_end(tmp_path: Path) -> None:
    config = {**inside_settings(), "state": {"path": str(tmp_path / "state.db")}}
    async with ScriptedServer() as server:
        ports = {"fast": server.port, "standard": server.port}
        server.always(BAD_CALL)
        litellm = LiteLLM(tmp_path, free_port(), ports, inside=config)
        try:
            await asyncio.to_thread(litellm.wait_ready)
            key = {"Authorization": f"Bearer {litellm.key}"}
            async with httpx.AsyncClient(base_url=litellm.url, headers=key, timeout=60) as client:
                body = Client("whole", tools=True).body()
                response = await client.post("/v1/chat/completions", json=body)
                assert response.status_code == 422, response.text
        finally:
            await asyncio.to_thread(litellm.stop)  # by SIGTERM
    store = open_store(from_mapping({"state": config["state"]}))
    await store.open()
    kinds = [event["kind"] for _, event in await store.events(EventQuery())]
    await store.close()
    assert kinds.count("tool_call_invalid") == 4
    assert kinds[-1] == "exhausted"
