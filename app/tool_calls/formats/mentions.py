"""`⏺ Name: …`: how some agents print a call that was made. Counted for loops, never executed."""

from __future__ import annotations

import re

_MENTION = re.compile(r"^[ \t]*⏺[ \t]*([^\W\d][\w.-]{0,99})[ \t]*[:(](?!//)([^\n]*)", re.MULTILINE)


def marked_mentions(text: str) -> list[str]:
    """Each `⏺ Name: rest` line of `text` as "Name: rest", in order; whitespace collapsed.

    Also `⏺ Name(rest)`. Two equal strings are the same mention.
    """
    if "⏺" not in text:
        return []
    return [
        f"{match.group(1)}: {' '.join(match.group(2).rstrip().removesuffix(')').split())}"
        for match in _MENTION.finditer(text)
    ]
