"""JSON calls alone in a code fence: ```` ```json ```` and the like; also with their tags around."""

from __future__ import annotations

import re

from app.tool_calls.formats import bare_json, qwen_xml
from app.tool_calls.formats.base import Begins, Block, Format, Source, SpelledTools, Where
from app.tool_calls.formats.context import begins_reply
from app.tool_calls.formats.hermes import one_of
from app.tool_calls.formats.json_calls import bare_envelope, close, is_definition, read_calls
from app.tool_calls.formats.literals import skip_space

OPENERS = tuple(
    "```" + language
    for language in (
        *("", "json", "xml"),
        *("tool_code", "tool_call", "tool_calls", "tool_use", "tool", "function_call"),
    )
)

_LINE = re.compile(r"[^\n]*\n")
_CLOSER = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*(?=\n|\Z)")
# Prose behind the fence that explains it: then the user was shown the JSON.
_EXPLAINED = re.compile(
    r"\s*(?:this|these|that|the (?:above|json|code|call|object|request)|you (?:can|could|would)"
    r"|where|replace|note|explanation|here|it (?:will|would)|in this|make sure|feel free)\b",
    re.IGNORECASE,
)


_TAGS = ("<tool_call>", "<function_call>", "<function=", "<response>")
_TAGGED_JSON = re.compile(r"<(tool_call|function_call|response)>\s*(?=[\[{])")


def follow(text: str, pos: int, tools: SpelledTools) -> Begins:
    """After the opening line: JSON that could be a call, or its tag."""
    at = skip_space(text, pos)
    if at == len(text):
        return Begins.MAYBE
    if text[at] == "{":
        return bare_json.follow(text, at + 1, tools)
    if text[at] == "<":
        return one_of(text, at, _TAGS)
    return bare_json.follow_list(text, at + 1, tools) if text[at] == "[" else Begins.NO


def read(src: Source, start: int) -> Block | None:
    """The calls, where the fence holds nothing else and nothing behind it explains it."""
    line = _LINE.match(src.text, start)
    if line is not None and src.text.startswith("<", skip_space(src.text, line.end())):
        return _read_tagged(src, start, skip_space(src.text, line.end()))
    found = read_calls(src, line.end(), shape=bare_envelope) if line else None
    if found is None:
        return None
    # `read_calls` takes the closing fence along where it stands right behind the calls.
    end = found[1]
    if src.text[end - 1] != "`":
        closer = _CLOSER.match(src.text, end)
        if closer is None and src.text[end:].strip():
            return None
        end = closer.end() if closer else len(src.text)
    told = _EXPLAINED.match(src.text, end) or all(is_definition(src.tools, c) for c in found[0])
    return None if told else Block(end, tuple(found[0]))


def _read_tagged(src: Source, start: int, at: int) -> Block | None:
    """Calls in tags in a fence, where that is the whole reply: else they are shown to somebody."""
    if not begins_reply(src.text, start):
        return None
    tag = _TAGGED_JSON.match(src.text, at)
    if tag is not None:
        closer = f"</{tag.group(1)}>"
        found = read_calls(src, tag.end(), (closer,))
        block = Block(close(src.text, found[1], (closer,)), tuple(found[0])) if found else None
    elif src.text.startswith(qwen_xml.OPENER, at):
        block = qwen_xml.read_bare(src, at)
    else:
        block = qwen_xml.read_wrapped(src, at)
    if block is None:
        return None
    closed = _CLOSER.match(src.text, block.end)
    end = closed.end() if closed else block.end
    return None if src.text[end:].strip() else Block(len(src.text), block.calls)


FORMAT = Format("json_fence", OPENERS, read, Where.FENCE, follow)
