"""The formats that write parameters as tags, one row each; ``tagged`` reads them.

- ``<function=name>``: Qwen3-Coder, Nemotron, Step 3.5, Seed-OSS.
- ``<invoke name="…">``: MiniMax M2, DeepSeek's DSML, GigaChat 3.5, Muse Glimmer, dots, Step 3,
  plain XML.
- ``<function name="…">``: MiniCPM 5, also with the other formats' tags, because models mix them.
- Pairs of a key and a value: GLM 4.x, LongCat, Hunyuan 3 and 4.
- Nested elements: MiniMax M3. Attributes: Kimi K3. One element for the call: agents' templates,
  which may also be named as the tool is.
"""

from __future__ import annotations

import re

from ...wire.call import Call
from ..tools import ToolSet
from . import python_calls
from .base import (
    Block,
    Format,
    One,
    Reader,
    Source,
    Where,
    after_tail,
    dumps,
    end_or,
    in_marks,
    json_object,
    one_of,
    skip_space,
)
from .json_calls import close
from .marks import (
    DEEPSEEK_CALLS,
    DEEPSEEK_HEAD,
    DEEPSEEK_SEP,
    NAME,
    NAME_TAGS,
    closers,
    follow_call,
)
from .tagged import Tags, read_call, tagged, typed, types_of

# Elements that agents' own templates put around a call.
WRAPPERS = ("tool_call", "tool_use", "use_tool", "use_mcp_tool", "function_call")
_QUOTED = r"\"[^\"\n]*+\"|'[^'\n]*+'|[^\s>]++"

_QWEN_PARAMETER = re.compile(r"<(?P<tag>parameter)=(?P<key>[^>\n<]{1,200}?)[ \t]*(?:>|(?=\n))")


def _qwen(trim: str = "line") -> Reader:
    """Make the reader for ``<function=name>``; ``trim``: how its chat template sets values off."""
    return in_marks(
        tagged(
            # A line break may stand in place of a forgotten `>`.
            r"<function=\s*+(?P<name>[^>\n<]{1,200}?)[ \t]*(?:>|\n\s*+(?=<parameter=))",
            Tags(_QWEN_PARAMETER, trim=trim),
            ("</function>", "</tool_call>", "</seed:tool_call>"),
        ),
        "<(?:seed:)?tool_call>",
        r"\s*+</function>",
        r"\s*+</(?:seed:)?tool_call>",
    )


_MINICPM = rf"<function\s++name\s*+=\s*+(?P<name>{_QUOTED})\s*+>\s*+(?:<arguments>\s*+)?"
_MINICPM_ENDS = ("</function>", "</arguments>", "</tool_call>")
_PARAM = rf"\s++name\s*+=\s*+(?P<key>{_QUOTED})\s*+>"


def _minicpm(tag: str, trim: str, known_only: bool) -> Reader:
    # MiniCPM's own parser leaves out parameters that the tool does not have, so `known_only` does.
    tags = Tags(re.compile(f"<(?P<tag>{tag})" + _PARAM), trim=trim, known_only=known_only)
    end = r"(?:\s*+</arguments>)?(?:\s*+</function>)?"
    read_one = tagged(_MINICPM, tags, _MINICPM_ENDS)
    return in_marks(read_one, r"<tool_call>", end, closers("</tool_call>"))


# Before a tag's name: a token of the vendor's (`｜DSML｜`, `｜GCML｜`), blanks or not, or a prefix.
_BEFORE = r"(?:[｜|]\s*+\w++\s*+[｜|]\s*+|\w++:)?"
_AROUND = r"(?:(?:dots_)?function_calls?|tool_calls?|calls)>"
_TOKENS = tuple(
    f"{bar}{word}{bar}{gap}" for bar in "｜|" for word in ("DSML", "GCML") for gap in ("", " ")
)
_PREFIXES = ("", "antml:", "steptml:", "atem:")


def _invoke(trim: str = "line") -> Reader:
    """Make the reader for ``<invoke name="…">``; ``trim`` as in :func:`_qwen`."""
    return in_marks(
        tagged(
            rf"<{_BEFORE}invoke\s++name\s*+=\s*+(?P<name>{_QUOTED})[^>\n]*+>",
            Tags(
                re.compile(
                    rf"<(?P<tag>{_BEFORE}parameter)\s++name\s*+=\s*+(?P<key>{_QUOTED})"
                    r"(?:\s+string\s*+=\s*+\"?(?P<kind>true|false)\"?)?[^>\n]*+>"
                ),
                trim=trim,
            ),
            (
                *(f"</{prefix}invoke>" for prefix in (*_PREFIXES, *_TOKENS)),
                "</tool_call>",
                "</minimax:tool_call>",
            ),
        ),
        rf"<{_BEFORE}{_AROUND}|{DEEPSEEK_HEAD}\s*+(?:\w++\s*+{DEEPSEEK_SEP}\s*+)?",
        rf"\s*+</{_BEFORE}invoke>",
        rf"\s*+</{_BEFORE}{_AROUND}",
    )


_read_invoke = _invoke()
# Servers that take the text for HTML drop `<` and `</`: the closing tag is then glued to its value.
_BARE_TAGS = ("minimax:tool_call>", "invoke name=")
_read_bare = in_marks(
    tagged(
        rf"invoke\s++name\s*+=\s*+(?P<name>{_QUOTED})\s*+>",
        Tags(
            re.compile(rf"(?P<tag>parameter)\s++name\s*+=\s*+(?P<key>{_QUOTED})\s*+>"),
            "{}>",
            "lines",
        ),
        ("\ninvoke>", "minimax:tool_call>"),
    ),
    r"<?minimax:tool_call>",
    r"\s*+invoke>",
    r"\s*+(?:</)?minimax:tool_call>",
)


def _follow_bare(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a tool's name may follow in its quotes, once the envelope's tag is passed."""
    index = skip_space(text, pos)
    index = index + len(_BARE_TAGS[1]) if text.startswith(_BARE_TAGS[1], index) else index
    return one_of(text, index, _BARE_TAGS[1:]) or python_calls.follow_name(
        text, index + text.startswith('"', index), tools, '">'
    )


_BARE_INVOKES = (
    *(f"<{prefix}invoke name=" for prefix in _PREFIXES),
    *(f"<{prefix}function_calls>" for prefix in _PREFIXES[1:]),
    "<dots_function_call>",
)
_IN_TOKENS = tuple(
    f"<{token}{ending}"
    for token in _TOKENS
    for ending in ("function_calls>", "tool_calls>", "calls>", "invoke name=")
)

# Muse Glimmer writes its reply's receiver first. What it tells the user may show a call.
_RECEIVER = re.compile(r"(?:to=(?P<to>[^\s<]{0,200}+))?<\|message\|>\s*+(?=<atem:)")
_RECEIVER_NAME = re.compile(r"[^\s<]{0,200}+")
_MESSAGE_END = re.compile(r"\s*+(?:<\|(?:eot|eom|start)\|>|\Z)")


def _read_message(src: Source, start: int) -> Block | None:
    """Read a message's calls; with other text, a message to the user only shows them."""
    receiver = _RECEIVER.match(src.text, start)
    block = _read_invoke(src, receiver.end()) if receiver else None
    if receiver is None or block is None or receiver["to"] != "user":
        return block
    return block if _MESSAGE_END.match(src.text, block.end) else Block(block.end, ())


def _follow_receiver(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a message may begin after ``to=``: a receiver, then the token."""
    return one_of(text, end_or(_RECEIVER_NAME.match(text, pos), pos), ("<|message|>",))


def _follow_message(text: str, pos: int, tools: ToolSet) -> bool:
    return one_of(text, skip_space(text, pos), ("<atem:",)) or skip_space(text, pos) == len(text)


def _pairs(prefix: str = "") -> One:
    """Make the reader for GLM's, LongCat's and Hunyuan's pairs; the call's tag holds the name.

    Hunyuan 4 adds a suffix to each tag (``<arg_key:opensource>``). A key without a value counts as
    not given.
    """
    key = rf"<(?P<tag>{prefix}arg_key)(?P<suffix>:\w++)?>(?P<key>[^<]{{0,200}}+)"
    end = rf"(?:</{prefix}arg_key(?::\w++)?>)?\s*+"
    return tagged(
        rf"<{prefix}tool_call(?P<suffix>:\w++)?>\s*+{NAME}\s*+(?:<tool_sep(?::\w++)?>)?",
        Tags(
            re.compile(rf"{key}{end}(?:<{prefix}arg_value(?::\w++)?>)?"),
            f"</{prefix}arg_value{{suffix}}>",
            "none",
            valueless=re.compile(rf"{key}{end}(?=<{prefix}arg_key|</{prefix}tool_call)"),
        ),
        (f"</{prefix}tool_call{{suffix}}>", f"<{prefix}tool_call{{suffix}}>"),
    )


_PAIR = re.compile(r"""\s*+([\w.-]++)=("(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|[^\s<]++)""")
_WORDS = re.compile(rf"\s*+{NAME}(?=\s++[\w.-]++=)")


def _words(src: Source, pos: int) -> tuple[list[Call], int] | None:
    """Read ``name key=value key=value``, as models write in GLM's tag."""
    head = _WORDS.match(src.text, pos)
    if head is None:
        return None
    name, end = head["name"], head.end()
    schema = src.tools.schema_of(name)
    values: dict[str, object] = {}
    while (pair := _PAIR.match(src.text, end)) is not None:
        raw = pair[2][1:-1] if pair[2][0] in "\"'" else pair[2]
        values[pair[1]] = typed(raw, types_of(schema.properties.get(pair[1])))
        end = pair.end()
    return [Call(name, dumps(values))], end


_M3 = "]<]minimax[>["
_minimax_m3 = in_marks(
    tagged(
        re.escape(_M3) + rf"<invoke\s++name\s*+=\s*+(?P<name>{_QUOTED})\s*+>",
        Tags(
            re.compile(re.escape(_M3) + r"<(?P<tag>(?P<key>[^<>/\n][^<>\n]{0,199}+))>"),
            _M3 + "</{}>",
            "none",
            nested=True,
        ),
        (f"{_M3}</invoke>", f"{_M3}</tool_call>"),
    ),
    re.escape(f"{_M3}<tool_call>"),
    closers(f"{_M3}</invoke>"),
    closers(f"{_M3}</tool_call>"),
)
_ATTRIBUTES = r"(?:\s++\w++=\"[^\"]*+\")*+\s*+<\|sep\|>"
_kimi_k3 = in_marks(
    tagged(
        rf"<\|open\|>call(?:\s++(?!tool=)\w++=\"[^\"]*+\")*+\s++tool=\"(?P<name>[^\"]*+)\"{_ATTRIBUTES}",
        Tags(
            re.compile(
                r"<\|open\|>(?P<tag>argument)\s++key=\"(?P<key>[^\"]*+)\""
                rf"(?:\s++type=\"(?P<kind>\w++)\")?{_ATTRIBUTES}"
            ),
            "<|close|>{}<|sep|>",
            "none",
        ),
        ("<|close|>call<|sep|>", "<|close|>tools<|sep|>"),
    ),
    re.escape("<|open|>tools<|sep|>"),
    closers("<|close|>call<|sep|>"),
    closers("<|close|>tools<|sep|>"),
)

# One element for the call, which holds the tool's name and the arguments
_ELEMENT = re.compile(
    r"<(?P<tag>[A-Za-z_][\w.-]{0,199})"
    r"(?:\s++name\s*+=\s*+(?P<key>\"[^\"\n]{1,200}\"|'[^'\n]{1,200}'|[^\s>]++))?\s*+>"
)
_ELEMENTS = Tags(_ELEMENT, trim="element", named=True)
_ENDS = tuple(f"</{tag}>" for tag in ("arguments", "parameters", *WRAPPERS))
_TOOL_NAME = (
    r"(?:<server_name>[^<\n]{0,200}+</server_name>\s*+)?"
    rf"<(?P<by>{'|'.join(NAME_TAGS)})>\s*+(?P<name>[^<>\n]{{1,200}}?)\s*+</(?P=by)>"
    r"(?:\s*+<(?:arguments|parameters)>)?"
)
_OWN = r"<(?P<name>[A-Za-z_][\w.-]{0,199})>"
_ATTRIBUTE = rf"<(?:{'|'.join(WRAPPERS)})\s++name=\s*+(?P<name>{_QUOTED})\s*+>"
_WRAPPED = rf"<(?:{'|'.join(WRAPPERS)})>"
_ARGUMENTS_END = r"(?:\s*+</(?:arguments|parameters)>)?"
_OWN_END = r"(?:\s*+</(?!tool_|use_|function_)[\w.-]{1,200}+>)?"
_WRAPPER_END = rf"\s*+</(?:{'|'.join(WRAPPERS)})>"
_wrapped = in_marks(tagged(_TOOL_NAME, _ELEMENTS, _ENDS), _WRAPPED, _ARGUMENTS_END, _WRAPPER_END)
_own = in_marks(
    tagged(_OWN, _ELEMENTS, ("</{}>", *_ENDS)), _WRAPPED, _ARGUMENTS_END + _OWN_END, _WRAPPER_END
)
_attribute = in_marks(
    tagged(_ATTRIBUTE, _ELEMENTS, _ENDS), "", f"{_ARGUMENTS_END}(?:{_WRAPPER_END})?", _WRAPPER_END
)
_WRAPPER_TAGS = tuple(f"<{tag}>" for tag in WRAPPERS)


def _follow_attribute(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a tool's name may stand in the wrapper's own tag."""
    index = skip_space(text, pos)
    return python_calls.follow_name(text, index + text.startswith(("'", '"'), index), tools, "\"'>")


FORMATS = (
    Format("qwen3_xml", ("<tool_call>",), _qwen(), follow=follow_call),
    Format("qwen3_xml", ("<function=",), _qwen()),
    Format("qwen3_xml", ("<seed:tool_call>",), _qwen("lines")),
    *(
        Format("minicpm5_xml", (opener,), _minicpm(*options), follow=follow)
        for options in (("param", "element", True), ("parameter", "line", False))
        for opener, follow in (("<function name=", None), ("<tool_call>", follow_call))
    ),
    Format("minimax_m2_invoke", ("<minimax:tool_call>",), _invoke("lines")),
    Format("minimax_m2_invoke", ("<minimax:tool_call>",), _read_bare),
    Format("minimax_m2_invoke", _BARE_TAGS, _read_bare, Where.LINE, _follow_bare),
    Format("deepseek_dsml", _IN_TOKENS, _read_invoke),
    Format("invoke_xml", ("<function_calls>", "<tool_call>"), _read_invoke, follow=follow_call),
    Format("invoke_xml", (*_BARE_INVOKES, *DEEPSEEK_CALLS), _read_invoke),
    Format("glimmer", ("to=",), _read_message, Where.LINE, _follow_receiver),
    Format("glimmer", ("<|message|>",), _read_message, follow=_follow_message),
    Format(
        "glm", ("<tool_call>",), in_marks(_pairs(), end=closers("</tool_call>")), follow=follow_call
    ),
    Format(
        "glm",
        ("<tool_call>",),
        in_marks(_words, "<tool_call>", closers("</tool_call>")),
        follow=follow_call,
    ),
    Format(
        "longcat",
        ("<longcat_tool_call>",),
        in_marks(_pairs("longcat_"), end=closers("</longcat_tool_call>")),
        follow=follow_call,
    ),
    Format(
        "hunyuan_v3",
        ("<tool_calls>",),
        in_marks(_pairs(), r"<tool_calls>\s*+", closers("</tool_call>"), closers("</tool_calls>")),
        follow=follow_call,
    ),
    Format(
        "hunyuan_v4",
        ("<tool_calls:", "<tool_call:"),
        in_marks(
            _pairs(),
            r"<tool_calls:\w++>\s*+",
            r"\s*+</tool_call:\w++>",
            r"\s*+</tool_calls:\w++>",
        ),
    ),
    Format("minimax_m3", (f"{_M3}<tool_call>",), _minimax_m3),
    Format("kimi_k3", ("<|open|>tools<|sep|>", "<|open|>call "), _kimi_k3),
    Format("xml_elements", _WRAPPER_TAGS, _wrapped, follow=follow_call),
    Format("xml_elements", _WRAPPER_TAGS, _own, follow=follow_call),
    Format(
        "xml_elements",
        tuple(f"<{tag} name=" for tag in WRAPPERS),
        _attribute,
        follow=_follow_attribute,
    ),
)


# A tool's own element: `<read_file><path>…</path></read_file>` (Cline, Roo Code). It has no mark,
# and people ask models for XML. So an element is a call only if its name is not one of documents'
# (`read_file`, `readFile`; not `note` or `Button`), if it stands, not indented, at the start of a
# line, and if it holds only parameters of the tool and all required ones.

# A name of two words: words and HTML elements of one are too common in texts.
OWN_NAME = re.compile(r"[A-Za-z]\w*[_.-]\w|[a-z]\w*[A-Z]")

_OPENING = re.compile(_OWN)


def _read_tool(src: Source, start: int) -> Block | None:
    """Read a tool's own element with all required parameters."""
    text, tag = src.text, _OPENING.match(src.text, start)
    if tag is None or (start and text[start - 1] not in "\n>"):
        return None
    closer = f"</{tag[1]}>"
    reading = read_call(src, tag, _ELEMENTS, (closer,))
    arguments = json_object(reading[0].arguments) if reading else None
    if reading is None or arguments is None or not src.tools.takes(tag[1], arguments):
        return None
    end = close(text, reading[1], (closer,))
    if end == reading[1] and text[end:].strip():
        return None
    if text.startswith("</", skip_space(text, after_tail(text, end))):
        return None  # the element is a part of a document's element
    return Block(end, (reading[0],))


def _follow_tool(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether JSON, a parameter, or the element's end follows a tool's opening tag."""
    name = text[text.rindex("<", 0, pos) + 1 : pos - 1]
    index = skip_space(text, pos)
    keys = tools.parameters(name)
    return one_of(text, index, ("{", f"</{name}>", "<parameter ", *(f"<{key}>" for key in keys)))


# The openers are the tags of the request's tools, so the row lists none: `table.own_tags`.
TOOL = Format("xml_elements", (), _read_tool, Where.LINE, _follow_tool)
