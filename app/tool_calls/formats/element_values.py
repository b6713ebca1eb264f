"""The values of a call that is written as XML elements: where each ends, and what it is."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

from app.tool_calls.formats.base import Source
from app.tool_calls.formats.literals import object_of, skip_space
from app.tool_calls.formats.tagged import CDATA, ESCAPED, MAX_INNER
from app.tool_calls.formats.typed import typed, types_of
from app.tool_calls.references import look_up
from app.tool_calls.vocabulary import DEFAULT as VOCABULARY

from ...frozen import frozen

OPENING = re.compile(r"<([A-Za-z_][\w.-]{0,199})>")
_PARAMETER = re.compile(
    r"<(parameter|param|arg|argument)\s+name\s*=\s*(\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s>]+)\s*>"
)
_MAX_DEPTH = 4
_MAX_NESTED = 50_000  # characters of a list or an object of elements


@frozen
class Opening:
    """A parameter's opening tag: its name, how its like begin, what closes it, where it ends."""

    key: str
    like: str
    closer: str
    end: int


def opening_at(text: str, pos: int) -> Opening | None:
    """The tag that opens a parameter's value at `pos`."""
    plain = OPENING.match(text, pos)
    if plain is not None:
        return Opening(plain.group(1), plain.group(), f"</{plain.group(1)}>", plain.end())
    named = _PARAMETER.match(text, pos)
    if named is None:
        return None
    tag = named.group(1)
    return Opening(named.group(2).strip("\"'"), f"<{tag} ", f"</{tag}>", named.end())


def end_of_value(
    src: Source, opening: Opening, closer: str, properties: Mapping[str, object]
) -> int:
    """Where the closing tag stands behind which the next parameter begins, or the call ends.

    A value may hold such tags itself, even whole calls: a file to write that is XML. So it is the
    first that closes no other, if there is one, before the call is over. -1 where there is none.
    """
    text, since, opened, first = src.text, opening.end, 0, -1
    at = since
    for _ in range(MAX_INNER):
        at = text.find(opening.closer, at)
        if at < 0 or (first >= 0 and _is_over(src, opening.end, at, closer)):
            break
        opened += text.count(opening.like, since, at)
        since = at
        if _is_followed(text, at + len(opening.closer), closer, properties):
            if opened <= 0:
                return at
            first = at if first < 0 else first
        opened -= 1
        at += len(opening.closer)
    if first < 0:
        src.spend(len(text) - opening.end if at < 0 else at - opening.end)
    return first


def _is_over(src: Source, pos: int, at: int, closer: str) -> bool:
    """Whether the call that holds `pos` ends before `at`, as far as its own tags tell."""
    end, inner = src.find(closer, pos), src.find(f"<{closer[2:]}", pos)
    return 0 <= end < at and not 0 <= inner < end


def _is_followed(text: str, pos: int, closer: str, properties: Mapping[str, object]) -> bool:
    behind = skip_space(text, pos)
    if behind == len(text) or text.startswith(closer, behind):
        return True
    following = opening_at(text, behind)
    return following is not None and (not properties or following.key in properties)


class Values:
    """The values of one call, as written until all are there: a model escapes all, or none."""

    __slots__ = ("_properties", "_schema", "_written", "keys")

    def __init__(self, schema: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
        self._schema = schema
        self._properties = properties
        self._written: list[tuple[str, str, bool]] = []  # name, text, whether it was in CDATA
        self.keys: set[str] = set()

    def add(self, key: str, written: str) -> None:
        """The value of `key`, as it stands between its tags."""
        data = CDATA.match(written)
        self._written.append((key, data.group(1) if data else written, data is not None))
        self.keys.add(key)

    def arguments(self) -> str:
        """The JSON text of all."""
        escaped = all(ESCAPED.fullmatch(text) for _, text, data in self._written if not data)
        return object_of(
            [
                (key, self._value(key, html.unescape(text) if escaped and not data else text))
                for key, text, data in self._written
            ]
        )

    def _value(self, key: str, text: str) -> Any:
        return _typed(trimmed(key, text), self._properties.get(key), self._schema)


def trimmed(key: str, text: str) -> str:
    """A value without what only sets it off from its tags.

    What names something has no blanks around it. Of a text, be it a file's, the first and the last
    line break are the tags', and a blank on both sides.
    """
    if VOCABULARY.must_name(key):
        return text.strip()
    if text.startswith(("\n", "\r\n")):
        text = text.removeprefix("\r").removeprefix("\n")
        line = text.rstrip(" \t")
        text = line if line.endswith("\n") else text
    elif len(text) > 2 and text[0] == text[-1] == " " and text[1] != " " != text[-2]:
        return text[1:-1]
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")


def _typed(text: str, schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """The value that a text stands for: also a list or an object of elements."""
    if text.lstrip().startswith("<") and depth < _MAX_DEPTH and len(text) <= _MAX_NESTED:
        allowed = types_of(schema, root)
        children = _children(text) if allowed & {"array", "object"} else None
        if children is not None and "string" not in allowed:
            resolved = _resolved(schema, root)
            found = _object(children, resolved, root, depth + 1) if "object" in allowed else None
            if found is None and "array" in allowed:
                return _array(children, resolved, root, depth + 1) or typed(text, schema, root)
            return typed(text, schema, root) if found is None else found
    return typed(text, schema, root)


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    found = look_up(root, reference) if isinstance(reference, str) else schema
    return found if isinstance(found, Mapping) else {}


def _object(
    children: list[tuple[str, str]], schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> dict[str, Any] | None:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    keys = {key for key, _ in children}
    if len(keys) < len(children) or (properties and not keys <= properties.keys()):
        return None
    return {
        key: _typed(trimmed(key, text), properties.get(key), root, depth) for key, text in children
    }


def _array(
    children: list[tuple[str, str]], schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> list[Any] | None:
    if len({key for key, _ in children}) > 1:
        return None
    items = schema.get("items")
    return [_typed(text.strip(), items, root, depth) for _, text in children]


def _children(text: str) -> list[tuple[str, str]] | None:
    """The elements that a text consists of; None where there is anything else in it."""
    children: list[tuple[str, str]] = []
    at = skip_space(text, 0)
    while at < len(text):
        opening = OPENING.match(text, at)
        end = _closing(text, opening) if opening else -1
        if opening is None or end < 0:
            return None
        children.append((opening.group(1), text[opening.end() : end]))
        at = skip_space(text, end + len(opening.group()) + 1)
    return children


def _closing(text: str, opening: re.Match[str]) -> int:
    """Where the tag stands that closes an element, others of its name in it being closed."""
    begin, end = opening.group(), f"</{opening.group(1)}>"
    at, opened, since = text.find(end, opening.end()), 0, opening.end()
    while at >= 0:
        opened += text.count(begin, since, at)
        if not opened:
            return at
        opened -= 1
        since = at + len(end)
        at = text.find(end, since)
    return -1
