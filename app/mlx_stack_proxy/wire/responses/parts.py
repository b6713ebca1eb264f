"""Turns the parts of an item's content into those of a chat message.

A content of texts alone becomes one string, which every chat template takes. A part of a kind that
chat completions lack becomes text, its own JSON, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from ...errors import invalid
from ..transcript import Json, Part

_TEXTS: Final = {
    **dict.fromkeys(("input_text", "output_text", "text", "summary_text"), "text"),
    "reasoning_text": "text",
    "refusal": "refusal",
}
_IMAGE_NOTE: Final = "[image: see the next message]"


def content_of(content: Any, path: str) -> list[Part]:
    """Return a user's parts. Raises :class:`ProxyError` (400) for a part that can't be read."""
    if not isinstance(content, list):
        return [_single(content)]
    parts = [_part(part, f"{path}[{position}]") for position, part in enumerate(content)]
    texts = [part for part in parts if isinstance(part, str)]
    return ["\n".join(texts)] if len(texts) == len(parts) else parts


def text_of(content: Any, between: str = "\n") -> str:
    """Join a content's texts, and its other parts as JSON, with ``between``."""
    if not isinstance(content, list):
        return _single(content)
    return between.join(_text(part) for part in content)


def result_of(output: Any, path: str) -> tuple[str, list[Json]]:
    """Return the text of a tool's result, and its images and files."""
    parts = content_of(output, path)
    texts = [part if isinstance(part, str) else _IMAGE_NOTE for part in parts]
    return "\n".join(texts), [part for part in parts if not isinstance(part, str)]


def _single(content: Any) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) else orjson.dumps(content).decode()


def _kind(part: Any) -> str:
    return str(part.get("type")) if isinstance(part, dict) else ""


def _text(part: Any) -> str:
    field = _TEXTS.get(_kind(part))
    text = part.get(field) if field else None
    return text if isinstance(text, str) else _single(part)


def _part(part: Any, path: str) -> Part:
    convert = _PARTS.get(_kind(part))
    return convert(part, path) if convert else _text(part)


def _image(part: Mapping[str, Any], path: str) -> Json:
    url = part.get("image_url")
    if not isinstance(url, str):
        raise invalid(f"`{path}.image_url` is missing: files are not stored here", path)
    detail = {"detail": part["detail"]} if part.get("detail") else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _file(part: Mapping[str, Any], path: str) -> Json:
    data = part.get("file_data")
    if not isinstance(data, str):
        raise invalid(f"`{path}.file_data` is missing: files are neither stored nor fetched", path)
    name = {"filename": part["filename"]} if part.get("filename") else {}
    return {"type": "file", "file": {"file_data": data, **name}}


def _audio(part: Mapping[str, Any], path: str) -> Json:
    return {"type": "input_audio", "input_audio": part.get("input_audio")}


_PARTS: Final[Mapping[str, Callable[[Mapping[str, Any], str], Json]]] = {
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
}
