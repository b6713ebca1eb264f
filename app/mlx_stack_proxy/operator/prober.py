"""The prober of ``init``, ``check`` and ``up``: what servers are, have, and can do.

:class:`LiteLLM` lists its models; :class:`Probe` asks a tier's model for one token, a streamed
reply, a tool call and a guided reply. ``replay`` runs the streamed replies through the stages, so
that the lines of ``check`` can say what the proxy would have repaired.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from ..driver.services import upstream_key
from ..engine.headers import RawHeaders
from ..engine.model_list import ASK_SECONDS, NOT_LITELLM, OWNER, names_in
from ..engine.upstream import CHAT_HEADERS, CHAT_PATH, LIVENESS_PATH, Upstream, UpstreamError
from ..engine.upstream_answers import completion_in, quoted_error
from ..engine.verdicts import Failure
from ..escalation.cloud import CHAT_PATH as DIRECT_PATH
from ..escalation.cloud import Cloud
from ..setting_types import without_v1
from ..settings import Settings, UpstreamSettings
from ..wire.thoughts import after_thoughts
from .replay import DELIVERED, REPAIRED, RESCUED, BadRecord, Replay, Replayed

_SET = "set upstream.base_url (with init: --base-url)"
RIGHT_ADDRESS = f"{_SET} to where LiteLLM listens, such as http://127.0.0.1:4000"
# Of each question to a model: the report names who asked, if the layer is inside that LiteLLM.
OWN_CHAT_HEADERS = [*CHAT_HEADERS, (b"user-agent", b"mlx-stack-proxy")]
# The statuses with which LiteLLM answers a wrong key; 400 if it has no database.
_REFUSED = (400, 401, 403)

Mark = Literal["ok", "note", "FAIL"]
MOST_SECONDS = 180.0  # limit for one answer: the server may have to load the model first
_TOOL_TOKENS, _REASONING_TOKENS = 256, 4096
_STREAM_TOKENS = 24
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
CODE = "q7-violet-0413"  # a value that a model writes only if a schema forces it
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


async def fetch(
    url: str,
    headers: RawHeaders | None = None,
    body: bytes | None = None,
    *,
    seconds: float | None = None,
) -> tuple[int, bytes]:
    """Ask a server once, within ``seconds``, by POST if there is a body; return status and body.

    Raises ``UpstreamError``, ``TimeoutError``.
    """
    parts = urlsplit(url)
    server = Upstream(UpstreamSettings(base_url=f"{parts.scheme}://{parts.netloc}"))
    try:
        async with asyncio.timeout(seconds):
            method, path = "POST" if body else "GET", parts.path or "/"
            return await server.fetch(method, path, headers or [], body)
    finally:
        await server.aclose()


async def one_token(
    url: str, model: str, key: str = "unused", seconds: float | None = None
) -> tuple[int, bytes]:
    """Ask a model of the URL's server for a token; return status and body. Raises as ``fetch``."""
    question = [{"role": "user", "content": "Hello"}]
    body = orjson.dumps({"model": model, "messages": question, "max_tokens": 1})
    headers = [*OWN_CHAT_HEADERS, (b"authorization", f"Bearer {key}".encode())]
    parts = urlsplit(url)
    chat = f"{parts.scheme}://{parts.netloc}{CHAT_PATH}"
    return await fetch(chat, headers, body, seconds=seconds)


def brief(status: int, body: bytes) -> str:
    """Return an answer on one line."""
    text = " ".join(body.decode(errors="replace").split())
    return f"HTTP {status}: {text[:200]}".rstrip(": ")


async def chat_template(api_base: str) -> str:
    """Return the chat template that llama.cpp's server shows; "" if none. No key is sent."""
    try:
        _, body = await fetch(f"{without_v1(api_base)}/props", seconds=ASK_SECONDS)
        return str(orjson.loads(body)["chat_template"])
    except (UpstreamError, TimeoutError, ValueError, LookupError, TypeError):
        return ""


class NoModels(Exception):
    """LiteLLM didn't list its models; the message says why.

    ``next_step`` says what to do about it, ``reached`` whether LiteLLM answered at all.
    """

    def __init__(self, why: str, next_step: str, *, reached: bool = True) -> None:
        super().__init__(why)
        self.next_step = next_step
        self.reached = reached


class LiteLLM:
    """A LiteLLM to ask; close it with :meth:`aclose`.

    ``variable``: the environment variable that ``key`` is read from, for the advice.
    """

    def __init__(self, settings: UpstreamSettings, key: str | None, variable: str | None) -> None:
        self.upstream = Upstream(settings)
        self.aclose = self.upstream.aclose
        self._key, self._variable = key, variable

    async def models(self) -> bytes:
        """Return the body of ``/v1/models``. Raises :class:`NoModels`."""
        try:
            status, body = await self._get("/v1/models")
        except (UpstreamError, TimeoutError) as error:
            next_step = f"start it, or {_SET} to its address"
            raise NoModels(str(error) or "no answer in time", next_step, reached=False) from None
        if status == 200 and names_in(body) is not None:
            # LiteLLM with the reliability layer inside lists our names, too, and has its own paths.
            entries = [entry for entry in orjson.loads(body)["data"] if isinstance(entry, dict)]
            if any(e.get("owned_by") == OWNER for e in entries) and not await self.is_litellm():
                raise NoModels("is an mlx-stack-proxy, not LiteLLM", RIGHT_ADDRESS)
            return body
        if status in NOT_LITELLM:  # no key would bring a list from there
            why = f"answered status {status} without a list of models, so it is not LiteLLM"
            raise NoModels(why, RIGHT_ADDRESS)
        # Without a key the status may also be 500: LiteLLM without a database fails to answer 401.
        variable, refused = self._variable, status in _REFUSED
        why = "refused the key" if self._key and refused else f"answered status {status}"
        why += f" when asked for its models{'' if self._key else ' without a key'}"
        if self._key and not refused:
            raise NoModels(why, "read LiteLLM's log")
        if variable is None:
            why += " (upstream.api_key_env names no variable)"
            step = "name the variable that holds LiteLLM's key in upstream.api_key_env"
            raise NoModels(why, step)
        why += f" (${variable} is {'set' if os.environ.get(variable) else 'not set'})"
        step = f"export {variable}=… with LiteLLM's master key, here and where the proxy runs"
        raise NoModels(why, step)

    async def is_litellm(self) -> bool:
        """Whether LiteLLM's own path is there, which a model server lacks; True if unknown."""
        try:
            return (await self._get(LIVENESS_PATH, key=False))[0] != 404
        except (UpstreamError, TimeoutError):
            return True

    async def details(self) -> Any:
        """Return the answer of ``/v1/model/info``; None if LiteLLM fails or refuses the key."""
        try:
            return orjson.loads((await self._get("/v1/model/info"))[1])
        except (UpstreamError, TimeoutError, orjson.JSONDecodeError):
            return None

    async def _get(self, path: str, *, key: bool = True) -> tuple[int, bytes]:
        """Ask once; ``key``: whether LiteLLM's key is sent, if there is one."""
        bearer = [(b"authorization", f"Bearer {self._key}".encode())] if key and self._key else []
        async with asyncio.timeout(ASK_SECONDS):
            return await self.upstream.fetch("GET", path, bearer)


class _Failed(Exception):
    """A question got no usable answer; the message says why, ``status`` is its 4xx or 5xx."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


class Probe:
    """Asks the models of a configuration's tiers, through LiteLLM.

    ``cloud``: ask the model of ``cloud_fallback`` there directly instead, whatever the tier.
    """

    def __init__(self, settings: Settings, upstream: Upstream, cloud: Cloud | None = None) -> None:
        self._settings = settings
        fallback = settings.reliability.escalation.cloud_fallback
        if cloud is not None and fallback is not None:
            self._upstream, self._path, self._headers = cloud.upstream, DIRECT_PATH, cloud.headers()
            self._own: dict[str, Any] = {"model": fallback.model}
        else:
            self._upstream, self._path, self._headers = upstream, CHAT_PATH, [*OWN_CHAT_HEADERS]
            self._own = {"num_retries": 0, "disable_fallbacks": True}
            if key := upstream_key(settings):
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
            streams = f"streams ({time.monotonic() - began:.1f} s)"
            if outcome.action != DELIVERED:
                yield "FAIL", f"a streamed completion: {outcome.reason or outcome.error}"
            elif b'"total_tokens"' in answer:  # in the reply's text the quotes are escaped
                yield "ok", streams
            else:
                yield "note", f"{streams}, but reports no usage: budgets count the text's length"
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
            did = "accepts no JSON schema, so retries are not guided"
            did = did if refused else "gave no reply to a JSON schema request"
            return f"{did} ({str(error)[:120]})"
        choice = completion["choices"][0] if isinstance(completion, dict) else {}
        text = (choice.get("message") or {}).get("content") or ""
        with contextlib.suppress(orjson.JSONDecodeError):
            if orjson.loads(after_thoughts(text)) == {"code": CODE}:
                tier = self._settings.tiers[name]
                thinks = tier.reasoning and tier.guided == "auto"
                advice = f"; set tiers.{name}.guided: retry" if thinks else ""
                return f"obeys a JSON schema, so retries can be guided{advice}"
        return "ignores a JSON schema, so retries are not guided"

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
        messages = [{"role": "user", "content": question}]
        return {"messages": messages, **tier.params, "model": tier.model, **self._own, **parameters}

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
            raise _Failed(f"{subject}: not complete after {seconds:g} s") from None
        if status >= 400:
            raise _Failed(f"{subject}: status {status}: {quoted_error(answer)}", status)
        return answer


def _of_tool_call(outcome: Replayed) -> tuple[Mark, str]:
    choices = outcome.reply["choices"] if outcome.reply is not None else []
    if outcome.action == RESCUED:
        return "ok", f"calls tools, but writes them as text: {', '.join(outcome.formats)}"
    if outcome.action in (DELIVERED, REPAIRED):
        if not any(choice["message"].get("tool_calls") for choice in choices):
            return "note", "asked for a tool call, it answered with text"
        repairs = f", after repair: {', '.join(outcome.repairs)}" if outcome.repairs else ""
        return "ok", f"calls tools{repairs}"
    errors = "; ".join(failure["error"] for failure in outcome.failures)
    errors = errors or outcome.reason or outcome.error
    return "note", f"asked for a tool call, it sent no usable one: {errors[:200]}"
