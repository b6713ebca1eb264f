"""The parts of an item's content, as those of a chat message.

A content of texts alone becomes one string, which every chat template takes. What has no twin in
chat completions stays there as JSON: it is said rather than lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from ...errors import invalid

Content = str | list[dict[str, Any]]
_TEXTS: Final = {
    **dict.fromkeys(("input_text", "output_text", "text", "summary_text"), "text"),
    "reasoning_text": "text",
    "refusal": "refusal",
}
_IMAGE_NOTE: Final = "[image: see the next message]"


def content_of(content: Any, where: str) -> Content:
    """The content of a user's message. Raises :class:`ProxyError` (400) for what can't be read."""
    if not isinstance(content, list):
        return _single(content)
    parts = [_part(one, f"{where}[{position}]") for position, one in enumerate(content)]
    if all(part["type"] == "text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def text_of(content: Any, between: str = "\n") -> str:
    """The texts of a content; its other parts as JSON."""
    if not isinstance(content, list):
        return _single(content)
    return between.join(_text(part) for part in content)


def result_of(output: Any, where: str) -> tuple[str, list[dict[str, Any]]]:
    """A tool's result: its text, and its images, which chat completions take from users alone."""
    content = content_of(output, where)
    if isinstance(content, str):
        return content, []
    images = [part for part in content if part["type"] != "text"]
    texts = [part["text"] if part["type"] == "text" else _IMAGE_NOTE for part in content]
    return "\n".join(texts), images


def joined(first: Content, second: Content) -> Content:
    """Two contents as that of one message."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Content) -> list[dict[str, Any]]:
    return [_of_text(content)] if isinstance(content, str) else content


def _of_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


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


def _part(part: Any, where: str) -> dict[str, Any]:
    make = _PARTS.get(_kind(part))
    return make(part, where) if make else _of_text(_text(part))


def _image(part: Mapping[str, Any], where: str) -> dict[str, Any]:
    url = part.get("image_url")
    if not isinstance(url, str):
        raise invalid(f"`{where}.image_url` is missing: files are not stored here", where)
    detail = {"detail": part["detail"]} if part.get("detail") else {}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _file(part: Mapping[str, Any], where: str) -> dict[str, Any]:
    data = part.get("file_data")
    if not isinstance(data, str):
        raise invalid(
            f"`{where}.file_data` is missing: files are neither stored nor fetched", where
        )
    name = {"filename": part["filename"]} if part.get("filename") else {}
    return {"type": "file", "file": {"file_data": data, **name}}


def _audio(part: Mapping[str, Any], where: str) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": part.get("input_audio")}


_PARTS: Final[Mapping[str, Callable[[Mapping[str, Any], str], dict[str, Any]]]] = {
    "input_image": _image,
    "input_file": _file,
    "input_audio": _audio,
}
