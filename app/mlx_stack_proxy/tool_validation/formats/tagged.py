"""Parameters written as tags: `<parameter=key>value</parameter>` and its relatives.

Qwen3-Coder, Nemotron, Step 3.5 and Seed-OSS name the call `<function=name>`; MiniMax M2, DeepSeek's
DSML, Step 3 and plain XML `<invoke name="…">`; MiniCPM 5 `<function name="…">`, also with the tags
of the others, which models mix. All with or without an element around, or half of it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .base import MAX_CALLS, Block, Call, Format, Reader, Source, behind_space
from .json_calls import close, object_text
from .json_tags import TOOL_CALL, TOOL_CALL_END, follow_tool_call
from .literals import object_of, skip_space
from .named_json import DEEPSEEK_CALL, DEEPSEEK_HEAD, DEEPSEEK_SEP
from .typed import may_be_text, set_off, typed

# Tags like its own that one value may hold.
MAX_INNER = 24
# Text as XML has it: each `&` begins an entity.
_ESCAPED = re.compile(r"(?:[^&<]++|&(?:amp|lt|gt|quot|apos|#\d{1,7}|#x[0-9a-fA-F]{1,6});)*+")
_CDATA = re.compile(r"\s*+<!\[CDATA\[(.*?)\]\]>\s*+\Z", re.DOTALL)


@dataclass(frozen=True)
class Tags:
    """How a format writes a call's parameters.

    `parameter` matches an opening tag, with the groups `tag` (the element's name, which also closes
    it), `key` (None: it is the same) and optionally `text` (what the tag itself says: "true" for
    text, else JSON). `trim`: what goes from around a text: "line", one line break on each side;
    "all", whitespace; "xml", the same or a CDATA wrapper, and entities are what they stand for;
    "element", what sets it off from its tags, CDATA and entities; "none". `named`: each
    parameter's element has its name.
    """

    parameter: re.Pattern[str]
    trim: str = "line"
    known_only: bool = False
    named: bool = False


def read_call(
    src: Source, name: str, pos: int, tags: Tags, last: tuple[str, ...]
) -> tuple[Call, int] | None:
    """The call of tool `name` whose parameters begin at `pos`, and the index after the last.

    `last`: the tags that end the call, and so also a value whose own closer is missing. A body that
    is a JSON object is the arguments themselves. None where there is neither a parameter nor the
    call's end: then the opening tag is only spoken of, or all that came.
    """
    text = src.text
    at = skip_space(text, pos)
    if text.startswith("{", at):
        arguments, end = object_text(src, at, last)
        return Call(name, arguments), end
    schema, properties = src.tools.schema(name), src.tools.properties(name)
    body = _Body(src, tags, last, properties)
    values: list[tuple[str, object]] = []
    end, closed = pos, True
    while (match := tags.parameter.match(text, at)) is not None:
        key = key_of(match, properties)
        raw, end, closed = body.value(match)
        at = skip_space(text, end)
        if not (tags.known_only and properties and key not in properties):
            values.append((key, _typed(raw, properties.get(key), schema, match, tags)))
    if end == pos and not text.startswith(last, at):
        return None
    if end == len(text) and not closed:
        return Call(name, text[pos:end]), end  # nothing closes the last value: it may be half of it
    stop = body.went_on(at)
    return (Call(name, text[pos:stop]), stop) if stop >= 0 else (Call(name, object_of(values)), end)


def key_of(parameter: re.Match[str], properties: Mapping[str, Any]) -> str:
    """A parameter's name, as its opening tag has it; its quotes are no part of it."""
    key = (parameter["key"] or parameter["tag"]).strip()
    return key if key in properties else key.strip("\"'")


def _typed(raw: str, allowed: Any, schema: Any, parameter: re.Match[str], tags: Tags) -> Any:
    if parameter.groupdict().get("text") == "true" and may_be_text(allowed, schema):
        return raw
    return typed(raw, allowed, schema)


class _Body:
    """What stands between a call's tags: where each value ends, and whether the last one does."""

    def __init__(
        self, src: Source, tags: Tags, last: tuple[str, ...], properties: Mapping[str, Any]
    ) -> None:
        self.src, self.text = src, src.text
        self.tags, self.last, self.properties = tags, last, properties

    def went_on(self, pos: int) -> int:
        """Where the call ends if something stands behind its last value; else -1.

        One more parameter had begun, or the value went on behind the tag that seemed to close it:
        no one knows how far.
        """
        stop = self.src.find_first(self.last, pos)
        rest = self.text[pos:stop].strip()
        if self.text.startswith(self.last, pos) or not rest:
            return -1
        return stop if stop < len(self.text) or rest.startswith("<") else -1

    def value(self, parameter: re.Match[str]) -> tuple[str, int, bool]:
        """A parameter's text, the index after it, and whether a tag ends it."""
        text, pos = self.text, parameter.end()
        closer = f"</{parameter['tag']}>"
        limit = self.src.find_first(self.last, pos)
        following = self._next_parameter(pos, f"<{parameter['tag']}")
        end = self._end(pos, closer)
        if 0 <= following < (end if end >= 0 else limit):
            return trimmed(text[pos:following], "all"), following, True
        if end < 0 or limit < following < end:
            return trimmed(text[pos:limit], "all"), limit, limit < len(text)
        return trimmed(text[pos:end], self.tags.trim), end + len(closer), True

    def _next_parameter(self, pos: int, like: str) -> int:
        """Where the next tag stands that opens another parameter of the tool; -1: nowhere."""
        at = -1 if self.tags.named else self.src.find(like, pos)
        match = self.tags.parameter.match(self.text, at) if at >= 0 else None
        if match is None:
            return -1
        properties = self.properties
        known = key_of(match, properties) in properties if properties else self.text[at - 1] == "\n"
        return at if known else -1

    def _end(self, pos: int, closer: str) -> int:
        """Where the tag stands that closes the value which begins at `pos`; -1: nowhere.

        A value may hold such tags itself: it ends at the first that closes no other and behind
        which another parameter begins, or the call ends; without any, at the first of all.
        """
        text, opener = self.text, "<" + closer[2:-1]
        at = since = pos
        opened, first = 0, -1
        for _ in range(MAX_INNER):
            at = text.find(closer, at)
            if at < 0:
                break
            first = at if first < 0 else first
            opened += sum(text.count(opener + behind, since, at) for behind in "> =\n")
            if opened <= 0 and self._is_followed(skip_space(text, at + len(closer))):
                return at
            opened -= 1
            since = at = at + len(closer)
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
    if how in ("xml", "element"):
        data = _CDATA.match(value)
        if data is not None:
            return set_off(data.group(1)) if how == "element" else data.group(1)
        if "&" in value and _ESCAPED.fullmatch(value):
            value = html.unescape(value)
    if how in ("all", "xml"):
        return value.strip()
    if how == "element":
        return set_off(value)
    if how == "line":
        if value.startswith("\r\n"):
            return value.removeprefix("\r\n").removesuffix("\n").removesuffix("\r")
        return value.removeprefix("\n").removesuffix("\n")
    return value


def tagged(
    function: str, tags: Tags, around: str = "", last: tuple[str, ...] = (), inner: str = ""
) -> Reader:
    """A reader for calls of which each is the tag `function` (with the group `name`) and `tags`.

    `around`: what may stand before the first. `last`: the tags that end a call, then those of what
    stands around all. `inner`: an element between a call and its parameters.
    """
    first, opening = re.compile(f"(?:{around})?"), re.compile(function)
    within = re.compile(f"(?:{inner})?")

    def read(src: Source, start: int) -> Block | None:
        text, calls = src.text, list[Call]()
        begin = first.match(text, start)
        end = begin.end() if begin else start
        while len(calls) < MAX_CALLS:
            match = opening.match(text, skip_space(text, end))
            body = within.match(text, match.end()) if match else None
            if match is None or body is None:
                break
            name = match["name"]
            name = name if name in src.tools.schemas else name.strip("\"'")
            found = read_call(src, name, body.end(), tags, last)
            if found is None:
                break
            calls.append(found[0])
            end = close(text, close(text, found[1], last[-2:-1]), last[:1])
        return Block(close(text, end, last[1:]), tuple(calls)) if calls else None

    return read


_QUOTED = r"\"[^\"\n]*+\"|'[^'\n]*+'|[^\s>]++"
_FUNCTION_END = "</function>"

# A line break stands for a forgotten `>`.
_QWEN = r"<function=\s*+(?P<name>[^>\n<]{1,200}?)[ \t]*(?:>|\n\s*+(?=<parameter=))"
_QWEN_TAGS = Tags(re.compile(r"<(?P<tag>parameter)=(?P<key>[^>\n<]{1,200}?)[ \t]*(?:>|(?=\n))"))
_QWEN_LAST = (_FUNCTION_END, TOOL_CALL_END, "</seed:tool_call>")
read_qwen = tagged(_QWEN, _QWEN_TAGS, "<(?:seed:)?tool_call>", _QWEN_LAST)

# MiniCPM's, as it looks also where a server forgot to turn byte-level tokens back into text.
_BYTES_OPENER = "<functionĠname="
_BYTES = str.maketrans({"Ġ": " ", "Ċ": "\n"})
_MINICPM = rf"<function\s++name\s*+=\s*+(?P<name>{_QUOTED})\s*+>"
_NAMED = rf"\s++name\s*+=\s*+(?P<key>{_QUOTED})\s*+>"
_read_minicpm = tagged(
    _MINICPM,
    # The format's own reader leaves out parameters that the tool does not have.
    Tags(re.compile("<(?P<tag>param)" + _NAMED), trim="xml", known_only=True),
    TOOL_CALL,
    (_FUNCTION_END, "</arguments>", TOOL_CALL_END),
    inner=r"\s*+<arguments>\s*+(?=<param\s)|\s*+(?=<param\s)",
)
_read_minicpm_long = tagged(
    _MINICPM,
    Tags(re.compile("<(?P<tag>parameter)" + _NAMED)),
    TOOL_CALL,
    (_FUNCTION_END, TOOL_CALL_END),
)


def read_minicpm(src: Source, start: int) -> Block | None:
    """Its functions, with either kind of parameters."""
    if src.text.startswith(_BYTES_OPENER, start):
        src.spend(len(src.text) - start)
        src = Source(src.text.translate(_BYTES), src.tools)
    long = _read_minicpm_long(src, start)
    short = _read_minicpm(src, start)
    return short if long is None or (short is not None and short.end > long.end) else long


def _invokes(prefix: str, *wrappers: str, around: str = "", trim: str = "line") -> Reader:
    """A reader for `<invoke name="…">` with a prefix, in one of the elements `wrappers` or bare."""
    head = re.escape(prefix).replace("｜", "[｜|]").replace(r"\|", "[｜|]")
    tag = re.escape(prefix) + "parameter"
    parameter = (
        rf"<(?P<tag>{tag})\s++name\s*+=\s*+(?P<key>{_QUOTED})"
        r"(?:\s+string\s*+=\s*+\"?(?P<text>true|false)\"?)?[^>\n]*+>"
    )
    return tagged(
        rf"<{head}\s*+invoke\s++name\s*+=\s*+(?P<name>{_QUOTED})[^>\n]*+>",
        Tags(re.compile(parameter), trim=trim),
        around or "|".join(f"<{re.escape(one)}>" for one in wrappers),
        (f"</{prefix}invoke>", *(f"</{one}>" for one in wrappers)),
    )


def _dsml(bar: str) -> Format:
    prefix = f"{bar}DSML{bar}"
    around = tuple(
        f"{prefix}{gap}{name}" for gap in ("", " ") for name in ("function_calls", "tool_calls")
    )
    openers = (*(f"<{name}>" for name in around), f"<{prefix}invoke name=")
    return Format("deepseek_dsml", openers, _invokes(prefix, *around, trim="none"))


def _prefixed(prefix: str) -> Format:
    around = f"{prefix}function_calls"
    openers = (f"<{around}>", f"<{prefix}invoke name=")
    return Format("invoke_xml", openers, _invokes(prefix, around))


_INVOKE = "<invoke name="
_read_plain = _invokes("", "function_calls", "tool_call")
_step = _invokes("steptml:", around=rf"{DEEPSEEK_HEAD}\s*+(?:\w++\s*+{DEEPSEEK_SEP}\s*+)?")
FORMATS = (
    Format("qwen3_xml", (TOOL_CALL,), read_qwen, follow=follow_tool_call),
    Format("qwen3_xml", ("<seed:tool_call>", "<function="), read_qwen),
    Format("minicpm5_xml", ("<function name=", _BYTES_OPENER), read_minicpm),
    Format("minicpm5_xml", (TOOL_CALL,), read_minicpm, follow=follow_tool_call),
    Format("minimax_m2_invoke", ("<minimax:tool_call>",), _invokes("", "minimax:tool_call")),
    *map(_dsml, "｜|"),
    Format("invoke_xml", DEEPSEEK_CALL, _step),
    *map(_prefixed, ("atem:", "antml:")),
    Format("invoke_xml", ("<function_calls>",), _read_plain, follow=behind_space("<invoke ")),
    Format("invoke_xml", (TOOL_CALL,), _read_plain, follow=follow_tool_call),
    Format("invoke_xml", (_INVOKE,), _read_plain),
)
