"""Finds ids that a call miscopies: ``61211`` for ``612111``, ``I4YDQTS`` for ``T4YDQTS``.

Weak models misread ids that they copy, especially runs of the same digit and letters between
digits. No schema detects it, and the tool may even know the wrong id. So a value in the form of an
id that occurs nowhere in the conversation is compared with the ids that do. An id one edit away is
usually an error; an id that is incremented (A-1001, A-1002), has a suffix or is padded with zeros
is intended. The rules are a judgement, so the caller must accept that the model repeats the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Final

from .conversation import Conversation, occurs

# The newest characters that are searched, in the model's texts and in the others' texts each.
MAX_CHARS: Final = 200_000
LEAST, _MOST = 5, 64  # characters of an id; a shorter one resembles too many others
_READ: Final = 5  # a character counts as misread if its segment has at least as many others
_MIXED: Final = 8  # minimum characters of a segment with letters that may have lost one

_WORD: Final = re.compile("[A-Za-z0-9]").search
_ID: Final = re.compile(r"[A-Za-z0-9]++(?>(?:[_-]++[A-Za-z0-9]++)*)")
# Escapes that JSON in JSON, and a terminal, put directly before a word.
_GLUE: Final = re.compile(r"(?<!\\)\\++(?:u001b\[[0-9;]*+m|[nrtbf])|\x1b\[[0-9;]*+[A-Za-z]")


# Path of the parameter, the id as the call has it, and the id in the conversation.
Miscopied = tuple[str, str, str]


def miscopied(values: Iterable[tuple[str, object]], said: Conversation) -> Miscopied | None:
    """Return the first of a call's (path, value) pairs that is a miscopied id."""
    for path, value in values:
        text = str(value)
        is_id = LEAST <= len(text) <= _MOST and _ID.fullmatch(text)
        if is_id and any(map(str.isdigit, text)):
            question = ("id", text.lower())
            near = said.answer(question, partial(_nearest_id, text.lower(), said), otherwise=None)
            if near is not None:
                return path, text, near
    return None


def _nearest_id(candidate: str, said: Conversation) -> str | None:
    """Return the one known id that ``candidate`` miscopies, or None.

    An id that occurs in any message or call is accepted, because earlier calls were checked, and
    so is one in the tools. If several known ids are as similar, it may be one more of their series.
    """
    given = _newest(said.given)
    if _holds(f"{given}\n{_newest(said.own)}".lower(), candidate):
        return None
    half = len(candidate) // 2
    head, tail = candidate[:half], candidate[half:]  # one edit leaves one half unchanged
    known = {word.lower(): word for word in _ID.findall(given) if LEAST <= len(word) <= _MOST}
    similar = [
        spelling
        for known_id, spelling in known.items()
        if (known_id.startswith(head) or known_id.endswith(tail)) and is_slip(candidate, known_id)
    ]
    alone = len(similar) == 1 and not _holds(str(said.tools).lower(), candidate)
    return similar[0] if alone else None


def _newest(text: str) -> str:
    return _GLUE.sub(" ", text[-MAX_CHARS:])


def _holds(text: str, id: str) -> bool:
    """Whether ``text`` contains ``id`` without an adjacent letter or digit."""
    return occurs(
        id,
        text,
        lambda start, end: not _WORD(text[max(0, start - 1) : start] + text[end : end + 1]),
    )


def is_slip(first: str, second: str) -> bool:
    """Whether two ids in lower case are one edit apart, by an edit that is rarely intended.

    These edits count as intended: one digit for another, which may be the next id of a series;
    another last character of a segment; one zero more or less; and any other character more or
    less at a segment's edge, unless it doubles its neighbour.
    """
    longer, shorter = (first, second) if len(first) > len(second) else (second, first)
    same_size = len(first) == len(second)
    alike = (
        position for position, (a, b) in enumerate(zip(longer, shorter, strict=False)) if a != b
    )
    index = next(alike, len(shorter))
    if first == second or longer[index + 1 :] != shorter[index + same_size :]:
        return False
    segment_start = max(longer.rfind("-", 0, index), longer.rfind("_", 0, index)) + 1
    segment, place = re.split("[-_]", longer[segment_start:])[0], index - segment_start
    if same_size:
        others = segment[:place] + segment[place + 1 :]
        is_letter = shorter[index].isalnum() and not (longer[index] + shorter[index]).isdigit()
        is_mixed = any(map(str.isdigit, others)) and any(map(str.isalpha, others))
        return is_letter and place < len(others) >= _READ and is_mixed
    neighbours = (longer[index - 1 : index], longer[index + 1 : index + 2])
    amid = 0 < place < len(segment) - 1 or longer[index] in neighbours
    long = len(segment) >= (LEAST if segment.isdigit() else _MIXED)
    return amid and long and longer[index] != "0" and any(map(str.isdigit, segment))
