"""What a reply that was cut has cost is counted, though no usage ever comes for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.server.looping import TOOLS
from tests.server.polling import metric_value
from tests.support.replies import stream, text_chunks, with_role
from tests.support.scripted_server import ScriptedServer

Json = dict[str, Any]
LAP = "The same sentence comes again and again. "
NAMED = {"X-MLX-Stack-Session": "run-11"}


async def used(proxy: Any) -> int:
    return int((await proxy.client.get("/mlx-stack/sessions/run-11")).json()["used"])


@pytest.mark.parametrize("on_break", ["error", "stop"])
async def test_a_text_that_was_cut(
    on_break: str, upstream: ScriptedServer, start_proxy: StartProxy
) -> None:
    upstream.will(stream(text_chunks(*[LAP] * 400), usage=False))
    proxy = await start_proxy({"reliability.loop_detection.on_break": on_break})
    response = await ask(proxy, NAMED, stream=True)
    assert "circuit_break;detector=generation" in response.text + str(response.headers)
    text = (await proxy.client.get("/metrics")).text
    output = metric_value(text, "mlx_stack_tokens_total", tier="fast", direction="output") or 0
    assert output >= 9 * len(LAP) // 4, "all that was generated, not only what was kept"
    assert output < 400 * len(LAP) // 4, "and no more"
    assert await used(proxy) > output


async def test_calls_that_were_cut(upstream: ScriptedServer, start_proxy: StartProxy) -> None:
    """The third is not delivered, but was generated."""
    function = {"name": "look", "arguments": json.dumps({"key": "x" * 400})}
    calls = [
        {"tool_calls": [{"index": n, "id": f"c{n}", "type": "function", "function": function}]}
        for n in range(9)
    ]
    upstream.will(stream(with_role(*calls, finish="tool_calls"), usage=False))
    proxy = await start_proxy()
    response = await ask(proxy, NAMED, stream=True, tools=TOOLS)
    assert response.status_code == 200
    text = (await proxy.client.get("/metrics")).text
    output = metric_value(text, "mlx_stack_tokens_total", tier="fast", direction="output") or 0
    assert 3 * 100 <= output < 5 * 100
    assert await used(proxy) > output
