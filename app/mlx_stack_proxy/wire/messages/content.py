"""What a message says: content blocks, as the text, images, results and calls of chat completions.

A block of a kind that has no place there goes on as its own JSON: a model may read it, and nothing
of a history is lost. ``refuse`` is told of what would be lost all the same, and where it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orjson

from ..transcript import BETWEEN, Json, Part, Transcript

Refuse = Callable[[str, str], None]

_ERROR = "Error: "  # chat completions have no flag for it
_UNSEEN = ("redacted_thinking", "thinking")  # in what a user says


class Reader:
    """Reads contents into a transcript. ``refuse``: is told what is wrong, and where.

    ``loaded``: the tools that results have named; ``failed``: the ids of the calls whose results
    are marked as errors.
    """

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self.transcript = Transcript()
        self.loaded: set[str] = set()
        self.failed: set[str] = set()

    def user(self, content: Any, where: str) -> None:
        for block, place in blocks_of(content, where, self._refuse):
            if block.get("type") == "tool_result":
                self._result(block, place)
            elif (part := _part(block, place, self._refuse)) is not None:
                self.transcript.user([part])

    def assistant(self, content: Any, where: str) -> None:
        """Calls keep their ids, and their arguments the client's order."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[Json] = []
        for block, place in blocks_of(content, where, self._refuse):
            kind = block.get("type")
            if kind == "tool_use":
                calls.append(block)
            elif kind == "thinking":
                thoughts.append(_string(block.get("thinking")))
            elif kind == "text":
                texts.append(_string(block.get("text")))
            elif kind != "redacted_thinking":
                part = _part(block, place, self._refuse)
                texts += [part] if isinstance(part, str) else []
        self.transcript.assistant("".join(texts), "".join(thoughts))
        for call in calls:
            arguments = orjson.dumps(call.get("input") or {}).decode()
            self.transcript.call(_string(call.get("id")), _string(call.get("name")), arguments)

    def _result(self, block: Json, where: str) -> None:
        """A result; its images follow it."""
        texts: list[str] = []
        images: list[Json] = []
        for inner, place in blocks_of(block.get("content"), f"{where}.content", self._refuse):
            part = _part(inner, place, self._refuse)
            if isinstance(part, dict):
                images.append(part)
                part = "[an image: see the message after this]"
            texts += [part] if part else []
        text = BETWEEN.join(texts)
        call_id = _string(block.get("tool_use_id"))
        if block.get("is_error") is True:
            self.failed.add(call_id)
            text = _ERROR + text
        self.loaded.update(_tools_referred_to(block))
        self.transcript.result(call_id, text, images)


def text_in(content: Any, where: str, refuse: Refuse) -> list[str]:
    """The texts of a content that can hold nothing else."""
    blocks = blocks_of(content, where, refuse)
    return [text for block, _ in blocks if (text := _string(block.get("text")))]


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


def _tools_referred_to(block: Json) -> list[str]:
    """The tools that a result has made known (`tool_reference`)."""
    content = block.get("content")
    inner = content if isinstance(content, list) else []
    names = [one.get("tool_name") for one in inner if isinstance(one, dict)]
    return [name for name in names if isinstance(name, str)]


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
