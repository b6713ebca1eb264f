"""Where recorded cases lie that are no part of this project: next to it, if they are there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CORPORA = Path(__file__).resolve().parents[3] / "shared" / "corpora"
TEXTS = CORPORA / "text_tool_calls.jsonl"
LOOPS = CORPORA / "loops.jsonl"


def rows(path: Path) -> list[dict[str, Any]]:
    """The lines of one corpus; none where it is absent."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def canonical(arguments: Any) -> str:
    """Arguments, as text or as a value, in one spelling; 42.0 and 42 are the same number."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    try:
        value = json.loads(text, parse_float=_number)
    except ValueError:
        return f"unparsed: {text}"
    return json.dumps(value, sort_keys=True)


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value
