"""A Messages request as one of a chat completion.

The same transcript becomes the same messages, turn by turn: what was sent before is the beginning
of what is sent now, byte for byte, so that prompt caches hold. A system's words in the midst of it
stay in their place, as a reminder of the user's: chat templates take them nowhere but at the head,
and a head that grows each turn is read anew each turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import INVALID_REQUEST, ProxyError, invalid
from ..dialect import SessionName, Translated
from ..prompt_size import estimate_prompt_tokens
from ..shared import REMINDER
from .content import (
    BETWEEN,
    Json,
    Part,
    Refuse,
    assistant_message,
    joined,
    text_in,
    tools_referred_to,
    user_content,
)
from .tools import offer

# The client's version and a digest of its own, which change from turn to turn.
_BILLING = "x-anthropic-billing-header:"
_SAME = ("model", "max_tokens", "temperature", "top_p", "top_k", "stream")
_SESSION = "x-claude-code-session-id"
_AGENT = "x-claude-code-agent-id"
_MOST_NAME = 256  # characters of a session's and an agent's name that count


def to_chat(body: Json, headers: Mapping[str, str]) -> Translated:
    """The chat completion that a request asks for. Raises :class:`ProxyError` (400)."""
    if body.get("thread") is not None:
        # Only new messages follow: ignored, it would lose the history. The SDK knows this code, and
        # goes on with whole transcripts.
        said = "threads are not kept here; send the whole transcript"
        code = "thread_unsupported_request"
        raise ProxyError(400, INVALID_REQUEST, said, param="thread", code=code)
    chat, left_out, failed = _translated(body, _refuse)
    return Translated(chat, left_out=left_out, session=_session(headers), failed=failed)


def count_tokens(body: Json) -> Json:
    """About how many tokens a request has for a model here; it may hold what no model takes."""
    chat, *_ = _translated(body, lambda message, where: None)
    return {"input_tokens": estimate_prompt_tokens(chat)}


def _refuse(message: str, where: str) -> None:
    raise invalid(f"`{where}` {message}", where)


def _translated(body: Json, refuse: Refuse) -> tuple[Json, tuple[str, ...], frozenset[str]]:
    """The chat completion, what is left out, and the calls that failed."""
    transcript = _Transcript(body.get("system"), refuse)
    messages = body.get("messages")
    for position, message in enumerate(messages if isinstance(messages, list) else ()):
        transcript.add(message, f"messages[{position}]")
    offered = offer(body, transcript.loaded, refuse)
    chat = {key: body[key] for key in _SAME if body.get(key) is not None}
    chat["messages"] = transcript.messages() if isinstance(messages, list) else messages
    if (stop := body.get("stop_sequences")) is not None:
        chat["stop"] = stop
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    if schema := _schema(body):
        form = {"name": "output", "schema": schema, "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": form}
    return {**chat, **offered.fields}, offered.left_out, frozenset(transcript.failed)


def _schema(body: Json) -> Any:
    """The JSON schema that the reply is to follow, in the newer or the older field."""
    config = body.get("output_config")
    wanted = config.get("format") if isinstance(config, dict) else body.get("output_format")
    return wanted.get("schema") if isinstance(wanted, dict) else None


class _Transcript:
    """Takes the messages in their order.

    ``loaded``: the tools that results have named; ``failed``: calls whose results are errors.
    """

    def __init__(self, system: Any, refuse: Refuse) -> None:
        self._refuse = refuse
        self._messages: list[Json] = []
        self._said: list[Part] = []  # by the user, since the last message that isn't one's
        self._head = _system_texts(system, "system", refuse)
        self._is_head = True
        self.loaded: set[str] = set()
        self.failed: set[str] = set()

    def add(self, message: Any, where: str) -> None:
        """Take the next one; ``where`` it stands."""
        role = message.get("role") if isinstance(message, dict) else None
        place = f"{where}.content"
        if role == "system":
            self._add_system(message.get("content"), place)
        elif role == "user":
            self._is_head = False
            self._add_user(message.get("content"), place)
        elif role == "assistant":
            self._is_head = False
            self._end_of_user()
            said = assistant_message(message.get("content"), place, self._refuse)
            self._messages.append(said)
        else:
            self._refuse("must be `user`, `assistant` or `system`", f"{where}.role")

    def messages(self) -> list[Json]:
        """All of them, the system's first."""
        self._end_of_user()
        if not self._head:
            return self._messages
        return [{"role": "system", "content": BETWEEN.join(self._head)}, *self._messages]

    def _add_system(self, content: Any, where: str) -> None:
        texts = _system_texts(content, where, self._refuse)
        if self._is_head:
            self._head += texts
        elif texts:
            self._said.append(REMINDER.format(BETWEEN.join(texts)))

    def _add_user(self, content: Any, where: str) -> None:
        said = user_content(content, where, self._refuse)
        # Before what has been said: nothing may stand between a call and its result.
        self._messages += said.results
        self._said += said.parts
        self.failed |= said.failed
        if said.results:
            for block in content:
                if isinstance(block, dict):
                    self.loaded.update(tools_referred_to(block))

    def _end_of_user(self) -> None:
        if self._said:
            self._messages.append({"role": "user", "content": joined(self._said)})
            self._said = []


def _system_texts(content: Any, where: str, refuse: Refuse) -> list[str]:
    texts = text_in(content, where, refuse)
    return [text for text in texts if not text.startswith(_BILLING)]


def _session(headers: Mapping[str, str]) -> SessionName | None:
    """Claude Code's: each agent has a history of its own, and all of a session one budget."""
    session = headers.get(_SESSION, "").strip()[:_MOST_NAME]
    if not session:
        return None
    agent = headers.get(_AGENT, "").strip()[:_MOST_NAME]
    return SessionName(_SESSION, f"{session}\0{agent}" if agent else session, session)
