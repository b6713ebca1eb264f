"""Formats that are a mark before JSON calls, and mostly one behind them: one row each."""

from __future__ import annotations

import re

from .base import Begins, Block, Follow, Format, Source, SpelledTools, behind_space, one_of
from .json_calls import (
    Shape,
    close,
    envelope,
    envelope_or_name,
    json_block,
    name_to_arguments,
    read_calls,
)
from .literals import skip_space

TOOL_CALL = "<tool_call>"
TOOL_CALL_END = "</tool_call>"

_NAME = re.compile(r"[^\s<>(){}\[\]\"'`]+")
_KEY = re.compile(r"[\w.-]*")
_AFTER_TAG = ("<function=", "<function name=", "<invoke ")
_AFTER_NAME = ("<arg_key", "<tool_sep", "</tool_call>", "<longcat_arg_key", "</longcat_tool_call>")


def follow_tool_call(text: str, pos: int, tools: SpelledTools) -> Begins:
    """JSON, a tag of the formats that share this one, or a name and what can follow a name."""
    at = skip_space(text, pos)
    if at == len(text):
        return Begins.MAYBE
    if text[at] in "[{\"'`":
        return Begins.YES
    if text[at] == "<":
        return one_of(text, at, _AFTER_TAG)
    name = _NAME.match(text, at)
    if name is None:
        return Begins.NO
    at = skip_space(text, name.end())
    if at == len(text):
        return Begins.MAYBE
    if text[at] in "({[":
        return Begins.YES
    if text[at] == "<":
        return one_of(text, at, _AFTER_NAME)
    key = _KEY.match(text, at)
    at = key.end() if key else at
    if at == len(text):
        return Begins.MAYBE
    return Begins.YES if text[at] == "=" and key and key.group() else Begins.NO


def _row(
    name: str,
    opener: str,
    *closers: str,
    stop: tuple[str, ...] = (),
    shape: Shape = envelope,
    follow: Follow | None = None,
) -> Format:
    read = json_block(*closers, stop=(opener, *stop), shape=shape, skip=len(opener))
    return Format(name, (opener,), read, follow=follow)


# A speaker's header may stand between the opener of the message and the marker of the call.
_HEADED = re.compile(
    r"<\|action_start\|>\s*<\|plugin\|>"
    r"|<\|message_sep\|>\s*function call\s*<\|role_sep\|>"
    r"|(?:<\|message_model\|>[^<]{0,200})?<\|content_invoke_tool_json\|>"
)
_CLOSERS = ("<|action_end|>", "<|message_sep|>", "<|end_message|>")


def read_headed(src: Source, start: int) -> Block | None:
    """InternLM2's, GigaChat's and Inkling's messages with a header."""
    head = _HEADED.match(src.text, start)
    found = read_calls(src, head.end(), (*_CLOSERS, "</s>")) if head else None
    return Block(close(src.text, found[1], _CLOSERS), tuple(found[0])) if found else None


_GIGACHAT_STOP = ("</s>", "<|message_sep|>")
FORMATS = (
    _row("hermes_json", TOOL_CALL, TOOL_CALL_END, shape=envelope_or_name, follow=follow_tool_call),
    _row("hunyuan_json", "<tool_calls>", "</tool_calls>", follow=behind_space("[", "{", "`", "<")),
    _row("longcat", "<longcat_tool_call>", "</longcat_tool_call>", follow=follow_tool_call),
    _row("mistral", "[TOOL_CALLS]", "[/TOOL_CALLS]", "</s>"),
    _row("llama_python_tag", "<|python_tag|>", stop=("<|eom_id|>", "<|eot_id|>")),
    _row("gemma4", "<|tool_call>", "<tool_call|>"),
    _row("functiongemma", "<start_function_call>", "<end_function_call>"),
    _row("granite", "<|tool_call|>", "<|/tool_call|>", stop=("<|end_of_text|>",)),
    _row("granite20b", "<function_call>", "</function_call>"),
    _row("glaive", "<functioncall>", "</functioncall>", stop=("<|endoftext|>",)),
    _row("phi4mini", "functools", stop=("<|end|>", "<|tool_call|>")),
    _row("lm_studio", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]"),
    _row("nemotron", "<TOOLCALL>", "</TOOLCALL>"),
    _row("command_r", "<|START_ACTION|>", "<|END_ACTION|>"),
    _row("lfm2", "<|tool_call_start|>", "<|tool_call_end|>"),
    _row("gigachat3", "<|function_call|>", stop=_GIGACHAT_STOP),
    _row("gigachat3", "function call<|role_sep|>", stop=_GIGACHAT_STOP),
    _row("apertus", "<|tools_prefix|>", "<|tools_suffix|>", shape=name_to_arguments),
    Format("internlm2", ("<|action_start|>",), read_headed),
    Format("gigachat3", ("<|message_sep|>",), read_headed),
    Format("inkling", ("<|content_invoke_tool_json|>", "<|message_model|>"), read_headed),
)
