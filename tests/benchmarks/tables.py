"""A table as its cells, without what only makes it one to the eye."""

from __future__ import annotations

import re


def narrow(text: str) -> str:
    return re.sub(r" +\|", " |", text)
