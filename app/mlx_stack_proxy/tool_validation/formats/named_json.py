"""Formats of a head that holds the tool's name, and a JSON object behind it.

DeepSeek V3, V3.1 and R1 (R1 writes `function<｜tool▁sep｜>name` and a fenced block; small models
made of it leave the first call's token out, or half of the section's), Kimi K2, Mistral's newer
form, Functionary, Llama 3.1's `<function=name>{…}`, and what a server leaves of Harmony's header.
"""

from __future__ import annotations

import re

from .base import (
    MAX_CALLS,
    Begins,
    Block,
    Call,
    Format,
    Reader,
    Source,
    SpelledTools,
    Where,
    one_of,
)
from .json_calls import object_text

_NAME = r"(?P<name>[^\s<>{}\[\]()\"'`,]{1,200})"


def named_json(
    head: str,
    stop: tuple[str, ...],
    *,
    begin: str = "",
    end: str = "",
    last: str = "",
) -> Reader:
    """A reader for calls of which each is a `head` with the group `name`, then a JSON object.

    `begin` and `last` stand around all calls, `end` behind each; all three may be missing. `stop`:
    what ends arguments that can't be read.
    """
    first, each, closer, finish = map(re.compile, (f"(?:{begin})?", head, f"(?:{end})?", last))

    def read(src: Source, start: int) -> Block | None:
        at = _behind(first, src.text, start)
        calls: list[Call] = []
        while len(calls) < MAX_CALLS and (found := each.match(src.text, at)) is not None:
            arguments, at = object_text(src, found.end(), stop)
            calls.append(Call(found["name"], arguments))
            at = _behind(closer, src.text, at)
        return Block(_behind(finish, src.text, at), tuple(calls)) if calls else None

    return read


def _behind(pattern: re.Pattern[str], text: str, pos: int) -> int:
    found = pattern.match(text, pos)
    return found.end() if found else pos


# DeepSeek's real tokens, and what tokenizers and transcripts make of them.
_SPELLINGS = tuple((bar, gap) for bar in "｜|" for gap in ("▁", "_", "\\_", " "))
DEEPSEEK_CALL = tuple(f"<{bar}tool{gap}call{gap}begin{bar}>" for bar, gap in _SPELLINGS)
_DEEPSEEK_CALLS = tuple(
    f"<{bar}tool{gap}calls{begin}{bar}>" for bar, gap in _SPELLINGS for begin in (f"{gap}begin", "")
)


def _token(*words: str) -> str:
    return r"<[｜|]" + r"(?:▁|\\?_| )".join(words) + r"[｜|]>"


DEEPSEEK_HEAD = _token("tool", "call", "begin")
DEEPSEEK_SEP = _token("tool", "sep")
_read_deepseek = named_json(
    # "function" is the kind of the call, not its name, where a name follows the separator. The
    # first call's own token may be missing, a separator not as well.
    rf"\s*+(?P<own>{DEEPSEEK_HEAD}\s*+)?(?:function\s*+{DEEPSEEK_SEP}\s*+(?=[^\s<{{`]))?{_NAME}\s*+"
    rf"(?:{DEEPSEEK_SEP}(?!\s*+<steptml:)"
    rf"|(?(own)(?=\{{|```|{_token('tool', 'call', 'end')})|(?<=\n)(?=\{{|```)))",
    tuple(f"<{bar}tool{gap}call" for bar, gap in _SPELLINGS),
    begin=r"<[｜|]tool(?:▁|\\?_| )calls(?:(?:▁|\\?_| )begin)?[｜|]>\s*+",
    end=r"\s*+" + _token("tool", "call", "end"),
    last=r"\s*+" + _token("tool", "calls", "end"),
)

_KIMI = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_begin|>")
_read_kimi = named_json(
    r"\s*+<\|tool_call_begin\|>\s*+(?:functions\.)?(?P<name>[^\s<>]{1,200}?)(?::\d+)?\s*+"
    r"<\|tool_call_argument_begin\|>",
    ("<|tool_call_end|>", "<|tool_call_begin|>", "<|tool_calls_section_end|>"),
    begin=r"<\|tool_calls?_section_begin\|>",
    end=r"\s*+<\|tool_call_end\|>",
    last=r"\s*+<\|tool_calls?_section_end\|>",
)

MISTRAL = "[TOOL_CALLS]"
_read_mistral = named_json(
    rf"\s*+(?:\[TOOL_CALLS\]\s*+)?{_NAME}\s*+(?:\[CALL_ID\]\s*+[\w-]*+\s*+)?+(?:\[ARGS\]\s*+|(?=\{{))",
    (MISTRAL, "</s>", "[/TOOL_CALLS]"),
    last=r"\s*+(?:</s>|\[/TOOL_CALLS\])",
)

_FUNCTIONARY_V2 = "<|recipient|>"
_read_v2 = named_json(
    rf"\s*+<\|recipient\|>\s*+{_NAME}\s*+<\|content\|>\s*+(?=\{{)",
    ("<|stop|>", "<|from|>", _FUNCTIONARY_V2),
    end=r"\s*+<\|stop\|>",
)
_read_v3 = named_json(rf"\s*+>>>{_NAME}[ \t]*+\n?\s*+(?=\{{)", ("\n>>>", "<|eot_id|>"))


def follow_name(text: str, pos: int, tools: SpelledTools) -> Begins:
    """A tool's name: `>>>` alone is a quote or a Python prompt."""
    stop = pos
    while stop < len(text) and not text[stop].isspace() and text[stop] != "{":
        stop += 1
    if stop == len(text):
        return Begins.MAYBE if tools.could_start(text[pos:stop]) else Begins.NO
    return Begins.NO if stop == pos or tools.resolve(text[pos:stop]) is None else Begins.YES


_read_llama = named_json(
    r"\s*+<function=\s*+(?P<name>[^>\s][^>\n]{0,199}?)\s*+>(?=\s*+\{)",
    ("</function>", "<function="),
    end=r"\s*+</function>",
)

# What is left of a header where a server takes Harmony's special tokens out.
_BARE_HARMONY = "commentary to=functions."
_read_harmony = named_json(
    r"commentary to=functions\.(?P<name>[\w.-]++)\s*+(?:<\|constrain\|>\s*+)?+(?:json)?+\s*+"
    r"(?:<\|message\|>)?\s*+(?=\{)",
    ("<|end|>", "<|call|>", "<|return|>", "<|start|>", "<|channel|>"),
    end=r"\s*+<\|(?:end|call|return)\|>",
)
_RECIPIENT = re.compile(r"[\w.-]{0,200}+\s{0,8}+")


def follow_recipient(text: str, pos: int, tools: SpelledTools) -> Begins:
    """A name, be it a tool's or not, and what stands between it and a message's body."""
    name = _RECIPIENT.match(text, pos)
    at = name.end() if name else pos
    if at == len(text):
        return Begins.MAYBE
    return one_of(text, at, ("{", "json{", "json {", "<|constrain|>", "<|message|>", "<|channel|>"))


FORMATS = (
    Format("deepseek_v3", (*_DEEPSEEK_CALLS, *DEEPSEEK_CALL), _read_deepseek),
    Format("kimi_k2", _KIMI, _read_kimi),
    Format("mistral", (MISTRAL,), _read_mistral),
    Format("functionary", (">>>",), _read_v3, Where.LINE, follow_name),
    Format("functionary", (_FUNCTIONARY_V2,), _read_v2),
    Format("llama_function_tag", ("<function=",), _read_llama),
    Format("harmony", (_BARE_HARMONY,), _read_harmony, Where.LINE, follow_recipient),
)
