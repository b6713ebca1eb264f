"""The formats with parameters in tags: a row for each mark, or kind of mark.

The tags are ``<function=name>`` and ``<parameter=key>``, ``<function name="…">``,
``<invoke name="…">``, pairs of a key and a value, nested elements, attributes, or one element for
the call, which may have the tool's name.
"""

from __future__ import annotations

import re

from ...wire.call import Call
from ...wire.json_text import write
from ..tools import ToolSet
from . import python_calls
from .base import (
    LEFTOVER_MARKS,
    NEVER,
    Block,
    Format,
    Head,
    Reading,
    Source,
    Stop,
    Where,
    after,
    end_or,
    json_object,
    marked,
    one_of,
    skip_space,
)
from .marks import DEEPSEEK_BEGIN, DEEPSEEK_CALL, DEEPSEEK_SEP, NAME
from .tagged import Tags, typed, types_of

_QUOTED = r"\"[^\"\n]*+\"|'[^'\n]*+'|[^\s>]++"
_NAMED = rf"name\s*+=\s*+(?P<name>{_QUOTED})"
_KEYED = rf"name\s*+=\s*+(?P<key>{_QUOTED})"

# Parameters in tags: `<function=name>`, `<function name="…">`, `<invoke name="…">`

_PARAMETER = re.compile(r"<(?P<tag>parameter)=(?P<key>[^>\n<]{1,200}?)[ \t]*(?:>|(?=\n))")


def _qwen(openers: tuple[str, ...], trim: str) -> Format:
    """Make a row; ``trim``: how its chat template separates values."""
    return marked(
        "qwen3_xml",
        openers,
        # a line break may replace a forgotten `>`
        r"(?:<(?:seed:)?tool_call>\s*+)?"
        r"<function=\s*+(?P<name>[^>\n<]{1,200}?)[ \t]*(?:>|\n\s*+(?=<parameter=))",
        Tags(_PARAMETER, trim=trim).read,
        "</function>|</(?:seed:)?tool_call>",
    )


def _minicpm(tag: str, trim: str, known_only: bool) -> Format:
    # MiniCPM's own parser drops parameters that the tool does not have, hence `known_only`.
    parameter = re.compile(rf"<(?P<tag>{tag})\s++{_KEYED}\s*+>")
    return marked(
        "minicpm5_xml",
        ("<function name=", "<tool_call>"),
        rf"(?:<tool_call>\s*+)?<function\s++{_NAMED}\s*+>\s*+(?:<arguments>\s*+)?",
        Tags(parameter, trim=trim, known_only=known_only).read,
        "</(?:arguments|function|tool_call)>",
    )


# Before a tag's name: a vendor's token (`｜DSML｜`, `｜GCML｜`), perhaps with blanks, or a prefix.
_TAG_PREFIX = r"(?:[｜|]\s*+\w++\s*+[｜|]\s*+|\w++:)?"
_AROUND = r"(?:(?:dots_)?function_calls?|tool_calls?|calls)>"
_PREFIXES = ("antml:", "steptml:", "atem:")
_IN_TOKENS = tuple(
    f"<{bar}{word}{bar}{gap}{ending}"
    for bar in "｜|"
    for word in ("DSML", "GCML")
    for gap in ("", " ")
    for ending in ("function_calls>", "tool_calls>", "calls>", "invoke name=")
)
_INVOKES = (
    *("<function_calls>", "<tool_call>", "<dots_function_call>", "<invoke name="),
    *(f"<{prefix}{tag}" for prefix in _PREFIXES for tag in ("invoke name=", "function_calls>")),
    *DEEPSEEK_BEGIN,
)


def _invoke(name: str, openers: tuple[str, ...], trim: str = "line") -> Format:
    parameter = re.compile(
        rf"<(?P<tag>{_TAG_PREFIX}parameter)\s++{_KEYED}"
        r"(?:\s+string\s*+=\s*+\"?(?P<kind>true|false)\"?)?[^>\n]*+>"
    )
    return marked(
        name,
        openers,
        rf"(?:<{_TAG_PREFIX}{_AROUND}\s*+|{DEEPSEEK_CALL}\s*+(?:\w++\s*+{DEEPSEEK_SEP}\s*+)?)?"
        rf"<{_TAG_PREFIX}invoke\s++{_NAMED}[^>\n]*+>",
        Tags(parameter, trim=trim).read,
        rf"</{_TAG_PREFIX}invoke>",
        stop="</(?:minimax:)?tool_call>",
        around=rf"</{_TAG_PREFIX}{_AROUND}",
    )


# Servers that treat the text as HTML drop `<` and `</`: the closing tag then adjoins its value.
_BARE_TAGS = ("minimax:tool_call>", "invoke name=")
_BARE_INVOKE = marked(
    "minimax_m2_invoke",
    ("<minimax:tool_call>",),
    rf"(?:<?minimax:tool_call>\s*+)?invoke\s++{_NAMED}\s*+>",
    Tags(re.compile(rf"(?P<tag>parameter)\s++{_KEYED}\s*+>"), "{}>", "lines").read,
    stop="\ninvoke>|minimax:tool_call>",
    around="invoke>|(?:</)?minimax:tool_call>",
)


def _follow_quoted(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a tool's name may follow, in quotes or not."""
    index = skip_space(text, pos)
    return python_calls.follow_name(text, index + text.startswith(('"', "'"), index), tools, "\"'>")


# Muse Glimmer writes its reply's receiver first. A message to the user may show a call.
_ATEM = _invoke("glimmer", ("<|message|>",))
_RECEIVER = re.compile(r"(?:to=(?P<to>[^\s<]{0,200}+))?<\|message\|>\s*+(?=<atem:)")
_RECEIVER_NAME = re.compile(r"[^\s<]{0,200}+")
_MESSAGE_END = re.compile(r"\s*+(?:<\|(?:eot|eom|start)\|>|\Z)")


def _read_message(src: Source, start: int) -> Block | None:
    """Read a message's calls; next to other text, a message to the user only shows them."""
    receiver = _RECEIVER.match(src.text, start)
    block = _ATEM.read(src, receiver.end()) if receiver else None
    if receiver is None or block is None or receiver["to"] != "user":
        return block
    return block if _MESSAGE_END.match(src.text, block.end) else Block(block.end, ())


def _follow_receiver(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a message may begin after ``to=``: a receiver, then the token."""
    return one_of(text, end_or(_RECEIVER_NAME.match(text, pos), pos), ("<|message|>",))


def _follow_message(text: str, pos: int, tools: ToolSet) -> bool:
    return one_of(text, skip_space(text, pos), ("<atem:",)) or skip_space(text, pos) == len(text)


# Pairs of a key and a value: GLM, LongCat and Hunyuan; Hunyuan 4 adds a suffix to each tag.


def _pairs(name: str, openers: tuple[str, ...], prefix: str = "") -> Format:
    """Make a row; the call's tag contains the name. A key without a value counts as absent."""
    key = rf"<(?P<tag>{prefix}arg_key)(?P<suffix>:\w++)?>(?P<key>[^<]{{0,200}}+)"
    end = rf"(?:</{prefix}arg_key(?::\w++)?>)?\s*+"
    tags = Tags(
        re.compile(rf"{key}{end}(?:<{prefix}arg_value(?::\w++)?>)?"),
        f"</{prefix}arg_value{{suffix}}>",
        "none",
        valueless=re.compile(rf"{key}{end}(?=<{prefix}arg_key|</{prefix}tool_call)"),
    )
    return marked(
        name,
        openers,
        rf"(?:<tool_calls(?::\w++)?>\s*+)?<{prefix}tool_call(?::\w++)?>\s*+{NAME}\s*+"
        r"(?:<tool_sep(?::\w++)?>)?",
        tags.read,
        rf"</{prefix}tool_call(?::\w++)?>",
        stop=rf"<{prefix}tool_call(?::\w++)?>",
        around=r"</tool_calls(?::\w++)?>",
    )


_PAIR = re.compile(r"""\s*+([\w.-]++)=("(?>(?:[^"\\]|\\.)*)"|'(?>(?:[^'\\]|\\.)*)'|[^\s<]++)""")


def _read_words(src: Source, head: Head, stop: Stop) -> Reading:
    """Read ``key=value key=value``, as models write in GLM's tag."""
    schema, end = src.tools.schema_of(head["name"]), head.end()
    values: dict[str, object] = {}
    while (pair := _PAIR.match(src.text, end)) is not None:
        raw = pair[2][1:-1] if pair[2][0] in "\"'" else pair[2]
        values[pair[1]] = typed(raw, types_of(schema.properties.get(pair[1])))
        end = pair.end()
    return [Call(head["name"], write(values))], end


# Nested elements: MiniMax M3. Attributes: Kimi K3.

_M3 = re.escape("]<]minimax[>[")
_M3_PARAMETER = re.compile(_M3 + r"<(?P<tag>(?P<key>[^<>/\n][^<>\n]{0,199}+))>")
_ATTRIBUTES = r"(?>(?:\s++\w++=\"[^\"]*+\")*)\s*+<\|sep\|>"
_K3_PARAMETER = re.compile(
    r"<\|open\|>(?P<tag>argument)\s++key=\"(?P<key>[^\"]*+)\""
    rf"(?:\s++type=\"(?P<kind>\w++)\")?{_ATTRIBUTES}"
)

# One element for the call, which holds the tool's name and the arguments: agents' templates

_WRAPPERS = ("tool_call", "tool_use", "use_tool", "use_mcp_tool", "function_call")
_WRAPPER = rf"(?:{'|'.join(_WRAPPERS)})"
_WRAPPER_TAGS = tuple(f"<{tag}>" for tag in _WRAPPERS)
_ELEMENTS = Tags(
    re.compile(
        r"<(?P<tag>[A-Za-z_][\w.-]{0,199})"
        r"(?:\s++name\s*+=\s*+(?P<key>\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s>]++))?\s*+>"
    ),
    trim="element",
    named=True,
)
_OWN = r"<(?P<name>[A-Za-z_][\w.-]{0,199})>"
_TOOL_NAME = (
    r"(?:<server_name>[^<\n]{0,200}+</server_name>\s*+)?"
    r"<(?P<by>name|tool_name|function_name|function|tool)>\s*+(?P<name>[^<>\n]{1,200}?)\s*+</(?P=by)>"
    r"(?:\s*+<(?:arguments|parameters)>)?"
)
FORMATS = (
    _qwen(("<tool_call>", "<function="), "line"),
    _qwen(("<seed:tool_call>",), "lines"),
    _minicpm("param", "escaped", known_only=True),
    _minicpm("parameter", "line", known_only=False),
    _invoke("minimax_m2_invoke", ("<minimax:tool_call>",), "lines"),
    _BARE_INVOKE,
    Format("minimax_m2_invoke", _BARE_TAGS, _BARE_INVOKE.read, Where.LINE),
    _invoke("deepseek_dsml", _IN_TOKENS),
    _invoke("invoke_xml", _INVOKES),
    Format("glimmer", ("to=",), _read_message, Where.LINE, _follow_receiver),
    Format("glimmer", ("<|message|>",), _read_message, follow=_follow_message),
    _pairs("glm", ("<tool_call>",)),
    marked(
        "glm",
        ("<tool_call>",),
        rf"<tool_call>\s*+{NAME}(?=\s++[\w.-]++=)",
        _read_words,
        "</tool_call>",
    ),
    _pairs("longcat", ("<longcat_tool_call>",), "longcat_"),
    _pairs("hunyuan_v3", ("<tool_calls>",)),
    _pairs("hunyuan_v4", ("<tool_calls:", "<tool_call:")),
    marked(
        "minimax_m3",
        ("]<]minimax[>[<tool_call>",),
        rf"(?:{_M3}<tool_call>\s*+)?{_M3}<invoke\s++{_NAMED}\s*+>",
        Tags(_M3_PARAMETER, "]<]minimax[>[</{}>", "none", nested=True).read,
        f"{_M3}</(?:invoke|tool_call)>",
        follow=None,
    ),
    marked(
        "kimi_k3",
        ("<|open|>tools<|sep|>", "<|open|>call "),
        r"(?:<\|open\|>tools<\|sep\|>\s*+)?<\|open\|>call(?>(?:\s++(?!tool=)\w++=\"[^\"]*+\")*)"
        rf"\s++tool=\"(?P<name>[^\"]*+)\"{_ATTRIBUTES}",
        Tags(_K3_PARAMETER, "<|close|>{}<|sep|>", "none").read,
        r"<\|close\|>(?:call|tools)<\|sep\|>",
    ),
    marked(
        "xml_elements",
        _WRAPPER_TAGS,
        rf"(?>(?:<{_WRAPPER}>\s*+)?){_TOOL_NAME}",
        _ELEMENTS.read,
        "</(?:arguments|parameters)>",
        stop=f"</{_WRAPPER}>",
    ),
    marked(
        "xml_elements",
        _WRAPPER_TAGS,
        rf"(?>(?:<{_WRAPPER}>\s*+)?){_OWN}",
        _ELEMENTS.read,
        "</(?:arguments|parameters)>",
        stop=f"</{_WRAPPER}>",
        around=r"</(?!tool_|use_|function_)[\w.-]{1,200}+>",
    ),
    marked(
        "xml_elements",
        tuple(f"<{tag} name=" for tag in _WRAPPERS),
        rf"<{_WRAPPER}\s++{_NAMED}\s*+>",
        _ELEMENTS.read,
        rf"</(?:arguments|parameters|{_WRAPPER})>",
        follow=_follow_quoted,
    ),
)

# A tool's own element: `<read_file><path>…</path></read_file>` (Cline, Roo Code). It has no mark,
# and people ask models for XML. So an element is a call only if its name is unusual in documents
# (`read_file`, `readFile`; not `note` or `Button`), if it is at the start of a line, unindented,
# and if it has only parameters of the tool and all required ones.

# A name of two words: single words and HTML elements are too common in texts.
OWN_NAME = re.compile(r"[A-Za-z]\w*[_.-]\w|[a-z]\w*[A-Z]")

_OPENING = re.compile(_OWN)


def _read_tool(src: Source, start: int) -> Block | None:
    """Read a tool's own element with all required parameters."""
    text, tag = src.text, _OPENING.match(src.text, start)
    if tag is None or (start and text[start - 1] not in "\n>"):
        return None
    reading = _ELEMENTS.read(src, tag, re.compile(NEVER))
    arguments = json_object(reading[0][0].arguments) if reading else None
    if reading is None or arguments is None or not src.tools.takes(tag[1], arguments):
        return None
    calls, end = reading
    if not text.endswith(f"</{tag[1]}>", 0, end) and text[end:].strip():
        return None
    if text.startswith("</", skip_space(text, after(LEFTOVER_MARKS, text, end))):
        return None  # part of a document's element
    return Block(end, tuple(calls))


def _follow_tool(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether JSON, a parameter, or the element's end follows a tool's opening tag."""
    name = text[text.rindex("<", 0, pos) + 1 : pos - 1]
    index = skip_space(text, pos)
    keys = tools.parameters(name)
    return one_of(text, index, ("{", f"</{name}>", "<parameter ", *(f"<{key}>" for key in keys)))


# The openers are the tags of the request's tools, so the row lists none: `table.own_tags`.
TOOL = Format("xml_elements", (), _read_tool, Where.LINE, _follow_tool)
