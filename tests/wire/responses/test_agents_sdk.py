"""OpenAI's Agents SDK, unchanged: its default is this protocol."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wire.responses.made import call
from tests.wire.responses.scripted_model import ScriptedModel

agents = pytest.importorskip("agents")


def agent_of(model: ScriptedModel, **more: Any) -> Any:
    agents.set_tracing_disabled(True)
    agents.set_default_openai_client(model.async_client(), use_for_tracing=False)

    def weather(city: str) -> str:
        """The weather in a city."""
        return f"Rain in {city}."

    tools = [agents.function_tool(weather)]
    return agents.Agent(name="Bo", instructions="Be brief.", tools=tools, model="fast", **more)


def script() -> ScriptedModel:
    thought = {"reasoning_content": "I look."}
    return ScriptedModel([thought, call("weather", '{"city":"Oslo"}')], [{"content": "It rains."}])


def check(model: ScriptedModel) -> None:
    first, second = (asked["messages"] for asked in model.asked)
    assert [message["role"] for message in first] == ["system", "user"]
    assert second[: len(first)] == first
    assert second[-1] == {"role": "tool", "tool_call_id": "call_1", "content": "Rain in Oslo."}


async def test_a_streamed_run_with_a_tool() -> None:
    model = script()
    run = agents.Runner.run_streamed(agent_of(model), "How is Oslo?")
    kinds = [event.type async for event in run.stream_events()]
    assert "run_item_stream_event" in kinds
    assert run.final_output == "It rains."
    check(model)
