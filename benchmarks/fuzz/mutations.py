"""Strategies that begin with something right and damage it: what gets far into a parser."""

from __future__ import annotations

import json
import os
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = "FUZZ_EXAMPLES"  # the environment's word for how many; ``make fuzz`` wants more
few = settings(
    max_examples=int(os.environ.get(EXAMPLES, "20")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)

Text = TypeVar("Text", str, bytes)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
EVERYWHERE = 400  # characters that may be cut each by itself
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damaged(draw: st.DrawFn, wholes: st.SearchStrategy[Text], scraps: list[Text]) -> Text:
    """One of ``wholes`` after a few edits: a part left out, doubled, moved, a scrap put in."""
    whole = draw(wholes)
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(whole)))
        end = min(len(whole), start + draw(st.integers(0, 12)))
        kind = draw(st.sampled_from(["out", "twice", "scrap", "cut", "moved"]))
        part = whole[start:end]
        if kind == "out":
            whole = whole[:start] + whole[end:]
        elif kind == "twice":
            whole = whole[:end] + part + whole[end:]
        elif kind == "scrap":
            whole = whole[:start] + draw(st.sampled_from(scraps)) + whole[start:]
        elif kind == "cut":
            whole = whole[:start]
        else:
            rest = whole[:start] + whole[end:]
            place = draw(st.integers(0, len(rest)))
            whole = rest[:place] + part + rest[place:]
    return whole


@st.composite
def cuts(draw: st.DrawFn, length: int) -> list[int]:
    """Where something of this length is cut; often everywhere, which is the hardest."""
    if length < EVERYWHERE and draw(st.booleans()):
        return list(range(1, length))
    return draw(st.lists(st.integers(0, max(1, length)), max_size=20))


def shape_of(value: Any) -> dict[str, Any]:
    """A JSON Schema that ``value`` fits, as tight as it can be said in few words."""
    if isinstance(value, dict):
        shapes = {key: shape_of(item) for key, item in value.items()}
        keys = list(value)
        return {
            "type": "object",
            "properties": shapes,
            "required": keys,
            "additionalProperties": False,
        }
    if isinstance(value, list):
        return {"type": "array", "items": {"anyOf": [shape_of(item) for item in value] or [True]}}
    if value is None or isinstance(value, bool):
        return {"enum": [value]}
    if isinstance(value, str):
        return {"type": "string", "maxLength": len(value)}
    return {"type": "number" if isinstance(value, float) else "integer"}


def written(value: Any, style: int) -> str:
    """JSON in one of four styles."""
    return json.dumps(
        value,
        ensure_ascii=bool(style & 1),
        separators=(",", ":") if style & 2 else (", ", ": "),
    )
