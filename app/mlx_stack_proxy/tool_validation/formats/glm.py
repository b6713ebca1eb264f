"""GLM 4.x, Poolside, LongCat, Hunyuan 3: a name, then `<arg_key>`/`<arg_value>` pairs.

The same tag also comes around `name key=value …`, `name {json}`, `name(key=value)` and a name
alone. LongCat puts a prefix before each tag's name, Hunyuan 3 `<tool_calls>` around all.
"""

from __future__ import annotations

import re

from . import python_calls
from .base import MAX_CALLS, Block, Call, Format, Reader, Source, behind_space
from .json_calls import close, object_text
from .json_tags import TOOL_CALL, follow_tool_call
from .literals import dumps, object_of, skip_space
from .typed import typed

_NAME = re.compile(r"\s*+([^\s<>(){}\[\]\"'`]{1,200})")
_PAIR = re.compile(r"""\s++([\w.-]++)=("(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|[^\s<]++)""")


def _read_call(src: Source, pos: int, prefix: str) -> tuple[Call, int] | None:
    """The call whose name begins at `pos`, and the index after it and its closing tag.

    None where the tag holds no call.
    """
    text = src.text
    name = _NAME.match(text, pos)
    if name is None:
        return None
    closer = f"</{prefix}tool_call>"
    at = close(text, name.end(), ("<tool_sep>",))
    after = skip_space(text, at)
    if text.startswith(f"<{prefix}arg_key>", after):
        arguments, end = _read_pairs(src, name.group(1), after, prefix)
    elif text.startswith("{", after):
        arguments, end = object_text(src, after, (closer, f"<{prefix}tool_call>"))
    elif text.startswith("(", after):
        call = python_calls.read_call(src, skip_space(text, pos))
        if call is None:
            return None
        arguments, end = call[0].arguments, call[1]
    else:
        arguments, end = _read_words(src, name.group(1), at)
        if close(text, end, (closer,)) == end and skip_space(text, end) < len(text):
            return None
    return Call(name.group(1), arguments), close(text, end, (closer,))


def _read_pairs(src: Source, name: str, pos: int, prefix: str) -> tuple[str, int]:
    text = src.text
    key_tag, value_tag = f"<{prefix}arg_key>", f"<{prefix}arg_value>"
    schema, properties = src.tools.schema(name), src.tools.properties(name)
    values: list[tuple[str, object]] = []
    at = end = pos
    while text.startswith(key_tag, at):
        at += len(key_tag)
        key_stop = src.find_first((f"</{key_tag[1:]}", value_tag), at)
        key = text[at:key_stop].strip()
        raw, end = _read_value(src, close(text, key_stop, (f"</{key_tag[1:]}",)), prefix)
        values.append((key, typed(raw, properties.get(key), schema)))
        at = skip_space(text, end)
    if end == len(text) and not text.endswith(f"</{value_tag[1:]}"):
        return text[pos:end], end  # nothing closes the last value: it may be half of it
    went_on = _end_of_more(src, end, prefix)
    return (object_of(values), end) if went_on < 0 else (text[pos:went_on], went_on)


def _end_of_more(src: Source, pos: int, prefix: str) -> int:
    """Where a call ends whose last value went on behind the tag that seemed to close it; else -1.

    No one knows how far, but its own tag stands before the call's, and opens in nothing else.
    """
    closer = f"</{prefix}arg_value>"
    limit = src.find_first((f"<{prefix}arg_key>", f"<{prefix}arg_value>"), pos)
    found = re.compile(rf"{closer}(?=\s*+</{prefix}tool_call>)").search(src.text, pos, limit)
    if found is None or not src.text[pos : found.start()].replace(closer, "").strip():
        return -1
    return found.end()


def _read_value(src: Source, pos: int, prefix: str) -> tuple[str, int]:
    text = src.text
    opener, closer = f"<{prefix}arg_value>", f"</{prefix}arg_value>"
    at = close(text, pos, (opener,))
    opened = at != pos
    end = src.find(closer, at)
    limit = src.find_first((f"<{prefix}arg_key>", f"</{prefix}tool_call>"), at)
    # Without its closer a value ends where the next pair or the call does.
    if end < 0 or (limit < end and text.find(opener, limit, end) >= 0):
        return text[at:limit].strip(), limit
    raw = text[at:end]
    return raw if opened else raw.strip(), end + len(closer)


def _read_words(src: Source, name: str, pos: int) -> tuple[str, int]:
    """`key=value` pairs after a name; none at all is a call without arguments."""
    schema, properties = src.tools.schema(name), src.tools.properties(name)
    values: dict[str, object] = {}
    while (pair := _PAIR.match(src.text, pos)) is not None:
        raw = pair.group(2)
        raw = raw[1:-1] if raw[0] in "\"'" else raw
        values[pair.group(1)] = typed(raw, properties.get(pair.group(1)), schema)
        pos = pair.end()
    return dumps(values), pos


def _reader(prefix: str = "", around: str = "") -> Reader:
    opener = f"<{prefix}tool_call>"

    def read(src: Source, start: int) -> Block | None:
        """The tag's call, or several that are written as Python; without `around` one tag."""
        calls: list[Call] = []
        at = start + len(around)
        while len(calls) < MAX_CALLS and src.text.startswith(opener, skip_space(src.text, at)):
            pos = skip_space(src.text, at) + len(opener)
            python = python_calls.read_calls(src, pos)
            found = None if python is not None else _read_call(src, pos, prefix)
            if python is not None:
                calls += python[0]
                at = close(src.text, python[1], (f"</{prefix}tool_call>",))
            elif found is not None:
                calls.append(found[0])
                at = found[1]
            if not around or (python is None and found is None):
                break
        closers = (f"</{around[1:]}",) if around else ()
        return Block(close(src.text, at, closers), tuple(calls)) if calls else None

    return read


FORMATS = (
    Format("glm", (TOOL_CALL,), _reader(), follow=follow_tool_call),
    Format("longcat", ("<longcat_tool_call>",), _reader("longcat_"), follow=follow_tool_call),
    Format(
        "hunyuan_v3",
        ("<tool_calls>",),
        _reader(around="<tool_calls>"),
        follow=behind_space("[", "{", "`", "<"),
    ),
)
