"""All formats, one row each (more where a format has openers of different kinds).

Where several formats share an opener they are tried in this order; the first that reads a call
wins.
"""

from __future__ import annotations

from . import bare_json, harmony, marks, python_calls, react, tag_marks
from .base import Format

FORMATS: tuple[Format, ...] = (
    *marks.FORMATS,
    *tag_marks.FORMATS,
    *harmony.FORMATS,
    *python_calls.FORMATS,
    *react.FORMATS,
    *bare_json.FORMATS,
)

# Text that is shown rather than meant: no calls between these.
SHOWN: dict[str, str] = {
    "<!--": "-->",
}
