"""Find ids that a call copies with a slip: ``61211`` for ``612111``, ``I4YDQTS`` for ``T4YDQTS``.

Weak models misread ids that they copy, most of all runs of the same digit and letters between
digits. No schema notices, and the tool may well know the wrong id. So a value with the form of an
id that stands nowhere in the conversation is compared with the ids that do. An id one edit away is
mostly a slip; an id that is counted up (A-1001, A-1002), given a suffix or padded with zeros is
meant. The rules are a judgement, so the caller must accept that the model repeats the call.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

from .conversation import Conversation

MAX_CHARS: Final = 200_000  # searched of what was given, and of the model's own: the newest
MAX_VALUES: Final = 8  # ids compared for one reply
LEAST, _MOST = 5, 64  # characters of an id; a shorter id is near too many others
_READ: Final = 5  # a character counts as misread if its segment has at least as many others
_MIXED: Final = 8  # least characters of a segment with letters that may have lost one

_ID: Final = re.compile(r"[A-Za-z0-9]++(?:[_-]++[A-Za-z0-9]++)*+")
# Escapes that JSON in JSON, and a terminal, put right before a word.
_GLUE: Final = re.compile(r"(?<!\\)\\++(?:u001b\[[0-9;]*+m|[nrtbf])|\x1b\[[0-9;]*+[A-Za-z]")


# Path of the parameter, the id as the call has it, and the id in the conversation.
Miscopied = tuple[str, str, str]


class Ids:
    """Compares the ids in one reply's calls with the conversation before it.

    ``tools``: the request's, for they may name an id, too. Both are read if a call holds an id.
    """

    def __init__(self, conversation: Conversation, tools: Any = None) -> None:
        self._conversation = conversation
        self._tools = tools
        self._left = MAX_VALUES  # ids that may still be compared

    def miscopied(self, values: Iterable[tuple[str, object]]) -> Miscopied | None:
        """Return the first of a call's (path, value) pairs that is an id copied with a slip."""
        ids = ((path, text) for path, value in values if _is_id(text := str(value)))
        for path, value in itertools.islice(ids, self._left):
            self._left -= 1
            wanted = value.lower()
            # An id that occurs in any message or call stands; earlier calls were checked then.
            near = None if _holds(self._all_told, wanted) else self._near(wanted)
            if near is not None:
                return path, value, near
        return None

    @cached_property
    def _given(self) -> dict[str, str]:
        """Map each id-like word of the user and the tools from its lower case to its spelling."""
        tokens = _ID.findall(_newest(self._conversation.given))
        return {one.lower(): one for one in tokens if LEAST <= len(one) <= _MOST}

    @cached_property
    def _all_told(self) -> str:
        told = (self._conversation.given, self._conversation.own)
        return "\n".join(map(_newest, told)).lower()

    def _near(self, wanted: str) -> str | None:
        """Return the one given id of which ``wanted`` is a slip; None if there is no such id.

        If several given ids are as near, ``wanted`` may be one more of that series. An id that the
        tools name is meant.
        """
        half = len(wanted) // 2
        begin, end = wanted[:half], wanted[half:]  # one edit leaves one of the halves unchanged
        found = [
            one
            for one in self._given
            if (one.startswith(begin) or one.endswith(end)) and is_slip(wanted, one)
        ]
        named = len(found) == 1 and _holds(str(self._tools).lower(), wanted)
        return self._given[found[0]] if len(found) == 1 and not named else None


def _is_id(text: str) -> bool:
    if not LEAST <= len(text) <= _MOST or not _ID.fullmatch(text):
        return False
    return any(map(str.isdigit, text))


def _newest(text: str) -> str:
    return _GLUE.sub(" ", text[-MAX_CHARS:])


def _holds(text: str, wanted: str) -> bool:
    """Whether ``text`` holds ``wanted`` with no letter or digit right before or behind it."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(wanted)}(?![A-Za-z0-9])", text) is not None


def is_slip(one: str, other: str) -> bool:
    """Whether two ids in lower case are one edit apart, by an edit that is hardly ever meant.

    These edits count as meant: one digit for another, which may be the next id of a series;
    another last character of a segment; one zero more or less; and any other character more or
    less at a segment's edge, unless it doubles its neighbour.
    """
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    same_size = len(one) == len(other)
    alike = (i for i, (a, b) in enumerate(zip(longer, shorter, strict=False)) if a != b)
    at = next(alike, len(shorter))
    if one == other or longer[at + 1 :] != shorter[at + same_size :]:
        return False
    begin = max(longer.rfind("-", 0, at), longer.rfind("_", 0, at)) + 1
    segment, place = re.split("[-_]", longer[begin:])[0], at - begin
    if same_size:
        rest = segment[:place] + segment[place + 1 :]
        is_letter = shorter[at].isalnum() and not (longer[at] + shorter[at]).isdigit()
        return is_letter and place < len(rest) >= _READ and _is_mixed(rest)
    neighbours = (longer[at - 1 : at], longer[at + 1 : at + 2])
    amid = 0 < place < len(segment) - 1 or longer[at] in neighbours
    long = len(segment) >= (LEAST if segment.isdigit() else _MIXED)
    return amid and long and longer[at] != "0" and any(map(str.isdigit, segment))


def _is_mixed(segment: str) -> bool:
    return any(map(str.isdigit, segment)) and any(map(str.isalpha, segment))
