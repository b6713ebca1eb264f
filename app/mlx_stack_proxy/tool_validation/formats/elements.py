"""Read a tool's own element: ``<read_file><path>…</path></read_file>`` (Cline, Roo Code).

The element has no mark, and people ask models for XML. So it is a call only if its name is not one
of documents (``read_file``, ``readFile``; not ``note`` or ``Button``), if it stands, not indented,
at the start of a line, and if it holds only parameters of the tool and all required ones.
"""

from __future__ import annotations

import re

from ..tools import ToolSet
from .base import Block, Format, Source, Where, behind_tail, json_object, one_of, skip_space
from .json_calls import close
from .tag_marks import ELEMENTS, OWN
from .tagged import read_call

# A name of two words, which elements of documents hardly have.
OWN_NAME = re.compile(r"[A-Za-z]\w*[_.-]\w|[a-z]\w*[A-Z]")

_OPENING = re.compile(OWN)


def read_tool(src: Source, start: int) -> Block | None:
    """Read a tool's own element with all required parameters."""
    text, tag = src.text, _OPENING.match(src.text, start)
    if tag is None or (start and text[start - 1] not in "\n>"):
        return None
    closer = f"</{tag[1]}>"
    found = read_call(src, tag, ELEMENTS, (closer,))
    arguments = json_object(found[0].arguments) if found else None
    if found is None or arguments is None or not src.tools.takes(tag[1], arguments):
        return None
    end = close(text, found[1], (closer,))
    if end == found[1] and text[end:].strip():
        return None
    if text.startswith("</", skip_space(text, behind_tail(text, end))):
        return None  # it is a part of a document's element
    return Block(end, (found[0],))


def follow_tool(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether JSON, a parameter, or the element's end follows a tool's opening tag."""
    name = text[text.rindex("<", 0, pos) + 1 : pos - 1]
    at = skip_space(text, pos)
    keys = tools.schema_of(name).properties
    return one_of(text, at, ("{", f"</{name}>", "<parameter ", *(f"<{key}>" for key in keys)))


# The openers are the tags of the request's tools, so the row lists none: `table.own_tags`.
TOOL = Format("xml_elements", (), read_tool, Where.LINE, follow_tool)
