"""Parameters written as tags: `<parameter=key>value</parameter>` and its relatives."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from functools import cached_property

from app.tool_calls.formats.base import Call, Source
from app.tool_calls.formats.json_calls import object_text
from app.tool_calls.formats.literals import object_of, skip_space
from app.tool_calls.formats.typed import may_be_text, typed

# Tags like its own that one value may hold.
MAX_INNER = 24
# Text as XML has it: each `&` begins an entity.
ESCAPED = re.compile(r"(?:[^&<]++|&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)*+")
CDATA = re.compile(r"\s*<!\[CDATA\[(.*?)\]\]>\s*\Z", re.DOTALL)


@dataclass(frozen=True)
class Tags:
    """How a format writes a call's parameters.

    `parameter` matches an opening tag, with the groups `key` and optionally `text` (what the tag
    itself says: "true" for text, else JSON). `end` closes a value, `last` are the tags that end
    the call and so also a value whose own closer is missing.
    """

    parameter: re.Pattern[str]
    next_parameter: str
    end: str
    last: tuple[str, ...]
    # What goes from around a text value: "line" one line break, "all" whitespace, "xml" all
    # whitespace or a CDATA wrapper, and its entities are what they stand for; "none".
    trim: str = "line"
    known_only: bool = False

    @cached_property
    def inner(self) -> re.Pattern[str]:
        """An opening tag of the same name, of whatever kind."""
        return re.compile(re.escape("<" + self.end[2:-1]) + r"(?=[\s=>])")


def read_call(src: Source, name: str, pos: int, tags: Tags) -> tuple[Call, int] | None:
    """The call of tool `name` whose parameters begin at `pos`, and the index after the last.

    A body that is a JSON object is the arguments themselves. None where there is neither a
    parameter nor the call's end: then the opening tag is only spoken of, or all that came.
    """
    text = src.text
    at = skip_space(text, pos)
    if text.startswith("{", at):
        arguments, end = object_text(src, at, tags.last)
        return Call(name, arguments), end
    schema = src.tools.schema(name)
    properties = src.tools.properties(name)
    values: list[tuple[str, object]] = []
    end = pos
    while (match := tags.parameter.match(text, at)) is not None:
        key = match.group("key").strip()
        key = key if key in properties else key.strip("\"'")
        raw, end = _value(src, name, match.end(), tags)
        at = skip_space(text, end)
        if tags.known_only and properties and key not in properties:
            continue
        allowed = properties.get(key)
        is_text = match.groupdict().get("text") == "true" and may_be_text(allowed, schema)
        values.append((key, raw if is_text else typed(raw, allowed, schema)))
    if end == pos and not text.startswith(tags.last, at):
        return None
    if end == len(text) and not text.endswith((tags.end, *tags.last)):
        return Call(name, text[pos:end]), end  # nothing closes the last value: it may be half of it
    if len(text) - at > 1 and _begins(text, at, tags.next_parameter):
        return Call(name, text[pos:]), len(text)  # one more parameter had begun
    if _breaks_off(src, end, tags):
        rest = src.find_first(tags.last, end)
        return Call(name, text[pos:rest]), rest
    return Call(name, object_of(values)), end


def _begins(text: str, pos: int, tag: str) -> bool:
    """Whether what is left of the text is the beginning of a tag."""
    return tag.startswith(text[pos : pos + len(tag)]) and ">" not in text[pos:]


def _breaks_off(src: Source, pos: int, tags: Tags) -> bool:
    """Whether a value went on behind the tag that seemed to close it: no one knows how far."""
    rest = src.find_first(tags.last, pos)
    left = src.text[pos:rest] if rest < len(src.text) else ""
    return tags.end in left and bool(left.replace(tags.end, "").strip())


def _value(src: Source, name: str, pos: int, tags: Tags) -> tuple[str, int]:
    end = _own_end(src, pos, tags)
    limit = src.find_first(tags.last, pos)
    following = src.find(tags.next_parameter, pos)
    if 0 <= following < (end if end >= 0 else limit) and _is_parameter(src, name, following, tags):
        return trimmed(src.text[pos:following], "all"), following
    if end < 0 or limit < following < end:
        return trimmed(src.text[pos:limit], "all"), limit
    return trimmed(src.text[pos:end], tags.trim), end + len(tags.end)


def _own_end(src: Source, pos: int, tags: Tags) -> int:
    """Where the value's own closing tag stands; -1 where there is none.

    A value may hold such tags itself, in pairs: `<parameter>x</parameter>` in a file to write.
    """
    end = first = src.find(tags.end, pos)
    if first < 0:
        return first
    inner = 0
    at = pos
    for _ in range(MAX_INNER):
        inner += len(tags.inner.findall(src.text, at, end))
        if not inner:
            return end
        inner -= 1
        at = end + len(tags.end)
        end = src.text.find(tags.end, at)
        if end < 0:
            break
    return first


def _is_parameter(src: Source, name: str, pos: int, tags: Tags) -> bool:
    """Whether a tag inside a value is the next parameter, the value's own closer missing."""
    match = tags.parameter.match(src.text, pos)
    if match is None:
        return False
    properties = src.tools.properties(name)
    if properties:
        return match.group("key").strip().strip("\"'") in properties
    return src.text[pos - 1] == "\n"


def trimmed(value: str, how: str) -> str:
    """A tag's text without what the format puts around it."""
    if how == "xml":
        data = CDATA.match(value)
        if data is not None:
            return data.group(1)
        if "&" in value and ESCAPED.fullmatch(value):
            value = html.unescape(value)
    if how in ("all", "xml"):
        return value.strip()
    if how == "line":
        if value.startswith("\r\n"):
            return value.removeprefix("\r\n").removesuffix("\n").removesuffix("\r")
        return value.removeprefix("\n").removesuffix("\n")
    return value
