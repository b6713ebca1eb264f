"""DeepSeek V3, V3.1 and R1: a name and JSON between `<｜tool▁call▁begin｜>` and its siblings.

R1 and V3 write `function<｜tool▁sep｜>name` and a fenced JSON block, V3.1 `name<｜tool▁sep｜>{…}`.
Small models made of R1 leave the first call's token out, or half of the section's.
"""

from __future__ import annotations

import re

from app.tool_calls.formats import invoke
from app.tool_calls.formats.base import MAX_CALLS, Block, Call, Format, Source
from app.tool_calls.formats.json_calls import object_text
from app.tool_calls.formats.literals import skip_space

# The real tokens, and what tokenizers and transcripts make of them.
_SPELLINGS = tuple((bar, gap) for bar in "｜|" for gap in ("▁", "_", "\\_", " "))
CALLS = (
    *(f"<{bar}tool{gap}calls{gap}begin{bar}>" for bar, gap in _SPELLINGS),
    *(f"<{bar}tool{gap}calls{bar}>" for bar, gap in _SPELLINGS),
)
CALL = tuple(f"<{bar}tool{gap}call{gap}begin{bar}>" for bar, gap in _SPELLINGS)

_GAP = r"(?:▁|\\?_| )"
_CALLS_BEGIN = re.compile(rf"<[｜|]tool{_GAP}calls(?:{_GAP}begin)?[｜|]>\s*")
_CALL_BEGIN = re.compile(rf"\s*<[｜|]tool{_GAP}call{_GAP}begin[｜|]>")
_NAME = re.compile(rf"\s*([^\s<>{{}}`]{{1,200}})\s*<[｜|]tool{_GAP}sep[｜|]>")
_PLAIN_NAME = re.compile(r"\s*([^\s<>{}`]{1,200})\s*(?=\{|```)")
_SECOND = re.compile(r"\s*([^\s<>{}`]{1,200})\s*(?=\{|```|<[｜|]tool|\Z)")
_CALL_END = re.compile(rf"\s*<[｜|]tool{_GAP}call{_GAP}end[｜|]>")
_CALLS_END = re.compile(rf"\s*<[｜|]tool{_GAP}calls{_GAP}end[｜|]>")
_STOP = tuple(f"<{bar}tool{gap}call" for bar, gap in _SPELLINGS)


def read(src: Source, start: int) -> Block | None:
    """All calls of a section, or a single call without one."""
    begin = _CALLS_BEGIN.match(src.text, start)
    end = begin.end() if begin else start
    calls: list[Call] = []
    while len(calls) < MAX_CALLS:
        opener = _CALL_BEGIN.match(src.text, end)
        if opener is None and (calls or begin is None or _NAME.match(src.text, end) is None):
            break
        found = _read_call(src, opener.end() if opener else end)
        if found is None:
            break
        calls.append(found[0])
        end = found[1]
    if not calls:
        return None
    closer = _CALLS_END.match(src.text, end)
    return Block(closer.end() if closer else end, tuple(calls))


def _read_call(src: Source, pos: int) -> tuple[Call, int] | None:
    name = _NAME.match(src.text, pos) or _PLAIN_NAME.match(src.text, pos)
    if name is None:
        return None
    at = name.end()
    if src.text.startswith("<steptml:invoke", skip_space(src.text, at)):
        block = invoke.read_step(src, skip_space(src.text, at))
        if block is None:
            return None
        call, end = block.calls[0], block.end
    else:
        written = name.group(1)
        # "function" is the kind of the call, not its name, where a name follows the separator.
        second = _SECOND.match(src.text, at) if written == "function" else None
        if second is not None:
            written, at = second.group(1), second.end()
        arguments, end = object_text(src, at, _STOP)
        call = Call(written, arguments)
    closer = _CALL_END.match(src.text, end)
    return call, closer.end() if closer else end


FORMAT = Format("deepseek_v3", (*CALLS, *CALL), read)
