"""OpenTelemetry spans: one an exchange, one a call; and nothing where they are not wanted."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from mlx_stack_proxy.telemetry import traces
from mlx_stack_proxy.telemetry.traces import Traces
from tests.server.asking import ask
from tests.server.conftest import StartProxy
from tests.server.failing import SETTINGS
from tests.server.polling import until_metric
from tests.support.replies import litellm_error, text_stream
from tests.support.running_proxy import RunningProxy
from tests.support.scripted_server import SILENCE, Reply, ScriptedServer

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
async def proxy(
    upstream: ScriptedServer, start_proxy: StartProxy, exporter: InMemorySpanExporter
) -> RunningProxy:
    upstream.models = ("qwen", "standard")
    running = await start_proxy(
        {**SETTINGS, "tiers.fast": {"model": "qwen", "first_token_timeout": 1.0}}
    )
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    running.services.observers = (Traces(running.services.settings, provider).of,)
    return running


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_an_exchange_and_its_calls(
    proxy: RunningProxy, exporter: InMemorySpanExporter
) -> None:
    proxy.upstream.will(*[litellm_error(500, "no")] * 2, text_stream())
    response = await ask(proxy, {"traceparent": PARENT, "tracestate": "a=b"})
    assert response.status_code == 200
    *calls, whole = exporter.get_finished_spans()
    assert [span.name for span in (whole, *calls)] == [
        *("chat fast", "chat qwen", "chat qwen", "chat standard"),
    ]
    assert whole.kind is SpanKind.SERVER and {one.kind for one in calls} == {SpanKind.CLIENT}
    assert f"{whole.context.trace_id:032x}" == PARENT[3:35], "the client's trace goes on"
    assert whole.parent is not None and f"{whole.parent.span_id:016x}" == PARENT[36:52]
    assert [one.parent.span_id for one in calls if one.parent] == [whole.context.span_id] * 3
    sent = [call.header("traceparent") for call in proxy.upstream.calls]
    assert sent == [f"00-{PARENT[3:35]}-{one.context.span_id:016x}-01" for one in calls]
    failed, _, good = map(said, calls)
    assert (failed["error.type"], failed["http.response.status_code"]) == ("server_error", 500)
    assert calls[0].status.status_code is StatusCode.ERROR
    assert good["mlx_stack.tier"] == "standard" and "error.type" not in good
    assert (good["gen_ai.usage.input_tokens"], good["gen_ai.usage.output_tokens"]) == (9, 4)
    assert good["gen_ai.response.finish_reasons"] == ("stop",)
    whole_said = said(whole)
    assert whole_said["gen_ai.usage.output_tokens"] == 4
    assert whole_said["gen_ai.operation.name"] == "chat"
    assert whole_said["gen_ai.request.model"] == "fast"
    assert whole_said["mlx_stack.request_id"] == response.headers["x-request-id"]
    assert (whole_said["mlx_stack.attempts"], whole_said["mlx_stack.outcome"]) == (3, "ok")
    assert whole_said["mlx_stack.escalated_from"] == "fast"
    told = " ".join(map(str, [said(one) for one in (whole, *calls)]))
    assert "quokka" not in told and "Hello" not in told, "neither prompt nor reply"


async def test_an_exchange_that_fails_and_one_that_is_left(
    proxy: RunningProxy, exporter: InMemorySpanExporter
) -> None:
    proxy.upstream.will(litellm_error(400, "what?"))
    await ask(proxy)
    call, whole = exporter.get_finished_spans()
    assert said(whole)["error.type"] == said(call)["error.type"] == "client_error"
    exporter.clear()
    proxy.upstream.will(Reply.sse(SILENCE))
    asking = asyncio.create_task(ask(proxy))
    await proxy.upstream.next_call()
    await proxy.upstream.next_call()
    asking.cancel()
    await until_metric(proxy, "mlx_stack_requests_total", 1, outcome="client_left", tier="fast")
    call, whole = exporter.get_finished_spans()
    assert said(whole)["error.type"] == said(call)["error.type"] == "client_left"


async def test_a_fault_of_its_own_breaks_no_reply(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(traces, "_describe", broken)
    proxy.upstream.always(text_stream())
    assert (await ask(proxy)).status_code == 200
    await until_metric(proxy, "mlx_stack_stage_faults_total", 1, stage="traces")


def test_without_it_nothing_is_imported_and_what_is_missing_is_said() -> None:
    """Nor with the extra installed, as it is here; what FastAPI itself imports is its affair."""
    code = """
import sys
import fastapi
before = set(sys.modules)
from mlx_stack_proxy.main import build_services
from mlx_stack_proxy.settings_source import SettingsError, from_mapping
build_services(from_mapping({"state": {"backend": "memory"}}))
print([name for name in set(sys.modules) - before if name.startswith("opentelemetry")])
print([name for name in sys.modules if name.startswith("opentelemetry.sdk")])
sys.modules["opentelemetry.sdk"] = None
try:
    settings = {"state": {"backend": "memory"}, "observability": {"traces": True}}
    build_services(from_mapping(settings))
except SettingsError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[]\n[]\n")
    assert "install the extra `otel` (from a checkout: pip install '.[otel]')" in done.stdout


async def test_switched_on_it_is_there(start_proxy: StartProxy) -> None:
    """With nobody to send spans to: the end of the process does not wait for that."""
    proxy = await start_proxy({"observability": {"traces": True, "log_format": "json"}})
    assert isinstance(proxy.services.traces, Traces)
    assert len(proxy.services.observers) == 1
