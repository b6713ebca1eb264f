"""A call that stands in a text in a way that no format reads: the tool's name, and markup or code.

What shows it, beside a tool's name: a marker that only calls have, at the start of a line
(`<tool_call …>`, `call:name`); the element of a tool whose name no document's element has, or one
of any name that ends the text and holds just what the tool needs; or that the whole text is code,
and its arguments are those of the tool (`get_order(order_id="A-1")`, `Tool: get_order` and
`Arguments: {…}`).
"""

from __future__ import annotations

import re
from typing import Final

from .formats import elements, python_calls
from .formats.base import Source, SpelledTools, Where
from .formats.context import region_at
from .formats.json_calls import ARGUMENT_KEYS, NAME_KEYS
from .formats.literals import json_object

MAX_BEFORE: Final = 400  # characters before a marker; after more the text is about something else
# What agents have a model say beside its call.
THOUGHTS: Final = frozenset({"thought", "thoughts", "reasoning", "explanation"})
NEARBY: Final = 120  # characters behind a marker in which the tool's name has to stand

_MARKER: Final = re.compile(
    r"^[ \t]*(?P<own><)?(?(own)(?:\|?/?tool_calls?\b|tool_use\b|use_(?:mcp_)?tool\b"
    r"|function_calls?\b|function[= ]|invoke\b|(?P<element>[A-Za-z][\w.-]*)[\s>/])"
    r"|(?:\[TOOL_(?:CALLS?|REQUEST)\]|call:(?:default_api:)?(?=[\w.-]+(?:[({:<]|\s*$))"
    r"|(?:```)?tool_code\b|```tool_calls?\b|[`*]*<tool_name>"
    r"|\**Action:(?=[ \t`*]*[\w.-]+[ \t`*]*\n\s*\**Action Input:)))"
    r"|assistantcommentary to=|(?:^|assistant ?)to=functions\.|^<call:",
    re.IGNORECASE | re.MULTILINE,
)
_NAME: Final = re.compile(r"[A-Za-z_][\w.-]*")
_ELEMENT: Final = re.compile(r"^[ \t]*<([A-Za-z_][\w.-]{0,199})>", re.MULTILINE)
# What is said of a tag: "<a_tool> lists …", "<a_tool> – lists …"; or that it is one of several.
_SAID_OF: Final = re.compile(
    r"/?>?[ \t]*(?:[–—:-]|and\b|or\b|\w+s\b|means?\b|are\b)|[^<]*[a-z)]\.\s*\Z"
)
_PROSE_BEHIND: Final = re.compile(r"\n[ \t]*\n[ \t]*[A-Z][a-z']* ")
_WORDS: Final = r"(?:tool|function|call|action|use|name)"
_KEYED: Final = r"(?:arguments?|args|inputs?|parameters?|params)"
_CODE: Final = re.compile(
    rf"(?:\*{{0,20}}(?:tool[ _]call|function[ _]call"
    rf"|{_WORDS})[ \t]{{0,20}}[:=]\*{{0,20}}[ \t]{{0,20}}|[/#@]{{1,64}}[ \t]{{0,20}})?"
    r"[`*\"]{0,3}(?P<name>[A-Za-z_][\w.-]{0,199})(?::\d{1,64})?(?:\[ARGS\])?"
    r"[`*\"]{0,3}[ \t]{0,20}:?\s{0,20}"
    rf"(?:\*{{0,20}}{_KEYED}[ \t]{{0,20}}[:=]\*{{0,20}}\s{{0,20}})?"
    r"(?P<body>(?:```(?:json)?[ \t]{0,20}\n\s{0,20})?[{(].*+)",
    re.IGNORECASE | re.DOTALL,
)

_FENCED: Final = re.compile(r"```(?:python|py|tool_code)?[ \t]*\n\s*([A-Za-z_][^`]*\))\s*```")


def unread_call(text: str, tools: SpelledTools) -> str | None:
    """The tool whose call ``text`` (stripped) is, or ends with; None where it is no call."""
    return _marked(text, tools) or _element(text, tools) or _code(text, tools) or _flat(text, tools)


def _marked(text: str, tools: SpelledTools) -> str | None:
    marker = _MARKER.search(text, 0, MAX_BEFORE + NEARBY)
    if marker is None or marker.start() > MAX_BEFORE or text[: marker.start()].count("```") % 2:
        return None
    start = marker.end() - len(marker[0].lstrip())
    if _PROSE_BEHIND.search(text, marker.end()) or region_at(text, start, Where.FENCE, final=True):
        return None
    element = marker.group("element")
    if element is not None:
        known = element in tools.schemas and elements.OWN_NAME.match(element)
        spoken_of = known and _is_spoken_of(text, marker.end("element"), element)
        return element if known and not spoken_of else None
    for found in _NAME.finditer(text, marker.end(), marker.end() + NEARBY):
        name = found[0].removeprefix("functions.").removeprefix("default_api.")
        if name in tools.schemas:
            return name
    return None


def _is_spoken_of(text: str, pos: int, element: str) -> bool:
    """Whether something is said of a tag behind it, or behind the element's end."""
    behind = text[pos:].rpartition(f"</{element}>")
    if behind[1]:
        return re.match(r"\s*[^\s<]", behind[2]) is not None
    return _SAID_OF.match(text, pos) is not None


def _element(text: str, tools: SpelledTools) -> str | None:
    """An element named as a tool, like many of a document: at the end, with all that is needed."""
    if not text.endswith(">"):
        return None
    for found in _ELEMENT.finditer(text, 0, MAX_BEFORE + NEARBY):
        name, start = found.group(1), found.start(1) - 1
        if name not in tools.schemas or not tools.schema(name).get("required"):
            continue
        block = elements.read_tool(Source(text, tools), start)
        whole = block is not None and block.calls and not text[block.end :].strip()
        return name if whole and not region_at(text, start, Where.FENCE, final=True) else None
    return None


def _code(text: str, tools: SpelledTools) -> str | None:
    fenced = _FENCED.fullmatch(text)
    code = _CODE.fullmatch(fenced.group(1) if fenced else text)
    name = _without_prefix(code.group("name"), tools) if code else None
    if code is None or name is None:
        return _python(text, tools)
    body = code.group("body").strip()
    if body.startswith("("):
        read = python_calls.read_call(Source(f"{name}{body}", tools), 0)
        if read is None or read[1] != len(name) + len(body):
            return _python(text, tools)
        body = read[0].arguments
    arguments = json_object(body.strip("`").removeprefix("json").strip())
    return name if arguments is not None and tools.takes(name, arguments) else None


def _without_prefix(name: str, tools: SpelledTools) -> str | None:
    """The tool that a name is, also behind what is left of a server's special tokens."""
    for prefix in ("", "functions.", "function"):
        if name.startswith(prefix) and name.removeprefix(prefix) in tools.schemas:
            return name.removeprefix(prefix)
    return None


def _python(text: str, tools: SpelledTools) -> str | None:
    """The first of several calls in Python, or of a list that was never closed."""
    code = text if text.endswith("]") else text.removeprefix("[")
    read = python_calls.read_calls(Source(code, tools), 0)
    if read is None or code[read[1] :].strip(" \t\n,;"):
        return None
    for call in read[0]:
        arguments = json_object(call.arguments)
        if call.name not in tools.schemas or not tools.takes(call.name, arguments or ()):
            return None
    return read[0][0].name


def _flat(text: str, tools: SpelledTools) -> str | None:
    """`{"tool": "get_order", "order_id": "A-1"}`: the name stands among the arguments.

    Or a thought beside them: `{"thought": "…", "action": "get_order", "action_input": {…}}`.
    """
    call = json_object(text)
    if call is None:
        return None
    for key in NAME_KEYS:
        name = call.get(key)
        if isinstance(name, str) and name in tools.schemas:
            keys = call.keys() - {key}
            if keys & THOUGHTS:
                given = [call[one] for one in keys - THOUGHTS]
                alone = len(given) == 1 and not keys.isdisjoint(ARGUMENT_KEYS)
                takes = alone and isinstance(given[0], dict) and tools.takes(name, given[0])
                return name if takes else None
            own = keys.isdisjoint(ARGUMENT_KEYS) and key not in tools.properties(name)
            return name if keys and own and tools.takes(name, keys) else None
    return None
