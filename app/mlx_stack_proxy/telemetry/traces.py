"""OpenTelemetry: one span for each exchange, with one span in it for each of its upstream calls.

The proxy imports this module only with ``observability.traces: true``, for which the extra ``otel``
has to be installed. Names are those of the GenAI semantic conventions; no prompt and no reply is in
a span. OpenTelemetry's own ``OTEL_*`` environment variables say where it sends the spans.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from .. import __version__
from ..daemon_threads import Worker
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.request import UpstreamRequest
from ..settings import Settings
from ..wire.reply import Reply
from ..wire.usage import output_limit
from .observers import Observer

CLOSE_SECONDS: Final = 5.0
MAX_NAME: Final = 128  # characters of a model's name, which the client may have made up
_W3C = TraceContextTextMapPropagator()
_CARRIED = (b"traceparent", b"tracestate")  # the headers that name a span's parent


class Traces:
    """The tracer of one process; ``of`` makes an exchange's observer."""

    name = "traces"

    def __init__(self, settings: Settings, provider: TracerProvider | None = None) -> None:
        """``provider``: None makes the one that the environment asks for; tests pass their own."""
        self._provider = provider or _provider()
        self._models = {name: tier.model for name, tier in settings.tiers.items()}
        self._tracer = self._provider.get_tracer("mlx-stack-proxy", __version__)

    def of(self, exchange: Exchange) -> Observer:
        return _Trace(self, exchange)

    async def close(self) -> None:
        """Send the spans that are left, for ``CLOSE_SECONDS`` at most."""
        worker = Worker("mlx-stack-traces")  # whose thread, if the collector hangs, delays no exit
        await asyncio.wait([worker.do(self._provider.shutdown)], timeout=CLOSE_SECONDS)
        worker.shutdown()

    def span(self, model: str, kind: SpanKind, parent: Any, began: int | None = None) -> Span:
        """Start a span that begins now, or at ``began`` (nanoseconds since the epoch)."""
        model = model[:MAX_NAME]
        return self._tracer.start_span(
            f"chat {model}",
            context=parent,
            kind=kind,
            start_time=began,
            attributes={
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": "litellm",
                "gen_ai.request.model": model,
            },
        )

    def model(self, tier: str) -> str:
        return self._models.get(tier, tier)


def _provider() -> TracerProvider:
    attributes = {} if os.environ.get("OTEL_SERVICE_NAME") else {SERVICE_NAME: "mlx-stack-proxy"}
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


class _Trace(Observer):
    """The spans of one exchange.

    The exchange's own span is made with its first call, because the call's headers name its parent.
    """

    name = Traces.name

    def __init__(self, traces: Traces, exchange: Exchange) -> None:
        self._traces = traces
        self._exchange = exchange
        self._began = time.time_ns()
        self._exchange_span: Span | None = None  # None: not begun yet
        self._calls: list[tuple[int, Span]] = []  # when each call began, and its span

    def call_begins(self, request: UpstreamRequest, headers: RawHeaders) -> RawHeaders:
        carried = {
            name.decode(): value.decode("latin-1") for name, value in headers if name in _CARRIED
        }
        parent = set_span_in_context(self._ensure_span(carried))
        began = time.time_ns()
        model = self._traces.model(request.tier)
        span = self._traces.span(model, SpanKind.CLIENT, parent, began)
        span.set_attribute("mlx_stack.tier", request.tier)
        if isinstance(limit := output_limit(request.body), int):
            span.set_attribute("gen_ai.request.max_tokens", limit)
        self._calls.append((began, span))
        trace_headers: dict[str, str] = {}
        _W3C.inject(trace_headers, set_span_in_context(span))
        return [
            *(header for header in headers if header[0] not in _CARRIED),
            *((name.encode(), value.encode()) for name, value in trace_headers.items()),
        ]

    def ended(self, outcome: str) -> None:
        exchange, whole = self._exchange, self._ensure_span({})
        for (began, span), call in zip(self._calls, exchange.attempts, strict=False):
            for described in (span, whole) if call.reason is None else (span,):
                _describe(described, call.reply)
            figures = call.figures
            if figures.status is not None:
                span.set_attribute("http.response.status_code", figures.status)
            _end(span, call.reason, began + int(figures.seconds * 1e9))
        for _, span in self._calls[len(exchange.attempts) :]:
            _end(span, outcome)
        whole.set_attributes(
            {
                "mlx_stack.tier": exchange.tier,
                "mlx_stack.outcome": outcome,
                "mlx_stack.attempts": len(exchange.attempts),
                "mlx_stack.retries": exchange.retries,
            }
        )
        if exchange.escalated_from:
            whole.set_attribute("mlx_stack.escalated_from", exchange.escalated_from)
        _end(whole, None if outcome == "ok" else outcome)

    def _ensure_span(self, carried: dict[str, str]) -> Span:
        if self._exchange_span is None:
            request = self._exchange.request
            parent = _W3C.extract(carried)
            self._exchange_span = self._traces.span(
                request.model or request.route.first, SpanKind.SERVER, parent, self._began
            )
            self._exchange_span.set_attributes(
                {
                    "gen_ai.conversation.id": request.session.hash,
                    "mlx_stack.request_id": request.id,
                }
            )
        return self._exchange_span


def _describe(span: Span, reply: Reply | None) -> None:
    if reply is None:
        return
    if reply.usage is not None:
        span.set_attribute("gen_ai.usage.input_tokens", reply.usage.prompt_tokens)
        span.set_attribute("gen_ai.usage.output_tokens", reply.usage.completion_tokens)
    choices = [choice for _, choice in sorted(reply.choices.items())]
    reasons = [choice.finish_reason for choice in choices if choice.finish_reason]
    if reasons:
        span.set_attribute("gen_ai.response.finish_reasons", reasons)


def _end(span: Span, reason: str | None, at: int | None = None) -> None:
    """End a span ``at`` a time in nanoseconds since the epoch; None: now."""
    if reason is not None:
        span.set_attribute("error.type", reason)
        span.set_status(Status(StatusCode.ERROR, reason))
    span.end(at)
