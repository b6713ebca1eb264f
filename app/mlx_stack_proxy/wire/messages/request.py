"""Translates a Messages request into a chat completion's.

A block that chat completions lack becomes text, its own JSON: a model may read it, and the history
stays complete. An image or document from a source that can't be read here raises
:class:`ProxyError` (400).

A tool with a schema is the client's own and is offered. A tool without one has a type defined by
Anthropic. The client runs some of these tools, but sends no schema, because Anthropic's models were
trained on it; Anthropic's servers run the others. The tiers' models know neither kind. A deferred
tool (``defer_loading``) is offered once a result has named it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson
from msgspec.structs import replace

from ...errors import INVALID_REQUEST, ProxyError
from ..call import as_function
from ..delta import string_of
from ..dialect import SessionName, Translated
from ..fields import STRING, each, members, objects, refused, require, string_or
from ..prompt_size import estimate_prompt_tokens
from ..transcript import BETWEEN, IMAGE_FOLLOWS, Json, Part, Transcript

# Begins a system text with the client's version and a digest, which change every turn.
_BILLING = "x-anthropic-billing-header:"
_COPIED = ("model", "max_tokens", "temperature", "top_p", "top_k", "stream")
_SESSION = "x-claude-code-session-id"
_AGENT = "x-claude-code-agent-id"
# The fields whose types the translation relies on.
_CHECKS = {
    "tools": each(members(type=STRING, name=STRING, description=STRING)),
    "tool_choice": string_or(members(type=STRING, name=STRING)),
}
_MAX_NAME = 256  # characters of a session's or an agent's name; the rest is ignored
_ERROR = "Error: "  # marks an error's result: chat completions have no flag for it
# Type prefixes of the tools that the client runs without sending a schema.
_CLIENTS_OWN = ("bash_", "text_editor_", "memory_", "computer_")
_CHOICES: Final[dict[Any, str]] = {"auto": "auto", "any": "required", "none": "none"}


def to_chat(body: Json, headers: Mapping[str, str]) -> Translated:
    """Translate a request. Raises :class:`ProxyError` (400)."""
    if body.get("thread") is not None:
        # A request to a thread has only the new messages, so its history would be lost. The SDK
        # reacts to this code by sending whole transcripts.
        message = "threads are not kept here; send the whole transcript"
        code = "thread_unsupported_request"
        raise ProxyError(400, INVALID_REQUEST, message, param="thread", code=code)
    translated = _translated(body)
    return replace(translated, session=_session(headers))


def count_tokens(body: Json) -> Json:
    """Estimate a request's prompt tokens, even if :func:`to_chat` refuses the request."""
    try:
        chat_body = _translated(body).body
    except ProxyError:
        chat_body = body
    return {"input_tokens": estimate_prompt_tokens(chat_body)}


def _translated(body: Json) -> Translated:
    require(body, _CHECKS)
    reader, messages = _MessageReader(), body.get("messages")
    reader.message({"role": "system", "content": body.get("system")}, "system", "system")
    for position, message in enumerate(messages if isinstance(messages, list) else ()):
        path = f"messages[{position}]"
        reader.message(message if isinstance(message, dict) else {}, path, f"{path}.content")
    fields, left_out = _offered(body, reader.loaded)
    chat = {key: body[key] for key in _COPIED if body.get(key) is not None}
    chat["messages"] = reader.transcript.messages() if isinstance(messages, list) else messages
    if (stop := body.get("stop_sequences")) is not None:
        chat["stop"] = stop
    if chat.get("stream"):
        chat["stream_options"] = {"include_usage": True}
    config = body.get("output_config")
    format_ = config.get("format") if isinstance(config, dict) else body.get("output_format")
    if schema := format_.get("schema") if isinstance(format_, dict) else None:
        form = {"name": "output", "schema": schema, "strict": True}
        chat["response_format"] = {"type": "json_schema", "json_schema": form}
    return Translated(chat | fields, left_out=left_out, failed=frozenset(reader.failed))


def _session(headers: Mapping[str, str]) -> SessionName | None:
    """Return Claude Code's session: each agent has its own history, but all share one budget."""
    session = headers.get(_SESSION, "").strip()[:_MAX_NAME]
    if not session:
        return None
    agent = headers.get(_AGENT, "").strip()[:_MAX_NAME]
    return SessionName(_SESSION, f"{session}\0{agent}" if agent else session, session)


class _MessageReader:
    """Reads messages into a transcript."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.loaded: set[str] = set()  # deferred tools that results have named
        self.failed: set[str] = set()  # ids of calls whose results are marked as errors

    def message(self, message: Json, path: str, content_path: str) -> None:
        role, content = message.get("role"), message.get("content")
        if role == "system":
            texts = _texts(content, content_path)
            self.transcript.system([text for text in texts if not text.startswith(_BILLING)])
        elif role == "user":
            for block, block_path in _blocks(content, content_path):
                if block.get("type") == "tool_result":
                    self._result(block, block_path)
                elif part := _part(block, block_path):
                    self.transcript.user([part])
        elif role == "assistant":
            self._assistant(content, content_path)
        else:
            raise refused("must be `user`, `assistant` or `system`", f"{path}.role")

    def _assistant(self, content: Any, path: str) -> None:
        """Add an assistant's content. Calls keep their ids, arguments their order of fields."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[Json] = []
        for block, block_path in _blocks(content, path):
            kind = block.get("type")
            if kind == "tool_use":
                calls.append(block)
            elif kind == "thinking":
                thoughts.append(string_of(block.get("thinking")))
            elif isinstance(part := _part(block, block_path), str):
                texts.append(part)
        self.transcript.assistant("".join(texts), "".join(thoughts))
        for call in calls:
            arguments = orjson.dumps(call.get("input") or {}).decode()
            self.transcript.call(string_of(call.get("id")), string_of(call.get("name")), arguments)

    def _result(self, block: Json, path: str) -> None:
        """Add a result. Its images follow in the user's message."""
        texts: list[str] = []
        images: list[Json] = []
        for inner, block_path in _blocks(block.get("content"), f"{path}.content"):
            part = _part(inner, block_path)
            if isinstance(part, dict):
                images.append(part)
                part = IMAGE_FOLLOWS
            texts += [part] if part else []
            if inner.get("type") == "tool_reference":
                self.loaded.add(string_of(inner.get("tool_name")))
        text = BETWEEN.join(texts)
        call_id = string_of(block.get("tool_use_id"))
        if block.get("is_error") is True:
            self.failed.add(call_id)
            text = text if text.startswith(_ERROR.strip()) else _ERROR + text
        self.transcript.result(call_id, text, images)


def _texts(content: Any, path: str) -> list[str]:
    """Return the texts of a content that can hold only text blocks."""
    texts = [string_of(block.get("text")) for block, _ in _blocks(content, path)]
    return [text for text in texts if text]


def _blocks(content: Any, path: str) -> Iterator[tuple[Json, str]]:
    """Yield a content's blocks with their paths for errors; a string is one text block.

    Raises :class:`ProxyError` (400).
    """
    if isinstance(content, str):
        yield {"type": "text", "text": content}, path
        return
    for position, block in enumerate(objects(content, path, "a string or an array of blocks")):
        yield block, f"{path}[{position}]"


def _part(block: Json, path: str) -> Part:
    """Turn a block into text or an image; thinking becomes ""."""
    kind = block.get("type")
    convert = _PARTS.get(kind) if isinstance(kind, str) else None
    if convert is not None:
        return convert(block, path)
    return orjson.dumps(
        {key: value for key, value in block.items() if key != "cache_control"}
    ).decode()


def _image(block: Json, path: str) -> Json:
    source = _source(block)
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    elif source.get("type") == "url":
        url = string_of(source.get("url"))
    else:
        raise refused("can't be read here: send the image itself, or its URL", f"{path}.source")
    return {"type": "image_url", "image_url": {"url": url}}


def _document(block: Json, path: str) -> str:
    source = _source(block)
    title = [text] if (text := string_of(block.get("title"))) else []
    if source.get("type") == "text":
        return BETWEEN.join([*title, string_of(source.get("data"))])
    if source.get("type") == "content":
        return BETWEEN.join([*title, *_texts(source.get("content"), path)])
    raise refused("can't be read here: send the document's text", f"{path}.source")


def _source(block: Json) -> Json:
    source = block.get("source")
    return source if isinstance(source, dict) else {}


def _search_result(block: Json, path: str) -> str:
    texts = _texts(block.get("content"), path)
    return BETWEEN.join([f"{block.get('title')} ({block.get('source')})", *texts])


_PARTS: Final[Mapping[str, Callable[[Json, str], Part]]] = {
    "text": lambda block, path: string_of(block.get("text")),
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    "tool_reference": lambda block, path: f"Loaded: {block.get('tool_name')}",
    "thinking": lambda block, path: "",
    "redacted_thinking": lambda block, path: "",
}


def _offered(body: Json, loaded: set[str]) -> tuple[Json, tuple[str, ...]]:
    """Translate a request's tools. ``loaded``: the deferred tools that results have named.

    Return the chat completion's tool fields, and the names of the tools that are left out because
    Anthropic's servers would run them.

    Raises :class:`ProxyError` (400) for a client's own tool without a schema, and for a request
    that has, or forces, only tools that Anthropic's servers run.
    """
    tools: list[Json] = []
    left_out = ["mcp_servers"] if body.get("mcp_servers") else []
    for position, tool in enumerate(body.get("tools") or ()):
        kind = tool.get("type") or "custom"
        if kind != "custom" and "input_schema" not in tool:
            if kind.startswith(_CLIENTS_OWN):
                sentence = (
                    f"has the type {kind}, whose schema is not sent: send it as a custom tool"
                )
                raise refused(sentence, f"tools[{position}]")
            left_out.append(tool.get("name") or kind)
        elif not tool.get("defer_loading") or tool.get("name") in loaded:
            tools.append(_function(tool))
    choice = body.get("tool_choice")
    choice = choice if isinstance(choice, dict) else {}
    forced = choice.get("name") if choice.get("type") == "tool" else None
    if left_out and (not tools or forced in left_out):
        names = forced if forced in left_out else ", ".join(left_out)
        raise refused(f"{names} runs on Anthropic's servers, and can't be run here", "tools")
    if not tools:
        return {}, tuple(left_out)
    fields: Json = {"tools": tools}
    if choice.get("type") == "tool":
        fields["tool_choice"] = as_function({"name": choice.get("name")})
    elif (tool_choice := _CHOICES.get(choice.get("type"))) is not None:
        fields["tool_choice"] = tool_choice
    if choice.get("disable_parallel_tool_use") is True:
        fields["parallel_tool_calls"] = False
    return fields, tuple(left_out)


def _function(tool: Json) -> Json:
    function = {"name": tool.get("name")}
    if description := tool.get("description"):
        function["description"] = description
    function["parameters"] = tool.get("input_schema") or {"type": "object", "properties": {}}
    if isinstance(strict := tool.get("strict"), bool):
        function["strict"] = strict
    return as_function(function)
