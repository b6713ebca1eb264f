"""Reads parameters written as tags: ``<parameter=key>value</parameter>`` and variants of it.

A format describes its parameters with ``Tags``, and ``tagged`` makes the reader of its calls:
Qwen3-Coder's, MiniMax's, DeepSeek's DSML, GLM's pairs, Kimi K3's attributes, XML elements. A
closing tag may be missing if the value's end is clear without it. A value may itself contain such
tags, so ``_Body`` finds its end by the tags inside it and the tag that follows. A tag's text has
no type, so ``typed`` takes the type from the tool's schema.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import orjson

from ...wire.call import Call
from ...wire.json_reader import JsonReader
from ...wire.json_text import Unreadable
from ..repair.variants import is_of_type, kinds, variants
from .base import BRACKETS, NEVER, Head, Reading, Source, Stop, object_of, skip_space
from .json_calls import object_text

MAX_INNER = 24  # inner closing tags that are examined to find the end of one value
MAX_DEPTH = 16  # levels of elements inside a value
# Text escaped as in XML: each `&` begins an entity.
_ESCAPED = re.compile(r"(?>(?:[^&<]++|&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)*)")
_CDATA = re.compile(r"\s*+<!\[CDATA\[(.*?)\]\]>\s*+\Z", re.DOTALL)


@dataclass(frozen=True)
class Tags:
    """How a format writes a call's parameters."""

    # An opening tag, with the groups `tag` (the element's name), `key` (the parameter's name; None:
    # the same as `tag`), and optionally `kind` (the tag's statement about the value: "true" or
    # "string" for text).
    parameter: re.Pattern[str]
    closer: str = "</{}>"  # the closing tag; `{}` stands for the element's name
    # What is removed around a value. "line": one line break on each side. "lines": the same, but
    # only if both sides have one, for templates that write values directly between the tags.
    # "escaped": like "lines", and CDATA and entities are decoded. "element": the same, and blanks
    # around a one-line value are removed, too. "none": nothing, as for any tag with a `kind`.
    trim: str = "line"
    known_only: bool = False  # drop parameters that the tool does not have
    named: bool = False  # each parameter's element has the parameter's name
    nested: bool = False  # a list or object is written as nested elements
    valueless: re.Pattern[str] | None = None  # a parameter without a value, which counts as missing

    def read(self, src: Source, head: Head, stop: Stop) -> Reading:
        """Read the parameters after a call's opening tag, and the index after them.

        ``stop`` ends the call, and so also a value without a closer of its own. A body that is a
        JSON object holds all the arguments. Returns None if neither a parameter nor the call's end
        follows: the opening tag is then a mere mention, or the end of a cut reply.
        """
        text, pos, name = src.text, head.end(), head["name"]
        name = name if name in src.tools else name.strip("\"' ")
        if head[0].endswith("/>"):
            return [Call(name, "{}")], pos
        own = f"</{name}>" if self.named else ""
        stop = re.compile(f"{stop.pattern}|{re.escape(own)}") if own else stop
        index = skip_space(text, pos)
        if text.startswith("{", index):
            reading: tuple[str, int] | None = object_text(src, index, stop)
        else:
            reading = self._parameters(src, head, stop, name)
        if reading is None:
            return None
        arguments, end = reading
        index = skip_space(text, end)
        end = index + len(own) if own and text.startswith(own, index) else end
        return [Call(name, arguments)], end

    def _parameters(self, src: Source, head: Head, stop: Stop, name: str) -> tuple[str, int] | None:
        text, pos = src.text, head.end()
        body = _Body(src, self, stop, name)
        values: list[tuple[str, object]] = []
        index, end, closed = skip_space(text, pos), pos, True
        while True:
            while self.valueless and (match := self.valueless.match(text, index)) is not None:
                end = index = match.end()
            if (match := self.parameter.match(text, index)) is None:
                break
            key = key_of(match, body.properties)
            raw, end, closed = body.value(match)
            index = skip_space(text, end)
            if not (self.known_only and body.properties and key not in body.properties):
                values.append((key, body.typed(raw, key, match)))
        if end == pos and stop.match(text, index) is None:
            return None
        unclear = body.end_if_unclear(end) if closed else end
        if unclear >= 0:  # the last value's end is unclear: pass the call on raw, as broken
            return text[head.start() : unclear], unclear
        return object_of(values), end


def key_of(parameter: re.Match[str], properties: Mapping[str, Any]) -> str:
    """Return a parameter's name from its opening tag, without quotes."""
    key = (parameter["key"] or parameter["tag"]).strip()
    return key if key in properties else key.strip("\"'")


def _elements(raw: str, allowed: Any, within: _Body, depth: int) -> Any:
    """Return the list or object that the elements inside ``raw`` describe, else its text value.

    ``allowed``: the schema of the value.
    """
    tags, index = within.tags, skip_space(raw, 0)
    kinds = types_of(allowed)
    if tags.parameter.match(raw, index) is None:
        empty = not raw.strip() and kinds & {"array", "object"}
        return ([] if "array" in kinds else {}) if empty else typed(raw, kinds)
    declared = allowed if isinstance(allowed, Mapping) else {}
    body = _Body(Source(raw, within.src.tools), tags, re.compile(NEVER), "")
    members: list[tuple[str, Any]] = []
    while depth and (match := tags.parameter.match(raw, index)) is not None:
        text, end, closed = body.value(match)
        if not closed:
            return raw
        key = key_of(match, {})
        is_item = key == "item" and "array" in kinds
        schema = declared.get("items") if is_item else declared.get("properties", {}).get(key)
        members.append((key, _elements(text, schema, within, depth - 1)))
        index = skip_space(raw, end)
    if "object" not in kinds and all(key == "item" for key, _ in members):
        return [value for _, value in members]
    return dict(members) if index == len(raw) and len(dict(members)) == len(members) else raw


class _Body:
    """The text between a call's tags; finds where each value ends, and determines its type."""

    def __init__(self, src: Source, tags: Tags, stop: Stop, tool: str) -> None:
        self.src, self.text = src, src.text
        self.tags, self.stop = tags, stop
        schema = src.tools.schema_of(tool)
        self.properties = schema.properties
        self.begin = self.closer = ""  # opening (without its end) and closing tag of the last value

    def typed(self, raw: str, key: str, parameter: re.Match[str]) -> Any:
        """Return the value of a parameter's text, by its tag and by the schema."""
        allowed, kind = self.properties.get(key), parameter.groupdict().get("kind")
        types = types_of(allowed)
        if kind in ("true", "string") and (not types or "string" in types):
            return raw
        if kind == "false" and raw.startswith('"'):
            with suppress(orjson.JSONDecodeError):
                return orjson.loads(raw)
        if self.tags.nested:
            return _elements(raw, allowed, self, MAX_DEPTH)
        return typed(raw, types)

    def end_if_unclear(self, end: int) -> int:
        """Return the index after the whole call if its last value's end is unclear; else -1.

        The end is unclear if the value's closing tag occurs again without an opening tag, or if one
        more tag follows and the text ends without the call's end tag.
        """
        stop = self.src.find_stop(self.stop, end)
        if stop == len(self.text) and self.text[end:].lstrip().startswith(self.tags.closer[0]):
            return stop
        next_closer = self.src.find(self.closer, end) if self.closer and not self.tags.named else -1
        next_opener = self.src.find(self.begin, end) if next_closer >= 0 else -1
        return (
            -1
            if next_closer < 0 or 0 <= next_opener < next_closer
            else next_closer + len(self.closer)
        )

    def value(self, parameter: re.Match[str]) -> tuple[str, int, bool]:
        """Read a parameter's text: the text, the index after it, and whether a tag ends it."""
        text, pos = self.text, parameter.end()
        suffix = parameter.groupdict().get("suffix") or ""
        self.closer = closer = self.tags.closer.format(parameter["tag"], suffix=suffix)
        self.begin = parameter[0].partition(parameter["tag"])[0] + parameter["tag"]
        trim = "none" if parameter.groupdict().get("kind") else self.tags.trim
        limit = self.src.find_stop(self.stop, pos)
        following = self._next_parameter(pos)
        end = self._end(pos)
        if 0 <= following < (end if end >= 0 else limit):
            return text[pos:following].strip(), following, True
        if end < 0 or limit < following < end:
            return text[pos:limit].strip(), limit, limit < len(text)
        return trimmed(text[pos:end], trim), end + len(closer), True

    def _next_parameter(self, pos: int) -> int:
        """Return the index of the next tag that opens a parameter of the tool; -1 if none."""
        index = -1 if self.tags.named or self.tags.nested else self.src.find(self.begin, pos)
        match = self.tags.parameter.match(self.text, index) if index >= 0 else None
        if match is None:
            return -1
        properties = self.properties
        is_known = (
            key_of(match, properties) in properties if properties else self.text[index - 1] == "\n"
        )
        return index if is_known else -1

    def _end(self, pos: int) -> int:
        """Return the index of the tag that closes the value which begins at ``pos``; -1 if none.

        A value may contain such tags. It ends at the first one that closes no inner opening tag and
        that another parameter or the call's end follows; if there is none, at the first of all.
        """
        text, closer, index, counted_to = self.text, self.closer, pos, pos
        opened, first_closer = 0, -1
        for _ in range(MAX_INNER):
            index = text.find(closer, index)
            if index < 0:
                break
            first_closer = index if first_closer < 0 else first_closer
            opened += sum(text.count(self.begin + suffix, counted_to, index) for suffix in "> =\n")
            if opened <= 0 and self._is_followed(skip_space(text, index + len(closer))):
                return index
            opened -= 1
            counted_to = index = index + len(closer)
            if opened < 0 and self.src.find_stop(self.stop, index) < self.src.find(closer, index):
                break  # the next closing tag belongs to the next call
        if first_closer < 0:
            self.src.spend(len(text) - pos)
        return first_closer

    def _is_followed(self, pos: int) -> bool:
        if pos == len(self.text) or self.stop.match(self.text, pos):
            return True
        match = self.tags.parameter.match(self.text, pos)
        any_key = not self.tags.named or not self.properties
        return match is not None and (any_key or key_of(match, self.properties) in self.properties)


def trimmed(value: str, trim: str) -> str:
    """Return a tag's text without what the format puts around it; ``trim``: see ``Tags.trim``."""
    if trim in ("element", "escaped"):
        data = _CDATA.match(value)
        value = data[1] if data else html.unescape(value) if _ESCAPED.fullmatch(value) else value
    spaced = value[:1].isspace() and value[-1:].isspace()
    if trim == "element" and spaced and "\n" not in value.strip():
        return value.strip()
    first, *lines, indent = value.split("\n") if "\n" in value else (value, "")
    if lines and indent and not indent.strip(" \t") and not first.strip():
        # the tags are indented, on lines of their own
        if len(lines) == 1:
            return lines[0].strip()
        return "\n".join(line.removeprefix(indent) for line in lines).removesuffix("\r")
    if trim in ("line", "element") or (
        trim in ("lines", "escaped") and value[:1] in "\r\n" and value[-1:] == "\n"
    ):
        value = value.removeprefix("\r").removeprefix("\n").removesuffix("\n")
        return value.removesuffix("\r")
    return value


def typed(raw: str, allowed: Set[str]) -> Any:
    """Return the value of ``raw``, given the types that its schema allows.

    An empty ``allowed`` means any type. A number, boolean, null, list or object is parsed from JSON
    or Python if its type is allowed. Any other text stays text, for the validator to judge.
    """
    if allowed == {"string"}:
        return raw
    # The blank is needed because a number must not end the text.
    reader = JsonReader(f"{raw} ", python=True)
    try:
        value = reader.value()
    except (Unreadable, RecursionError):
        return raw
    if reader.text[reader.position :].strip() or not BRACKETS.isdisjoint(reader.used):
        return raw
    none = value is None and "null" not in raw and ("null" not in allowed or "string" in allowed)
    fits = not allowed or any(is_of_type(value, kind) for kind in allowed)
    if isinstance(value, str) or none or not fits:
        return raw  # a string's quotes are part of the text, and "None" may be a text
    if "integer" in allowed and "number" not in allowed and isinstance(value, float):
        return int(value)
    return value


def types_of(schema: Any) -> Set[str]:
    """Return the JSON types that a cleaned schema allows; an empty set if it doesn't say."""
    types = [kinds(variant) for variant in variants(schema)]
    return (
        frozenset().union(*(allowed or () for allowed in types))
        if None not in types
        else frozenset()
    )
