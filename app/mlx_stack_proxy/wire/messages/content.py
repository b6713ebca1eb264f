"""Turns a message's content blocks into the texts, images, results and calls of chat completions.

A block of a kind that chat completions lack becomes text, its own JSON: a model may read it, and
the history stays complete. An image or document from a source that can't be read here raises
:class:`ProxyError` (400).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from ...errors import ProxyError, invalid
from ..delta import string_of
from ..transcript import BETWEEN, IMAGE_FOLLOWS, Json, Part, Transcript

_ERROR = "Error: "  # begins the result of an error: chat completions have no flag for it


class ContentReader:
    """Reads the contents of a request's messages into a transcript."""

    def __init__(self) -> None:
        self.transcript = Transcript()
        self.loaded: set[str] = set()  # the tools that results have named
        self.failed: set[str] = set()  # ids of the calls whose results are marked as errors

    def user(self, content: Any, path: str) -> None:
        for block, block_path in blocks_of(content, path):
            if block.get("type") == "tool_result":
                self._result(block, block_path)
            elif part := _part(block, block_path):
                self.transcript.user([part])

    def assistant(self, content: Any, path: str) -> None:
        """Take an assistant's content. Calls keep their ids, arguments their order of fields."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[Json] = []
        for block, block_path in blocks_of(content, path):
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
        """Take a result. Its images follow it in the user's message."""
        texts: list[str] = []
        images: list[Json] = []
        for inner, block_path in blocks_of(block.get("content"), f"{path}.content"):
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


def text_in(content: Any, path: str) -> list[str]:
    """Return the texts of a content that can hold only text blocks."""
    texts = [string_of(block.get("text")) for block, _ in blocks_of(content, path)]
    return [text for text in texts if text]


def blocks_of(content: Any, path: str) -> Iterator[tuple[Json, str]]:
    """Yield a content's blocks and their places, for errors; a string is one text block.

    Raises :class:`ProxyError` (400).
    """
    if isinstance(content, str):
        yield {"type": "text", "text": content}, path
    elif isinstance(content, list):
        for position, block in enumerate(content):
            block_path = f"{path}[{position}]"
            if not isinstance(block, dict):
                raise refused("must be an object", block_path)
            yield block, block_path
    elif content is not None:
        raise refused("must be a string or an array of blocks", path)


def refused(problem: str, path: str) -> ProxyError:
    return invalid(f"`{path}` {problem}", path)


def _part(block: Json, path: str) -> Part:
    """Turn a block into text or an image; a thought becomes ""."""
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
        return BETWEEN.join([*title, *text_in(source.get("content"), path)])
    raise refused("can't be read here: send the document's text", f"{path}.source")


def _source(block: Json) -> Json:
    source = block.get("source")
    return source if isinstance(source, dict) else {}


def _search_result(block: Json, path: str) -> str:
    texts = text_in(block.get("content"), path)
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
