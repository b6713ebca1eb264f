"""Ask an OpenAI-compatible server one question, and judge whether an agent can use the reply."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from email.message import Message
from typing import Any

from ...frozen import frozen
from ...tool_validation.check import Options, check_call
from ...tool_validation.tools import tool_set
from ..remote.client import OPENER

MAX_TOKENS = 400  # ends a reply that would repeat itself for ever
SECONDS = 120.0  # limit for a reply
_AS_IT_CAME = Options(repair=False)


@frozen
class Server:
    """Where to ask."""

    url: str  # without /v1
    model: str  # the model's name on that server
    key: str = "local"


@frozen
class Reply:
    """A reply, or the error that came in its place."""

    written: str  # its text or its calls, in one line
    wrong: str  # why an agent can't use it; "": it can
    seconds: float  # until it was complete
    headers: Mapping[str, str]  # names in lower case

    def header(self, name: str) -> str:
        """Return the proxy's response header ``x-mlx-stack-NAME``, or ""."""
        return self.headers.get(f"x-mlx-stack-{name}", "")


class Unreachable(Exception):
    """The server can't be reached; the message says where and why."""


def ask(
    server: Server,
    question: str,
    tools: Sequence[Mapping[str, Any]],
    named: Mapping[str, str],
) -> Reply:
    """Ask once. ``named``: headers that name agent and session. Raises :class:`Unreachable`."""
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": question}],
        "tools": tools,
        "max_tokens": MAX_TOKENS,
    }
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {server.key}"}
    headers |= named
    url = f"{server.url}/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)  # noqa: S310
    began = time.monotonic()
    try:
        with OPENER.open(request, timeout=SECONDS) as answer:
            found, given = json.load(answer), answer.headers
    except urllib.error.HTTPError as error:
        said = error.read(2000).decode(errors="replace")
        return Reply(said, f"status {error.code}", time.monotonic() - began, _lower(error.headers))
    except urllib.error.URLError as error:
        raise Unreachable(f"nobody answers at {server.url}: {error.reason}") from None
    except (OSError, ValueError) as error:
        return Reply("", f"the connection broke: {error}", time.monotonic() - began, {})
    written, wrong = judged(found, tools)
    return Reply(written, wrong, time.monotonic() - began, _lower(given))


def _lower(headers: Message[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def judged(completion: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return what a completion says, in one line, and why an agent can't use it ("": it can).

    Each question of the demo needs a call, so that a reply of text alone counts as wrong.
    """
    choice = completion["choices"][0]
    message = choice["message"]
    calls = message.get("tool_calls") or []
    text = str(message.get("content") or message.get("reasoning") or "")
    if choice.get("finish_reason") == "length":
        return text, f"goes round until its limit of {MAX_TOKENS} tokens"
    if not calls and not text:
        return "(nothing)", "says that it calls a tool, and has no call"
    if not calls:
        return text, "a text, where a call is needed"
    offered = tool_set(tools)
    names_and_arguments = [(one["function"]["name"], one["function"]["arguments"]) for one in calls]
    checked = [check_call(*call, offered, _AS_IT_CAME) for call in names_and_arguments]
    wrong = next((failure.error for one in checked for failure in one.failures), "")
    return "  ".join(f"{name}({arguments})" for name, arguments in names_and_arguments), wrong
