"""The formats with marks, one row each, grouped by the grammar inside the marks.

Inside stands JSON that holds the name, a name with JSON after it, or a call in Python; parameters
in tags are in ``tag_marks``. A mark that may hold several of these grammars has a row for each.
"""

from __future__ import annotations

import re

from ...wire.call import Call
from ..tools import ToolSet
from . import python_calls
from .base import (
    Follow,
    Format,
    One,
    Reader,
    Source,
    Where,
    dumps,
    in_marks,
    json_object,
    skip_space,
)
from .json_calls import marked_envelope, object_text, read_calls

NAME_TAGS = ("name", "tool_name", "function_name", "function", "tool")

NAME = r"(?P<name>[^\s<>{}\[\]()\"'`,:=]{1,200})"
_WORD = re.compile(r"[^\s<>(){}\[\]\"'`]+")
_BEHIND_NAME = re.compile(r"[({\[<]|[\w.-]++(?:=|\Z)|\Z")


def follow_call(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a call may follow a mark that prose may mention: JSON, a tag, or a name.

    Behind the name must come a bracket, a tag or a ``key=``.
    """
    index = skip_space(text, pos)
    if index == len(text) or text[index] in "[{<\"'`":
        return True
    name = _WORD.match(text, index)
    return name is not None and bool(_BEHIND_NAME.match(text, skip_space(text, name.end())))


def named(head: str, *stop: str, mark: str = "") -> One:
    """Make a reader for one call: the pattern ``head`` with the group ``name``, then a JSON object.

    ``stop``: texts that end arguments which can't be read. ``mark``: Gemma's quotation mark.
    """
    pattern = re.compile(r"\s*+" + head)

    def read(src: Source, pos: int) -> tuple[list[Call], int] | None:
        match = pattern.match(src.text, pos)
        if match is None:
            return None
        arguments, end = object_text(src, match.end(), stop, mark)
        return [Call(match["name"], arguments)], end

    return read


def _json(*stop: str) -> One:
    return lambda src, pos: read_calls(src, pos, stop, marked_envelope)


def _row(
    name: str, opener: str, *ends: str, stop: tuple[str, ...] = (), follow: Follow | None = None
) -> Format:
    """Make a row for JSON after a mark; ``ends`` close the calls, ``stop`` only broken ones."""
    read = in_marks(_json(opener, *ends, *stop), re.escape(opener), last=closers(*ends))
    return Format(name, (opener,), read, follow=follow)


def closers(*marks: str) -> str:
    """Return a pattern for one of these marks, with blanks before it."""
    return r"\s*+(?:" + "|".join(map(re.escape, marks)) + ")"


def _python(name: str, opener: str, closer: str, call_start: str = "") -> Format:
    """Make a row for Python after a mark; the pattern ``call_start`` precedes each call."""
    prefix = re.escape(opener) + r"\s*+" + call_start
    read = in_marks(
        python_calls.read_calls, prefix, call_start and rf"\s*+,?\s*+{call_start}", closers(closer)
    )
    # A special token begins a call; prose may mention the other marks.
    return Format(name, (opener,), read, follow=None if opener[:2] == "<|" else python_calls.follow)


# JSON that holds the name, between two marks. A speaker's header may stand before the first mark.

_HEADED = in_marks(
    _json("<|action_end|>", "<|message_sep|>", "<|end_message|>", "</s>"),
    r"<\|action_start\|>\s*+<\|plugin\|>"
    r"|<\|message_sep\|>\s*+function call\s*+<\|role_sep\|>"
    r"|(?:<\|message_model\|>[^<]{0,200}+)?<\|content_invoke_tool_json\|>",
    last=r"\s*+<\|(?:action_end|message_sep|end_message)\|>",
)
_GIGACHAT = ("</s>", "<|message_sep|>")
_JSON_ROWS = (
    _row("hermes_json", "<tool_call>", "</tool_call>", follow=follow_call),
    _row("hunyuan_json", "<tool_calls>", "</tool_calls>", follow=follow_call),
    _row("longcat", "<longcat_tool_call>", "</longcat_tool_call>", follow=follow_call),
    _row("mistral", "[TOOL_CALLS]", "[/TOOL_CALLS]", "</s>"),
    _row("llama_python_tag", "<|python_tag|>", stop=("<|eom_id|>", "<|eot_id|>")),
    _row("gemma4", "<|tool_call>", "<tool_call|>"),
    _row("granite", "<|tool_call|>", "<|/tool_call|>", stop=("<|end_of_text|>",)),
    _row("granite20b", "<function_call>", "</function_call>", follow=follow_call),
    _row("glaive", "<functioncall>", "</functioncall>", stop=("<|endoftext|>",)),
    _row("phi4mini", "functools", stop=("<|end|>", "<|tool_call|>")),
    _row("lm_studio", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
    _row("nemotron", "<TOOLCALL>", "</TOOLCALL>"),
    _row("command_r", "<|START_ACTION|>", "<|END_ACTION|>"),
    _row("lfm2", "<|tool_call_start|>", "<|tool_call_end|>"),
    _row("gigachat3", "<|function_call|>", stop=_GIGACHAT),
    _row("gigachat3", "function call<|role_sep|>", stop=_GIGACHAT),
    _row("apertus", "<|tools_prefix|>", "<|tools_suffix|>"),
    _row("dots", "<dots_function_call>", "</dots_function_call>"),
    Format("internlm2", ("<|action_start|>",), _HEADED),
    Format("gigachat3", ("<|message_sep|>",), _HEADED),
    Format("inkling", ("<|content_invoke_tool_json|>", "<|message_model|>"), _HEADED),
)

# Python between marks

_PYTHON_ROWS = (
    _python("llama_python_tag", "<|python_tag|>", "<|eom_id|>"),
    _python("pythonic", "<|python_start|>", "<|python_end|>"),
    _python("lfm2", "<|tool_call_start|>", "<|tool_call_end|>"),
    _python("olmo3", "<function_calls>", "</function_calls>"),
    _python("glm", "<tool_call>", "</tool_call>"),
    _python("calling_tool_bracket", "[Calling tool:", "]"),
    _python("calling_tool_bracket", "[Calling tool=", "]"),
    _python("gemma4", "<|tool_call>", "<tool_call|>", r"(?:call\s*+:\s*+)?"),
)

# A name, and JSON after it

# DeepSeek's real tokens, and the forms that tokenizers and transcripts give them. R1 writes
# `function<｜tool▁sep｜>name` and a fence; small models of its kind leave the first token out.
_SPELLINGS = tuple((bar, gap) for bar in "｜|" for gap in ("▁", "_", "\\_", " "))
DEEPSEEK_CALLS = tuple(f"<{bar}tool{gap}call{gap}begin{bar}>" for bar, gap in _SPELLINGS)
_CALLS_BEGIN = tuple(
    f"<{bar}tool{gap}calls{ending}{bar}>"
    for bar, gap in _SPELLINGS
    for ending in (f"{gap}begin", "")
)


def _token(*words: str) -> str:
    return r"<[｜|]" + r"(?:▁|\\?_| )".join(words) + r"[｜|]>"


DEEPSEEK_HEAD, DEEPSEEK_SEP = _token("tool", "call", "begin"), _token("tool", "sep")
_deepseek = in_marks(
    named(
        # "function" is the call's kind, not its name, if a name follows the separator. The first
        # call's own token may be missing, but then the separator must be there.
        rf"(?P<own>{DEEPSEEK_HEAD}\s*+)?(?:function\s*+{DEEPSEEK_SEP}\s*+(?=[^\s<{{`]))?{NAME}\s*+"
        rf"(?:{DEEPSEEK_SEP}(?!\s*+<steptml:)"
        rf"|(?(own)(?=\{{|```|{_token('tool', 'call', 'end')})|(?<=\n)(?=\{{|```)))",
        *(f"<{bar}tool{gap}call" for bar, gap in _SPELLINGS),
    ),
    r"<[｜|]tool(?:▁|\\?_| )calls(?:(?:▁|\\?_| )begin)?[｜|]>\s*+",
    r"\s*+" + _token("tool", "call", "end"),
    r"\s*+" + _token("tool", "calls", "end"),
)
_kimi_call = named(
    r"<\|tool_call_begin\|>\s*+(?:functions\.)?(?P<name>[^\s<>]{1,200}?)(?::\d+)?\s*+"
    r"<\|tool_call_argument_begin\|>",
    *("<|tool_call_end|>", "<|tool_call_begin|>", "<|tool_calls_section_end|>"),
)


def _by_id(src: Source, pos: int) -> tuple[list[Call], int] | None:
    """Read a call of Kimi's, whose id may be a bare number, without the tool's name."""
    reading = _kimi_call(src, pos)
    if reading is None or not reading[0][0].name.isdecimal():
        return reading
    (call,), end = reading
    name = src.tools.taker_of(json_object(call.arguments) or {})
    return [Call(name or call.name, call.arguments)], end


_kimi = in_marks(
    _by_id,
    r"<\|tool_calls?_section_begin\|>",
    r"\s*+<\|tool_call_end\|>",
    r"\s*+<\|tool_calls?_section_end\|>",
)
_KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_begin|>")
_mistral = in_marks(
    named(
        rf"(?:\[TOOL_CALLS\]\s*+)?{NAME}\s*+(?:\[CALL_ID\]\s*+[\w-]*+\s*+)?+"
        r"(?:\[ARGS\]\s*+|(?=\{))",
        *("[TOOL_CALLS]", "</s>", "[/TOOL_CALLS]"),
    ),
    last=closers("</s>", "[/TOOL_CALLS]"),
)


_solar = in_marks(
    named(
        r"<\|tool_call:begin\|>[^<]{0,200}+<\|tool_call:name\|>\s*+(?P<name>[^\s<>]{1,200}+)\s*+"
        r"<\|tool_call:args\|>",
        *("<|tool_call:end|>", "<|tool_call:begin|>", "<|calls|>"),
    ),
    r"<\|tool_calls\|>",
    closers("<|tool_call:end|>"),
    closers("<|calls|>"),
)


def _plamo_token(word: str) -> str:
    return rf"\s*+<\|plamo:{word}:plamo\|>"


_plamo = in_marks(
    named(
        rf"{_plamo_token('begin_tool_request')}{_plamo_token('begin_tool_name')}\s*+"
        rf"(?P<name>[^<>]{{1,200}}?)\s*+{_plamo_token('end_tool_name')}"
        rf"{_plamo_token('begin_tool_arguments')}\s*+(?:<\|plamo:msg\|>)?",
        "<|plamo:end_tool_arguments:plamo|>",
    ),
    _plamo_token("begin_tool_requests"),
    f"(?:{_plamo_token('end_tool_arguments')})?(?:{_plamo_token('end_tool_request')})?",
    _plamo_token("end_tool_requests"),
)
_CWM = re.compile(
    r"\s*+<tool: function>\s*+(?P<name>[\w.-]{1,200}+)[ \t\n](?P<text>.*?)\n?</tool>", re.S
)


def _cwm(src: Source, pos: int) -> tuple[list[Call], int] | None:
    """Read a name, then the text of the tool's only required parameter."""
    match = _CWM.match(src.text, pos)
    required = src.tools.schema_of(match["name"]).required if match else ()
    if match is None or len(required) != 1:
        return None
    return [Call(match["name"], dumps({required[0]: match["text"]}))], match.end()


def _gemma(opener: str, closer: str, mark: str) -> Reader:
    head = rf"(?:call\s*+:\s*+)?{NAME}\s*+(?=\{{)"
    return in_marks(named(head, closer, mark=mark), re.escape(opener), r"\s*+,", closers(closer))


def _follow_name(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a tool's name may follow ``>>>``, which alone is a quote or a Python prompt."""
    return python_calls.follow_name(text, pos, tools, "{")


_LLAMA = r"<function=\s*+(?P<name>[^>\s][^>\n]{0,199}?)\s*+>(?=\s*+\{)"
_NAMED_ROWS = (
    Format("deepseek_v3", (*_CALLS_BEGIN, *DEEPSEEK_CALLS), _deepseek),
    Format("kimi_k2", _KIMI, _kimi),
    Format("mistral", ("[TOOL_CALLS]",), _mistral),
    Format("solar_open", ("<|tool_calls|>", "<|tool_call:begin|>"), _solar),
    Format(
        "plamo3",
        ("<|plamo:begin_tool_requests:plamo|>", "<|plamo:begin_tool_request:plamo|>"),
        _plamo,
    ),
    Format("cwm", ("<tool: function>",), in_marks(_cwm)),
    Format(
        "functionary",
        (">>>",),
        in_marks(named(rf">>>{NAME}[ \t]*+\n?\s*+(?=\{{)", "\n>>>", "<|eot_id|>")),
        Where.LINE,
        _follow_name,
    ),
    Format(
        "llama_function_tag",
        ("<function=",),
        in_marks(named(_LLAMA, "</function>", "<function="), end=closers("</function>")),
    ),
    Format("gemma4", ("<|tool_call>",), _gemma("<|tool_call>", "<tool_call|>", '<|"|>')),
    Format(
        "functiongemma",
        ("<start_function_call>",),
        _gemma("<start_function_call>", "<end_function_call>", "<escape>"),
    ),
)

FORMATS = (*_JSON_ROWS, *_PYTHON_ROWS, *_NAMED_ROWS)
