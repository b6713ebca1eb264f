"""Tokens that end a message, left behind a call by a server that does not strip them."""

from __future__ import annotations

import re

_TAIL = re.compile(
    r"\s*(?:</tool_call>|</tool_calls>|</?s>|<\|(?:im_end|eot_id|eom_id|end|return|call|endoftext"
    r"|end_of_text|end_message|stop|END_OF_TURN_TOKEN)\|>|<｜end▁of▁sentence｜>|<end_of_turn>"
    r"|<turn\|>|<start_function_response>|<\|END_ACTION\|>)"
)


def skip_tail(text: str, pos: int) -> int:
    """The index after such tokens, and after closing tags that were left over, behind `pos`."""
    while (match := _TAIL.match(text, pos)) is not None:
        pos = match.end()
    return pos
