"""Formats that are one special token before JSON calls, and mostly one behind them."""

from __future__ import annotations

import re

from app.tool_calls.formats.base import Block, Format, Source
from app.tool_calls.formats.json_calls import close, json_block, name_to_arguments, read_calls
from app.tool_calls.formats.json_calls import envelope as by_name


def _row(name: str, opener: str, *closers: str, stop: tuple[str, ...] = ()) -> Format:
    return Format(name, (opener,), json_block(*closers, stop=(opener, *stop), skip=len(opener)))


GRANITE = _row("granite", "<|tool_call|>", "<|/tool_call|>", stop=("<|end_of_text|>",))
GRANITE_20B = _row("granite20b", "<function_call>", "</function_call>")
GLAIVE = _row("glaive", "<functioncall>", "</functioncall>", stop=("<|endoftext|>",))
PHI = _row("phi4mini", "functools", stop=("<|end|>", "<|tool_call|>"))
LM_STUDIO = _row("lm_studio", "[TOOL_REQUEST]", "[END_TOOL_REQUEST]")
NEMOTRON = _row("nemotron", "<TOOLCALL>", "</TOOLCALL>")
COMMAND_R = _row("command_r", "<|START_ACTION|>", "<|END_ACTION|>")
GIGACHAT = _row("gigachat3", "<|function_call|>", stop=("</s>", "<|message_sep|>"))
GIGACHAT_ROLE = _row("gigachat3", "function call<|role_sep|>", stop=("</s>", "<|message_sep|>"))

_PREFIX = "<|tools_prefix|>"
APERTUS = Format(
    "apertus",
    (_PREFIX,),
    json_block("<|tools_suffix|>", stop=(_PREFIX,), shape=name_to_arguments, skip=len(_PREFIX)),
)

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
    found = read_calls(src, head.end(), (*_CLOSERS, "</s>"), by_name) if head else None
    if found is None:
        return None
    return Block(close(src.text, found[1], _CLOSERS), tuple(found[0]))


FORMATS = (
    GRANITE,
    GRANITE_20B,
    GLAIVE,
    PHI,
    LM_STUDIO,
    NEMOTRON,
    COMMAND_R,
    GIGACHAT,
    GIGACHAT_ROLE,
    APERTUS,
    Format("internlm2", ("<|action_start|>",), read_headed),
    Format("gigachat3", ("<|message_sep|>",), read_headed),
    Format("inkling", ("<|content_invoke_tool_json|>", "<|message_model|>"), read_headed),
)
