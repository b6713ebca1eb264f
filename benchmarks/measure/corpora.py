"""Where recorded cases lie that are no part of this project: beside it, where they are at all."""

from __future__ import annotations

from pathlib import Path

CORPORA = Path(__file__).resolve().parents[3] / "shared" / "corpora"
TEXTS = CORPORA / "text_tool_calls.jsonl"
LOOPS = CORPORA / "loops.jsonl"
