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

# Reasoning, and text that is shown rather than meant: no calls between these.
REASONING: dict[str, str] = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "<mm:think>": "</mm:think>",
    "<longcat_think>": "</longcat_think>",
    "<think:opensource>": "</think:opensource>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|inner_prefix|>": "<|inner_suffix|>",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|channel>thought": "<channel|>",
    "<|content_thinking|>": "<|end_message|>",
    "<|think|>": "<|end|>",
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",
}
SHOWN: dict[str, str] = {
    "<!--": "-->",
}
# What closes reasoning that the prompt had opened. These close other things too, so they say
# nothing on their own.
_CLOSE_MORE = ("<|end_message|>", "<channel|>", "<|end|>")
REASONING_ENDS: tuple[str, ...] = tuple(end for end in REASONING.values() if end not in _CLOSE_MORE)
