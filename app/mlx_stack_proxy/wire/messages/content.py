"""What a message says: content blocks, as the text, images, results and calls of chat completions.

A block of a kind that has no place there goes on as its own JSON: a model may read it, and nothing
of a history is lost. ``refuse`` is told of what would be lost all the same, and where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

Json = dict[str, Any]
Part = str | Json  # a piece of a user's message: text, or a part of another kind
Refuse = Callable[[str, str], None]

BETWEEN = "\n\n"
_ERROR = "Error: "
_SHOWS_ERROR = 200  # characters at a result's beginning, among which its own word for it stands
_UNSEEN = ("redacted_thinking", "thinking")  # in what a user says


class UserContent(NamedTuple):
    """``results``: `tool` messages, which go first. ``parts``: all else, in its order.

    ``failed``: the ids of the calls whose results are marked as errors.
    """

    results: list[Json]
    parts: list[Part]
    failed: set[str]


def user_content(content: Any, where: str, refuse: Refuse) -> UserContent:
    """What a user's message says. Images of results stand in its parts."""
    said = UserContent([], [], set())
    for block, place in blocks_of(content, where, refuse):
        if block.get("type") == "tool_result":
            result = _result(block, said.parts, place, refuse)
            said.results.append(result)
            if block.get("is_error") is True:
                said.failed.add(result["tool_call_id"])
        elif (part := _part(block, place, refuse)) is not None:
            said.parts.append(part)
    return said


def assistant_message(content: Any, where: str, refuse: Refuse) -> Json:
    """An assistant's message; its calls have their ids, and their arguments the client's order."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    for block, place in blocks_of(content, where, refuse):
        kind = block.get("type")
        if kind == "tool_use":
            calls.append(_call(block))
        elif kind == "thinking":
            thoughts.append(_string(block.get("thinking")))
        elif kind == "text":
            texts.append(_string(block.get("text")))
        elif kind != "redacted_thinking" and isinstance(part := _part(block, place, refuse), str):
            texts.append(part)
    message: Json = {"role": "assistant", "content": "".join(texts)}
    if thought := "".join(thoughts):
        message["reasoning_content"] = thought
    if calls:
        message["content"] = message["content"] or None
        message["tool_calls"] = calls
    return message


def text_in(content: Any, where: str, refuse: Refuse) -> list[str]:
    """The texts of a content that can hold nothing else."""
    blocks = blocks_of(content, where, refuse)
    return [text for block, _ in blocks if (text := _string(block.get("text")))]


def joined(parts: list[Part]) -> str | list[Json]:
    """A user's content: a string where all of it is text."""
    content: list[Json] = []
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        if texts:
            content.append(_text_part(texts))
            texts = []
        content.append(part)
    if not content:
        return BETWEEN.join(texts)
    return [*content, _text_part(texts)] if texts else content


def blocks_of(content: Any, where: str, refuse: Refuse) -> Iterator[tuple[Json, str]]:
    """The blocks of a content, and where each stands; a string is one of text."""
    if isinstance(content, str):
        yield {"type": "text", "text": content}, where
    elif isinstance(content, list):
        for position, block in enumerate(content):
            place = f"{where}[{position}]"
            if isinstance(block, dict):
                yield block, place
            else:
                refuse("must be an object", place)
    elif content is not None:
        refuse("must be a string or an array of blocks", where)


def tools_referred_to(block: Json) -> list[str]:
    """The tools that a result has made known (`tool_reference`)."""
    content = block.get("content")
    inner = content if isinstance(content, list) else []
    names = [one.get("tool_name") for one in inner if isinstance(one, dict)]
    return [name for name in names if isinstance(name, str)]


def _text_part(texts: list[str]) -> Json:
    return {"type": "text", "text": BETWEEN.join(texts)}


def _call(block: Json) -> Json:
    arguments = orjson.dumps(block.get("input") or {}).decode()
    function = {"name": _string(block.get("name")), "arguments": arguments}
    return {"id": _string(block.get("id")), "type": "function", "function": function}


def _result(block: Json, parts: list[Part], where: str, refuse: Refuse) -> Json:
    """A result as a `tool` message; its images join ``parts``."""
    texts = []
    for inner, place in blocks_of(block.get("content"), f"{where}.content", refuse):
        part = _part(inner, place, refuse)
        if isinstance(part, dict):
            parts.append(part)
            part = "[an image: see the message after this]"
        if part:
            texts.append(part)
    text = BETWEEN.join(texts)
    if block.get("is_error") is True and "error" not in text[:_SHOWS_ERROR].lower():
        text = _ERROR + text
    return {"role": "tool", "tool_call_id": _string(block.get("tool_use_id")), "content": text}


def _part(block: Json, where: str, refuse: Refuse) -> Part | None:
    """A block that is no result, call or thought of the model's; None for an empty one."""
    kind = block.get("type")
    if kind == "text":
        return _string(block.get("text")) or None
    if kind == "image":
        return _image(block.get("source"), where, refuse)
    if kind == "document":
        return _document(block, where, refuse)
    if kind == "search_result":
        texts = text_in(block.get("content"), where, refuse)
        return BETWEEN.join([f"{block.get('title')} ({block.get('source')})", *texts])
    if kind == "tool_reference":
        return f"Loaded: {block.get('tool_name')}"
    if kind in _UNSEEN:
        return None
    return _as_json(block)


def _as_json(block: Json) -> str:
    return orjson.dumps({k: v for k, v in block.items() if k != "cache_control"}).decode()


def _image(source: Any, where: str, refuse: Refuse) -> Part:
    source = source if isinstance(source, dict) else {}
    if source.get("type") == "base64":
        url = f"data:{source.get('media_type')};base64,{source.get('data')}"
    elif source.get("type") == "url":
        url = _string(source.get("url"))
    else:
        refuse("can't be read here: send the image itself, or its URL", f"{where}.source")
        return "[an image]"
    return {"type": "image_url", "image_url": {"url": url}}


def _document(block: Json, where: str, refuse: Refuse) -> Part:
    source = block.get("source")
    source = source if isinstance(source, dict) else {}
    title = [t] if (t := _string(block.get("title"))) else []
    if source.get("type") == "text":
        return BETWEEN.join([*title, _string(source.get("data"))])
    if source.get("type") == "content":
        return BETWEEN.join([*title, *text_in(source.get("content"), where, refuse)])
    refuse("can't be read here: send the document's text", f"{where}.source")
    return BETWEEN.join([*title, "[a document]"])


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""
