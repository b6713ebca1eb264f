"""Parameters written as tags: `<parameter=key>value</parameter>` and its relatives.

A format says with `Tags` how its parameters look, and `tagged` reads its calls: Qwen3-Coder's,
MiniMax's, DeepSeek's DSML, GLM's pairs, Kimi K3's attributes, XML elements. All with or without
their closing tags, where it is clear what belongs to which. The values have no types of their own:
the schema gives them theirs.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from ...wire.json_text import Unreadable
from ...wire.lenient_json import Reader
from ..json_types import is_of_type
from ..repair.variants import kinds, variants
from .base import BRACKETS, Call, One, Source, object_of, skip_space
from .json_calls import object_text

# Tags like its own that one value may hold, and levels of elements in one.
MAX_INNER = 24
MAX_DEPTH = 16
# Text as XML has it: each `&` begins an entity.
_ESCAPED = re.compile(r"(?:[^&<]++|&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)*+")
_CDATA = re.compile(r"\s*+<!\[CDATA\[(.*?)\]\]>\s*+\Z", re.DOTALL)


@dataclass(frozen=True)
class Tags:
    """How a format writes a call's parameters.

    `parameter` matches an opening tag, with the groups `tag` (the element's name), `key` (None: it
    is the same) and optionally `kind` (what the tag itself says of the value: "true" or "string"
    for text). `closer`: the closing tag, of which `{}` is the element's name. `trim`: what goes
    from around a text: "line", one line break on each side; "element", what sets it off from its
    tags, CDATA and entities; "none", also where a tag has a kind. `known_only`: parameters that the
    tool does not have are left out. `named`: each parameter's element has its name. `nested`: a
    list or object is elements in the element.
    """

    parameter: re.Pattern[str]
    closer: str = "</{}>"
    trim: str = "line"
    known_only: bool = False
    named: bool = False
    nested: bool = False


def tagged(function: str, tags: Tags, last: tuple[str, ...]) -> One:
    """Reads one call: the tag `function` (with the group `name`), and parameters behind it.

    `last`: the tags that end a call, or what stands around it; `{}` in them is the name.
    """
    opening = re.compile(r"\s*+" + function)

    def read(src: Source, pos: int) -> tuple[list[Call], int] | None:
        found = opening.match(src.text, pos)
        call = read_call(src, found, tags, last) if found else None
        return ([call[0]], call[1]) if call else None

    return read


def read_call(
    src: Source, function: re.Match[str], tags: Tags, last: tuple[str, ...]
) -> tuple[Call, int] | None:
    """The call whose opening tag is `function`, and the index after its parameters.

    `last`: the tags that end the call, and so also a value whose own closer is missing. A body that
    is a JSON object is the arguments themselves. None where there is neither a parameter nor the
    call's end: then the opening tag is only spoken of, or all that came.
    """
    text, pos, name = src.text, function.end(), function["name"]
    name = name if name in src.tools else name.strip("\"' ")
    last = tuple(one.format(name) for one in last)
    at = skip_space(text, pos)
    if text.startswith("{", at):
        arguments, end = object_text(src, at, last)
        return Call(name, arguments), end
    body = _Body(src, tags, last, name)
    values: list[tuple[str, object]] = []
    end, closed = pos, True
    while (match := tags.parameter.match(text, at)) is not None:
        key = key_of(match, body.properties)
        raw, end, closed = body.value(match)
        at = skip_space(text, end)
        if not (tags.known_only and body.properties and key not in body.properties):
            values.append((key, body.typed(raw, key, match)))
    if end == pos and not text.startswith(last, at):
        return None
    stop = body.went_on(end) if closed else end
    if stop >= 0:  # nothing closes the last value, or more than one tag: no one knows its end
        return Call(name, text[function.start() : stop]), stop
    return Call(name, object_of(values)), end


def key_of(parameter: re.Match[str], properties: Mapping[str, Any]) -> str:
    """A parameter's name, as its opening tag has it; its quotes are no part of it."""
    key = (parameter["key"] or parameter["tag"]).strip()
    return key if key in properties else key.strip("\"'")


def _elements(raw: str, allowed: Any, within: _Body, depth: int) -> Any:
    """What elements in an element say: a list of their values, or an object; else the text."""
    tags, at = within.tags, skip_space(raw, 0)
    kinds = types_of(allowed, within.definitions)
    if tags.parameter.match(raw, at) is None:
        empty = not raw.strip() and kinds & {"array", "object"}
        return ([] if "array" in kinds else {}) if empty else typed(raw, kinds)
    given = allowed if isinstance(allowed, Mapping) else {}
    body = _Body(Source(raw, within.src.tools), tags, (), "")
    found: list[tuple[str, Any]] = []
    while depth and (match := tags.parameter.match(raw, at)) is not None:
        text, end, closed = body.value(match)
        if not closed:
            return raw
        key = key_of(match, {})
        listed = key == "item" and "array" in kinds
        schema = given.get("items") if listed else given.get("properties", {}).get(key)
        found.append((key, _elements(text, schema, within, depth - 1)))
        at = skip_space(raw, end)
    if "object" not in kinds and all(key == "item" for key, _ in found):
        return [value for _, value in found]
    return dict(found) if at == len(raw) and len(dict(found)) == len(found) else raw


class _Body:
    """What stands between a call's tags: where each value ends, and whether the last one does."""

    def __init__(self, src: Source, tags: Tags, last: tuple[str, ...], tool: str) -> None:
        self.src, self.text = src, src.text
        self.tags, self.last = tags, last
        schema = src.tools.schema_of(tool)
        self.properties, self.definitions = schema.properties, schema.definitions
        self.begin = self.closer = ""  # of the last value's tags

    def typed(self, raw: str, key: str, parameter: re.Match[str]) -> Any:
        """The value that a parameter's text stands for, by its tag and by the schema."""
        allowed, kind = self.properties.get(key), parameter.groupdict().get("kind")
        types = types_of(allowed, self.definitions)
        if kind in ("true", "string") and (not types or "string" in types):
            return raw
        if self.tags.nested:
            return _elements(raw, allowed, self, MAX_DEPTH)
        return typed(raw, types)

    def went_on(self, end: int) -> int:
        """Where the call ends if its last value may not end at `end`; else -1.

        The tag that seemed to close it comes again, or one more parameter had begun.
        """
        stop = self.src.find_first(self.last, end)
        if stop == len(self.text) and self.text[end:].lstrip().startswith(self.tags.closer[0]):
            return stop
        again = self.src.find(self.closer, end) if self.closer and not self.tags.named else -1
        opened = self.src.find(self.begin, end) if again >= 0 else -1
        return -1 if again < 0 or 0 <= opened < again else again + len(self.closer)

    def value(self, parameter: re.Match[str]) -> tuple[str, int, bool]:
        """A parameter's text, the index after it, and whether a tag ends it."""
        text, pos = self.text, parameter.end()
        self.closer = closer = self.tags.closer.format(parameter["tag"])
        self.begin = parameter[0].partition(parameter["tag"])[0] + parameter["tag"]
        trim = "none" if parameter.groupdict().get("kind") else self.tags.trim
        limit = self.src.find_first(self.last, pos)
        following = self._next_parameter(pos)
        end = self._end(pos)
        if 0 <= following < (end if end >= 0 else limit):
            return text[pos:following].strip(), following, True
        if end < 0 or limit < following < end:
            return text[pos:limit].strip(), limit, limit < len(text)
        return trimmed(text[pos:end], trim), end + len(closer), True

    def _next_parameter(self, pos: int) -> int:
        """Where the next tag stands that opens another parameter of the tool; -1: nowhere."""
        at = -1 if self.tags.named or self.tags.nested else self.src.find(self.begin, pos)
        match = self.tags.parameter.match(self.text, at) if at >= 0 else None
        if match is None:
            return -1
        properties = self.properties
        known = key_of(match, properties) in properties if properties else self.text[at - 1] == "\n"
        return at if known else -1

    def _end(self, pos: int) -> int:
        """Where the tag stands that closes the value which begins at `pos`; -1: nowhere.

        A value may hold such tags itself: it ends at the first that closes no other and behind
        which another parameter begins, or the call ends; without any, at the first of all.
        """
        text, closer, at, since = self.text, self.closer, pos, pos
        opened, first = 0, -1
        for _ in range(MAX_INNER):
            at = text.find(closer, at)
            if at < 0:
                break
            first = at if first < 0 else first
            opened += sum(text.count(self.begin + behind, since, at) for behind in "> =\n")
            if opened <= 0 and self._is_followed(skip_space(text, at + len(closer))):
                return at
            opened -= 1
            since = at = at + len(closer)
            if opened < 0 and self.src.find_first(self.last, at) < self.src.find(closer, at):
                break  # that one is the next call's
        if first < 0:
            self.src.spend(len(text) - pos)
        return first

    def _is_followed(self, pos: int) -> bool:
        if pos == len(self.text) or self.text.startswith(self.last, pos):
            return True
        match = self.tags.parameter.match(self.text, pos)
        any_key = not self.tags.named or not self.properties
        return match is not None and (any_key or key_of(match, self.properties) in self.properties)


def trimmed(value: str, how: str) -> str:
    """A tag's text without what the format puts around it."""
    if how == "element":
        data = _CDATA.match(value)
        if data is not None:
            return set_off(data[1])
        return set_off(html.unescape(value) if _ESCAPED.fullmatch(value) else value)
    if how == "line":
        value = value.removeprefix("\r").removeprefix("\n").removesuffix("\n")
        return value.removesuffix("\r")
    return value


def typed(raw: str, allowed: Set[str]) -> Any:
    """The value that `raw` stands for where a schema allows these types; none: it does not say.

    Text stays text where the schema allows text only; a number, boolean, null, list or object is
    read as JSON or as Python writes it where the schema allows it, or says nothing. What does not
    fit any allowed type stays the text it is, for the validator to judge.
    """
    if allowed == {"string"}:
        return raw
    reader = Reader(f"{raw} ", python=True)  # a number ends before a blank
    try:
        value = reader.value()
    except (Unreadable, RecursionError):
        return raw
    if reader.text[reader.position :].strip() or not BRACKETS.isdisjoint(reader.used):
        return raw
    none = value is None and "null" not in raw and ("null" not in allowed or "string" in allowed)
    fits = not allowed or any(is_of_type(value, kind) for kind in allowed)
    if isinstance(value, str) or none or not fits:
        return raw  # a text's quotes are part of it, and None may be one
    if "integer" in allowed and "number" not in allowed and isinstance(value, float):
        return int(value)
    return value


def types_of(schema: Any, definitions: Mapping[str, Any]) -> Set[str]:
    """The JSON types that a cleaned schema allows; none where it does not say."""
    found = [kinds(variant) for variant in variants(schema, definitions)]
    return frozenset().union(*(one or () for one in found)) if None not in found else frozenset()


def set_off(text: str) -> str:
    """An element's text without what only sets it off from its tags.

    Of several lines the first and the last line break go, with the closing tag's indentation; of a
    single one all blanks around it.
    """
    if "\n" not in text.strip():
        return text.strip() if "\n" in text or text[:1] == text[-1:] == " " else text
    if text.startswith(("\n", "\r\n")):
        text = text.removeprefix("\r").removeprefix("\n")
        line = text.rstrip(" \t")
        text = line if line.endswith("\n") else text
    return text[:-2] if text.endswith("\r\n") else text.removesuffix("\n")
