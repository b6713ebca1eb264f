"""`<invoke name="…"><parameter name="…">`: MiniMax M2, DeepSeek's DSML, Step 3, Muse, plain XML."""

from __future__ import annotations

import re

from app.tool_calls.formats import hermes
from app.tool_calls.formats.base import (
    MAX_CALLS,
    Begins,
    Block,
    Call,
    Format,
    Reader,
    Source,
    SpelledTools,
    Where,
)
from app.tool_calls.formats.json_calls import close
from app.tool_calls.formats.literals import skip_space
from app.tool_calls.formats.tagged import Tags, read_call

MINIMAX = "<minimax:tool_call>"
DSML_BARS = ("｜", "|")


def _reader(prefix: str, wrappers: tuple[str, ...] = (), trim: str = "line") -> Reader:
    """A reader for tags with `prefix`, in one of `wrappers` (tag names with prefix) or bare."""
    head = re.escape(prefix).replace("｜", "[｜|]").replace(r"\|", "[｜|]")
    opening = re.compile(rf"<{head}\s*invoke\s+name\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s<>]++)[^<>\n]*+>")
    wrapper = re.compile("|".join(rf"<{re.escape(name)}>" for name in wrappers) or r"(?!)")
    end_tag, end_wrapper = f"</{prefix}invoke>", tuple(f"</{name}>" for name in wrappers)
    tags = Tags(
        parameter=re.compile(
            rf"<{head}\s*parameter\s+name\s*=\s*(?P<key>\"[^\"]*\"|'[^']*'|[^\s<>]++)"
            r"(?:\s+string\s*=\s*\"?(?P<text>true|false)\"?)?[^<>\n]*+>"
        ),
        next_parameter=f"<{prefix}parameter",
        end=f"</{prefix}parameter>",
        last=(end_tag, *end_wrapper),
        trim=trim,
    )

    def read(src: Source, start: int) -> Block | None:
        wrapped = wrapper.match(src.text, start)
        end = wrapped.end() if wrapped else start
        calls: list[Call] = []
        while len(calls) < MAX_CALLS:
            match = opening.match(src.text, skip_space(src.text, end))
            if match is None:
                break
            found = read_call(src, match.group(1).strip("\"'"), match.end(), tags)
            if found is None:
                break
            calls.append(found[0])
            end = close(src.text, found[1], (end_tag,))
        if not calls:
            return None
        return Block(close(src.text, end, end_wrapper), tuple(calls))

    return read


def _dsml(bar: str) -> Format:
    prefix = f"{bar}DSML{bar}"
    wrappers = tuple(
        f"{prefix}{gap}{name}" for gap in ("", " ") for name in ("function_calls", "tool_calls")
    )
    openers = (*(f"<{name}>" for name in wrappers), f"<{prefix}invoke name=")
    return Format("deepseek_dsml", openers, _reader(prefix, wrappers, trim="none"))


read_step = _reader("steptml:")
_read_muse = _reader("atem:", ("atem:function_calls",))
_read_claude = _reader("antml:", ("antml:function_calls",))
_read_plain = _reader("", ("function_calls", "tool_call"))


def follow(text: str, pos: int, tools: SpelledTools) -> Begins:
    """An `<invoke`."""
    at = skip_space(text, pos)
    return Begins.MAYBE if at == len(text) else hermes.one_of(text, at, ("<invoke ",))


FORMATS = (
    Format("minimax_m2_invoke", (MINIMAX,), _reader("", ("minimax:tool_call",)), Where.TAG),
    *(_dsml(bar) for bar in DSML_BARS),
    Format("invoke_xml", ("<atem:function_calls>",), _read_muse, Where.TAG),
    Format(
        "invoke_xml",
        ("<antml:function_calls>", "<antml:invoke name="),
        _read_claude,
        Where.TAG,
    ),
    Format("invoke_xml", ("<function_calls>",), _read_plain, Where.TAG, follow),
    Format("invoke_xml", (hermes.OPENER,), _read_plain, Where.TAG, hermes.follow),
    Format("invoke_xml", ("<invoke name=",), _read_plain, Where.TAG),
)
