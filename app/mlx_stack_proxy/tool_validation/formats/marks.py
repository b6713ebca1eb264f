"""The formats with marks: a row for each mark, or kind of mark, and the grammar inside.

The content is JSON with the name, JSON after a name, or Python; ``tag_marks`` has parameters in
tags. A mark that allows several of these grammars has a row for each.
"""

from __future__ import annotations

import re
from functools import partial

from ...wire.call import Call
from ...wire.json_text import write
from ..tools import ToolSet
from . import python_calls
from .base import (
    Block,
    Format,
    Head,
    Reading,
    Source,
    Stop,
    Where,
    alternatives,
    json_object,
    marked,
)
from .json_calls import read_json

NAME = r"(?P<name>[^\s<>{}\[\]()\"'`,:=]{1,200})"


# JSON with the name: format, opening mark, closing marks


def _json(name: str, opener: str, *ends: str, stop: str = "", head: str = "") -> Format:
    opening = re.escape(opener)
    stops = f"{opening}|{re.escape(stop)}" if stop else opening
    return marked(name, (opener,), head or opening, read_json, alternatives(*ends), stop=stops)


_JSON_ROWS = (
    _json("hermes_json", "<tool_call>", "</tool_call>"),
    _json("hunyuan_json", "<tool_calls>", "</tool_calls>"),
    _json("longcat", "<longcat_tool_call>", "</longcat_tool_call>"),
    _json("mistral", "[TOOL_CALLS]", "[/TOOL_CALLS]", "</s>"),
    _json("llama_python_tag", "<|python_tag|>", "<|eom_id|>", "<|eot_id|>"),
    _json("gemma4", "<|tool_call>", "<tool_call|>"),
    _json("granite", "<|tool_call|>", "<|/tool_call|>", "<|end_of_text|>"),
    _json("granite20b", "<function_call>", "</function_call>"),
    _json("glaive", "<functioncall>", "</functioncall>", "<|endoftext|>"),
    _json("phi4mini", "functools", "<|end|>", stop="<|tool_call|>"),
    _json("lm_studio", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
    _json("nemotron", "<TOOLCALL>", "</TOOLCALL>"),
    _json("command_r", "<|START_ACTION|>", "<|END_ACTION|>"),
    _json("lfm2", "<|tool_call_start|>", "<|tool_call_end|>"),
    _json("apertus", "<|tools_prefix|>", "<|tools_suffix|>"),
    _json("dots", "<dots_function_call>", "</dots_function_call>"),
    _json("gigachat3", "<|function_call|>", "</s>", stop="<|message_sep|>"),
    _json("gigachat3", "function call<|role_sep|>", "</s>", stop="<|message_sep|>"),
    # A speaker's header precedes the JSON.
    _json(
        "gigachat3",
        "<|message_sep|>",
        "</s>",
        head=r"<\|message_sep\|>\s*+function call\s*+<\|role_sep\|>",
    ),
    _json(
        "internlm2",
        "<|action_start|>",
        "<|action_end|>",
        head=r"<\|action_start\|>\s*+<\|plugin\|>",
    ),
    *(
        _json(
            "inkling",
            opener,
            "<|end_message|>",
            head=r"(?:<\|message_model\|>[^<]{0,200}+)?<\|content_invoke_tool_json\|>",
        )
        for opener in ("<|content_invoke_tool_json|>", "<|message_model|>")
    ),
)


# Python: format, opening mark, closing mark


def _python(name: str, opener: str, closer: str, head: str = "") -> Format:
    # A special token begins a call; prose may mention the other marks.
    follow = None if opener[:2] == "<|" else python_calls.follow
    head = head or re.escape(opener)

    def body(src: Source, head: Head, stop: Stop) -> Reading:
        return python_calls.read_calls(src, head.end())

    return marked(name, (opener,), head, body, re.escape(closer), follow=follow)


_PYTHON_ROWS = (
    _python("llama_python_tag", "<|python_tag|>", "<|eom_id|>"),
    _python("pythonic", "<|python_start|>", "<|python_end|>"),
    _python("lfm2", "<|tool_call_start|>", "<|tool_call_end|>"),
    _python("olmo3", "<function_calls>", "</function_calls>"),
    _python("glm", "<tool_call>", "</tool_call>"),
    _python("calling_tool_bracket", "[Calling tool:", "]"),
    _python("calling_tool_bracket", "[Calling tool=", "]"),
    _python("gemma4", "<|tool_call>", "<tool_call|>", r"(?:<\|tool_call>|,)\s*+(?:call\s*+:\s*+)?"),
)


# A name, then JSON

# DeepSeek's real tokens, and their forms in tokenizers and transcripts. R1 writes
# `function<｜tool▁sep｜>name` and a fence; its small distillations omit the first token.
_SPELLINGS = tuple((bar, gap) for bar in "｜|" for gap in ("▁", "_", "\\_", " "))
DEEPSEEK_BEGIN = tuple(f"<{bar}tool{gap}call{gap}begin{bar}>" for bar, gap in _SPELLINGS)
_DEEPSEEK = tuple(
    f"<{bar}tool{gap}calls{end}{bar}>" for bar, gap in _SPELLINGS for end in (f"{gap}begin", "")
)


def _token(*words: str) -> str:
    return r"<[｜|]" + r"(?:▁|\\?_| )".join(words) + r"[｜|]>"


DEEPSEEK_SEP, _CALL_END = _token("tool", "sep"), _token("tool", "call", "end")
DEEPSEEK_CALL = _token("tool", "call", "begin")
_DEEPSEEK_HEAD = (
    rf"(?=<)(?:{_token('tool', 'calls', 'begin')}\s*+|{_token('tool', 'calls')}\s*+)?"
    # "function" is the call's kind, not its name, if a name follows the separator. The first
    # call's own token may be missing, but then the separator must be there.
    rf"(?P<own>{DEEPSEEK_CALL}\s*+)?(?:function\s*+{DEEPSEEK_SEP}\s*+(?=[^\s<{{`]))?{NAME}\s*+"
    rf"(?:{DEEPSEEK_SEP}(?!\s*+<steptml:)|(?(own)(?=\{{|```|{_CALL_END})|(?<=\n)(?=\{{|```)))"
)
_KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_begin|>")


def _by_id(src: Source, head: Head, stop: Stop) -> Reading:
    """Read a call of Kimi's, whose id may be a bare number, without the tool's name."""
    reading = read_json(src, head, stop)
    if reading is None or not head["name"].isdecimal():
        return reading
    arguments = reading[0][0].arguments
    name = src.tools.tool_accepting(json_object(arguments) or {})
    return [Call(name or head["name"], arguments)], reading[1]


def _read_only_parameter(src: Source, head: Head, stop: Stop) -> Reading:
    """Read the text of the tool's only required parameter, as CWM writes it."""
    required, end = src.tools.schema_of(head["name"]).required, src.find(stop, head.end())
    if len(required) != 1 or end < 0:
        return None
    text = src.text[head.end() : end].removesuffix("\n")
    return [Call(head["name"], write({required[0]: text}))], end


def _plamo(word: str) -> str:
    return rf"<\|plamo:{word}:plamo\|>\s*+"


def _gemma(name: str, opener: str, end: str, mark: str) -> Format:
    head = rf"(?:{re.escape(opener)}|,)\s*+(?:call\s*+:\s*+)?{NAME}\s*+(?=\{{)"
    return marked(name, (opener,), head, partial(read_json, mark=mark), re.escape(end))


_NAMED_ROWS = (
    marked(
        "deepseek_v3",
        (*DEEPSEEK_BEGIN, *_DEEPSEEK),
        _DEEPSEEK_HEAD,
        read_json,
        f"{_CALL_END}|{_token('tool', 'calls', 'end')}",
        stop=r"<[｜|]tool(?:▁|\\?_| )call",
    ),
    marked(
        "kimi_k2",
        _KIMI,
        r"(?:<\|tool_calls?_section_begin\|>\s*+)?<\|tool_call_begin\|>\s*+(?:functions\.)?"
        r"(?P<name>[^\s<>]{1,200}?)(?::\d+)?\s*+<\|tool_call_argument_begin\|>",
        _by_id,
        r"<\|tool_call_end\|>|<\|tool_calls?_section_end\|>",
        stop=r"<\|tool_call_begin\|>",
    ),
    marked(
        "mistral",
        ("[TOOL_CALLS]",),
        rf"(?:\[TOOL_CALLS\]\s*+)?{NAME}\s*+(?>(?:\[CALL_ID\]\s*+[\w-]*+\s*+)?)(?:\[ARGS\]\s*+|(?=\{{))",
        read_json,
        r"</s>|\[/TOOL_CALLS\]",
        stop=r"\[TOOL_CALLS\]",
    ),
    marked(
        "solar_open",
        ("<|tool_calls|>", "<|tool_call:begin|>"),
        r"(?:<\|tool_calls\|>\s*+)?<\|tool_call:begin\|>[^<]{0,200}+<\|tool_call:name\|>\s*+"
        r"(?P<name>[^\s<>]{1,200}+)\s*+<\|tool_call:args\|>",
        read_json,
        r"<\|tool_call:end\|>|<\|calls\|>",
        stop=r"<\|tool_call:begin\|>",
    ),
    marked(
        "plamo3",
        ("<|plamo:begin_tool_requests:plamo|>", "<|plamo:begin_tool_request:plamo|>"),
        rf"(?:{_plamo('begin_tool_requests')})?{_plamo('begin_tool_request')}"
        rf"{_plamo('begin_tool_name')}(?P<name>[^<>]{{1,200}}?)\s*+{_plamo('end_tool_name')}"
        rf"{_plamo('begin_tool_arguments')}(?:<\|plamo:msg\|>)?",
        read_json,
        _plamo("end_tool_(?:arguments|requests?)"),
    ),
    marked(
        "cwm",
        ("<tool: function>",),
        r"<tool: function>\s*+(?P<name>[\w.-]{1,200}+)[ \t\n]",
        _read_only_parameter,
        "</tool>",
    ),
    marked(
        "functionary",
        (">>>",),
        rf">>>{NAME}[ \t]*+\n?\s*+(?=\{{)",
        read_json,
        r"<\|eot_id\|>",
        stop="\n>>>",
        where=Where.LINE,
        # `>>>` alone is a quote or a Python prompt.
        follow=partial(python_calls.follow_name, brackets="{"),
    ),
    marked(
        "llama_function_tag",
        ("<function=",),
        r"<function=\s*+(?P<name>[^>\s][^>\n]{0,199}?)\s*+>(?=\s*+\{)",
        read_json,
        "</function>",
        stop="<function=",
    ),
    _gemma("gemma4", "<|tool_call>", "<tool_call|>", '<|"|>'),
    _gemma("functiongemma", "<start_function_call>", "<end_function_call>", "<escape>"),
)

# ReAct: `Action: name` on one line, `Action Input: {…}` on the next. Only the first action counts:
# if an observation follows, the model has invented it and everything after it.


def _follow_action(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether the rest of the line may be a tool's name."""
    line, newline, _ = text[pos : pos + 240].partition("\n")
    name = line.strip().strip("`*").strip()
    return tools.tool_named(name) is not None if newline else len(line) < 240


_OBSERVATION = re.compile(r"\s*+Observation\s*+:")
_ACTION = marked(
    "react",
    ("Action:",),
    r"Action:[ \t]*+\**+[ \t]*+`?(?P<name>[^\s`*(){}:]{1,200})`?\**+[ \t]*+\n\s*+"
    r"\**+Action Input\s*+:\s*+\**+[ \t]*+(?=\{|```)",
    read_json,
    stop="\n(?:Observation|Thought|Action)",
)


def _read_action(src: Source, start: int) -> Block | None:
    """Read the action and its input; the block includes an invented observation and the rest."""
    block = _ACTION.read(src, start)
    if block is not None and _OBSERVATION.match(src.text, block.end):
        return Block(len(src.text), block.calls, src.text[block.end :])
    return block


_REACT = Format("react", ("Action:",), _read_action, Where.LINE, _follow_action)
FORMATS = (*_JSON_ROWS, *_PYTHON_ROWS, *_NAMED_ROWS, _REACT)
