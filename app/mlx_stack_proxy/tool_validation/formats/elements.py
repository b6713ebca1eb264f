"""A tool's own element: `<read_file><path>…</path></read_file>` (Cline, Roo Code).

It has no mark, and people ask for XML: it is a call only where no document has an element of that
name (`read_file`, `readFile`; not `note` or `Button`), at the start of a line, not indented, with
parameters of the tool in it and nothing else, among them all that it needs.
"""

from __future__ import annotations

import re

from ..tools import ToolSet
from .base import Block, Format, Source, Where, json_object, one_of, skip_space
from .json_calls import close
from .tag_marks import ELEMENTS, OWN
from .tagged import read_call

# A name that no element of a document has.
OWN_NAME = re.compile(r"[A-Za-z]\w*[_.-]\w|[a-z]\w*[A-Z]")

_OPENING = re.compile(OWN)
_ANY_TAG = re.compile(r"<(/?)([A-Za-z_][\w.:-]{0,60})[^<>]{0,200}+>")
_LOOKED_AT = 4_000  # characters behind an element
_LEFT_OVER = ("tool_call", "tool_calls", "s")  # end tags that a server leaves behind calls


def read_tool(src: Source, start: int) -> Block | None:
    """A tool's own element, with all that the tool needs."""
    text, tag = src.text, _OPENING.match(src.text, start)
    if tag is None or (start and text[start - 1] not in "\n>"):
        return None
    closer = f"</{tag[1]}>"
    found = read_call(src, tag, ELEMENTS, (closer,))
    arguments = json_object(found[0].arguments) if found else None
    if found is None or arguments is None or not src.tools.takes(tag[1], arguments):
        return None
    end = close(text, found[1], (closer,))
    if (end == found[1] and text[end:].strip()) or _is_in_document(text, end):
        return None
    return Block(end, (found[0],))


def _is_in_document(text: str, pos: int) -> bool:
    """Whether an end tag stands behind `pos` whose element began before: no call has one around."""
    opened: list[str] = []
    for tag in _ANY_TAG.finditer(text, pos, pos + _LOOKED_AT):
        if not tag[1]:
            opened.append(tag[2])
        elif tag[2] in opened:
            del opened[opened.index(tag[2]) :]
        else:
            return tag[2] not in _LEFT_OVER
    return False


def follow_tool(text: str, pos: int, tools: ToolSet) -> bool:
    """Behind a tool's opening tag: JSON, one of its parameters, or the end of the element."""
    name = text[text.rindex("<", 0, pos) + 1 : pos - 1]
    at = skip_space(text, pos)
    keys = tools.schema_of(name).properties
    return one_of(text, at, ("{", f"</{name}>", "<parameter ", *(f"<{key}>" for key in keys)))


# Its openers are the tools' own names.
TOOL = Format("xml_elements", (), read_tool, Where.LINE, follow_tool)
