"""Finds the reasoning that a server without a reasoning parser leaves in a reply's text."""

from __future__ import annotations

import re

# The marks that begin and end reasoning. Text between them has no calls.
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
# A prompt may open the reasoning, so that the text has only its end. The following marks end other
# things, too, so on their own they don't prove that reasoning came before.
_CLOSE_MORE = ("<|end_message|>", "<channel|>", "<|end|>")
REASONING_ENDS: tuple[str, ...] = tuple(end for end in REASONING.values() if end not in _CLOSE_MORE)

_BEGINS = tuple(REASONING)
_ENDS = tuple(REASONING.values())
_SPACE = re.compile(r"\s*")
_ANSWER = re.compile(r'\s*[{\[`]|[^"}\]]*\Z')  # JSON, a fence, or a rest that can't end a string


def after_thoughts(text: str) -> str:
    """Return the text after its leading reasoning; the whole text if it has none.

    Return "" if the reasoning has no end. If the prompt opened the reasoning, the text has only its
    end; that is not assumed of a text that begins with JSON or a fence.
    """
    start = _after_space(text, 0)
    index, missing = _after_marked(text, start)
    if missing:
        return ""
    if index == start and not text.startswith(("{", "[", "`"), index):
        end, closer = max((text.rfind(mark), mark) for mark in REASONING_ENDS)
        if end >= 0 and _ANSWER.match(text, end + len(closer)):
            index = _after_space(text, end + len(closer))
    return text[index:] if index > start else text


def are_all(text: str) -> bool:
    """Whether a text is nothing but reasoning, terminated or not."""
    return text.startswith(_BEGINS) and not after_thoughts(text)


def separator_after(text: str) -> str:
    """Return the separator between a text that was sent and its continuation.

    It is a new paragraph, after the end of the reasoning if all that was sent is open reasoning.
    """
    _, missing = _after_marked(text, _after_space(text, 0))
    return f"\n{missing}\n\n" if missing else "\n\n"


def inside_thoughts(text: str) -> str:
    """Return a text that is nothing but reasoning without its last end mark; "" for other texts."""
    text = text.strip()
    if not are_all(text):
        return ""
    return text.removesuffix(next((mark for mark in _ENDS if text.endswith(mark)), ""))


def _after_marked(text: str, index: int) -> tuple[int, str]:
    """Return the index after the reasoning at ``index``, and its end mark if that is missing."""
    while opener := next((mark for mark in REASONING if text.startswith(mark, index)), None):
        closer = REASONING[opener]
        end = text.find(closer, index + len(opener))
        if end < 0:
            return len(text), closer
        index = _after_space(text, end + len(closer))
    return index, ""


def _after_space(text: str, index: int) -> int:
    match = _SPACE.match(text, index)
    return match.end() if match else index
