"""Ask a tier's model for one token, a streamed reply, a tool call and a guided reply.

``replay`` runs the streamed replies through the stages, so that the lines of ``check`` can say what
the proxy would have repaired.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import orjson

from ..driver.services import upstream_key
from ..engine.upstream import CHAT_PATH, Upstream, UpstreamError
from ..engine.upstream_answers import completion_in, quoted_error
from ..engine.verdicts import Failure
from ..escalation.cloud import CHAT_PATH as DIRECT_PATH
from ..escalation.cloud import Cloud
from ..settings import Settings
from ..wire.thoughts import after_thoughts
from .asking import OWN_CHAT_HEADERS
from .replay import DELIVERED, REPAIRED, RESCUED, BadRecord, Replay, Replayed

Mark = Literal["ok", "note", "FAIL"]
MOST_SECONDS = 180.0  # limit for one answer: the server may have to load the model first
_TOOL_TOKENS, _REASONING_TOKENS = 256, 4096
_STREAM_TOKENS = 24
_OF_LITELLM = {"num_retries": 0, "disable_fallbacks": True}
_COUNT, _USE_TOOL = "Count from 1 to 9.", "What is the weather in Lima? Use the tool."
_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city, now.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "such as Lima"}},
            "required": ["city"],
        },
    },
}
CODE = "q7-violet-0413"  # nobody counts so without being made to
_GUIDE = {
    "type": "json_schema",
    "json_schema": {
        "name": "reply",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {"code": {"type": "string", "enum": [CODE]}},
            "required": ["code"],
            "additionalProperties": False,
        },
    },
}


class _Failed(Exception):
    """A question got no usable answer; the message says why, ``status`` is its 4xx or 5xx."""

    status = 0


class Probe:
    """Asks the models of a configuration's tiers, through LiteLLM.

    ``cloud``: ask the model of ``cloud_fallback`` there directly instead, whatever the tier.
    """

    def __init__(self, settings: Settings, upstream: Upstream, cloud: Cloud | None = None) -> None:
        self._settings = settings
        self._upstream = upstream if cloud is None else cloud.upstream
        self._path = CHAT_PATH if cloud is None else DIRECT_PATH
        self._headers = [*OWN_CHAT_HEADERS] if cloud is None else cloud.headers()
        fallback = settings.reliability.escalation.cloud_fallback
        self._model = None if cloud is None or fallback is None else fallback.model
        if cloud is None and (key := upstream_key(settings)):
            self._headers.append((b"authorization", f"Bearer {key}".encode()))

    async def tier(self, name: str) -> AsyncIterator[tuple[Mark, str]]:
        """Yield a mark and a text for each question; end at the first that got no usable answer."""
        tier = self._settings.tiers[name]
        tokens = _REASONING_TOKENS if tier.reasoning else _TOOL_TOKENS
        try:
            subject, began = "a one-token completion", time.monotonic()
            completion = completion_in(await self._ask(name, subject, _COUNT, max_tokens=1))
            if isinstance(completion, Failure):
                raise _Failed(f"{subject}: {completion.message}")
            yield "ok", f"answers ({time.monotonic() - began:.1f} s)"
            began = time.monotonic()
            answer, outcome = await self._streamed(name, _COUNT, max_tokens=_STREAM_TOKENS)
            yield _of_stream(answer, outcome, time.monotonic() - began)
            if tier.tools is False:
                yield "note", "not asked for a tool call: `tools: false`"
                return
            _, outcome = await self._streamed(name, _USE_TOOL, max_tokens=tokens, tools=[_TOOL])
            yield _of_tool_call(outcome)
            if tier.guided != "never" and (tier.local or tier.guided != "auto"):
                yield "ok", await self._guided(name, tokens)
        except _Failed as error:
            yield "FAIL", str(error)

    async def _guided(self, name: str, tokens: int) -> str:
        """Ask with a schema that only a server which obeys it satisfies; say whether it does."""
        form = {"max_tokens": tokens, "response_format": _GUIDE}
        try:
            completion = completion_in(await self._ask(name, "a guided reply", _COUNT, **form))
        except _Failed as error:
            refused = error.status == 501 or 400 <= error.status < 500
            did = "takes no JSON schema, so no retry is guided"
            did = did if refused else "gave no reply to a JSON schema"
            return f"{did} ({str(error)[:120]})"
        message = completion["choices"][0] if isinstance(completion, dict) else {}
        text = (message.get("message") or {}).get("content") or ""
        with contextlib.suppress(orjson.JSONDecodeError):
            if orjson.loads(after_thoughts(text)) == {"code": CODE}:
                tier = self._settings.tiers[name]
                thinks = tier.reasoning and tier.guided == "auto"
                advice = f"; set tiers.{name}.guided: retry" if thinks else ""
                return f"obeys a JSON schema, so retries can be guided{advice}"
        return "ignores a JSON schema, so no retry is guided"

    async def _streamed(
        self, name: str, question: str, **parameters: Any
    ) -> tuple[bytes, Replayed]:
        """Return a streamed answer and the stages' outcome for it. Raises :class:`_Failed`."""
        subject = "a streamed completion"
        options = {"stream": True, "stream_options": {"include_usage": True}, **parameters}
        answer = await self._ask(name, subject, question, **options)
        reply = {"stream": answer.decode("utf-8", "replace")}
        record = {"request": self._body(name, question, **parameters), "reply": reply, "tier": name}
        try:
            return answer, Replay(self._settings).record(record)
        except BadRecord as error:
            raise _Failed(f"{subject}: {error}") from None

    def _body(self, name: str, question: str, **parameters: Any) -> dict[str, Any]:
        tier = self._settings.tiers[name]
        own = {"model": self._model} if self._model else {"model": tier.model, **_OF_LITELLM}
        messages = [{"role": "user", "content": question}]
        return {"messages": messages, **tier.params, **own, **parameters}

    async def _ask(self, name: str, subject: str, question: str, **parameters: Any) -> bytes:
        """Ask one question; ``subject`` names it in errors. Raises :class:`_Failed`."""
        seconds = min(MOST_SECONDS, self._settings.tiers[name].total_timeout)
        body = orjson.dumps(self._body(name, question, **parameters))
        try:
            async with asyncio.timeout(seconds):
                status, answer = await self._upstream.fetch("POST", self._path, self._headers, body)
        except UpstreamError as error:
            raise _Failed(f"{subject}: {error}") from None
        except TimeoutError:
            raise _Failed(f"{subject}: not whole after {seconds:g} s") from None
        if status >= 400:
            failed = _Failed(f"{subject}: status {status}: {quoted_error(answer)}")
            failed.status = status
            raise failed
        return answer


def _of_stream(answer: bytes, outcome: Replayed, seconds: float) -> tuple[Mark, str]:
    if outcome.action != DELIVERED:
        return "FAIL", f"a streamed completion: {outcome.reason or outcome.error}"
    message = f"streams ({seconds:.1f} s)"
    if b'"total_tokens"' in answer:  # in the reply's text the quotes are escaped
        return "ok", message
    return "note", f"{message}, but reports no usage: budgets count the text's length"


def _of_tool_call(outcome: Replayed) -> tuple[Mark, str]:
    choices = outcome.reply["choices"] if outcome.reply is not None else []
    if outcome.action == RESCUED:
        return "ok", f"calls tools, written as text: {', '.join(outcome.formats)}"
    if outcome.action in (DELIVERED, REPAIRED):
        if not any(choice["message"].get("tool_calls") for choice in choices):
            return "note", "asked for a tool call, it answered with text"
        repairs = f", once repaired: {', '.join(outcome.repairs)}" if outcome.repairs else ""
        return "ok", f"calls tools{repairs}"
    errors = "; ".join(failure["error"] for failure in outcome.failures)
    errors = errors or outcome.reason or outcome.error
    return "note", f"asked for a tool call, it sent no usable one: {errors[:200]}"
