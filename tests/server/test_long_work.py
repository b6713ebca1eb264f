"""What costs much is bounded: schemas, long messages, many choices."""

from __future__ import annotations

import json

from tests.server.asking import ask
from tests.server.calling import calling
from tests.server.conftest import StartProxy
from tests.server.polling import metric_value
from tests.support.scripted_server import ScriptedServer
from tests.tool_validation.test_validation_cost import LARGE, TOO_LARGE


async def test_an_unchecked_call_is_counted(
    upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy()
    arguments = json.dumps(TOO_LARGE)
    upstream.will(calling(arguments, name="f"))
    tools = [{"type": "function", "function": {"name": "f", "parameters": LARGE}}]
    response = await ask(proxy, tools=tools)
    message = response.json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == arguments
    text = (await proxy.client.get("/metrics")).text
    assert metric_value(text, "mlx_stack_unchecked_tool_calls_total") == 1
