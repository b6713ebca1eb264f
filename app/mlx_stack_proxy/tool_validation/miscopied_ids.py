"""Ids that a call copies with a slip: `61211` for `612111`, `I4YDQTS` for `T4YDQTS`.

Weak models misread what they copy, most of all runs of the same digit and letters between digits.
No schema sees it, and the tool that is called may well know the other id. So a value that has the
form of an id, and that stands nowhere in the conversation, is compared with what does. What is one
edit apart is mostly a slip; what is counted up (A-1001, A-1002), given a suffix or filled up with
zeros is meant. The rules are judgement: whoever is told must be ready to take the same call for an
answer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from ..frozen import frozen
from .conversation import calls, texts

MAX_CHARS: Final = 400_000  # of the newest messages: ids are copied from what was just read
MAX_VALUES: Final = 8  # of one reply
LEAST, _MOST = 5, 64  # characters of an id; shorter ones are near too many others
_READ: Final = 5  # other characters of a segment of which one may be misread
_MIXED: Final = 8  # characters of a segment of letters and digits that may lack one

_ID: Final = re.compile(r"[A-Za-z0-9]++(?:[_-]++[A-Za-z0-9]++)*+")
_SEGMENT: Final = re.compile(r"[a-z0-9]++")
# What JSON in JSON, and a terminal, put before a word.
_GLUE: Final = re.compile(r"(?<!\\)\\++(?:u001b\[[0-9;]*+m|[nrtbf])|\x1b\[[0-9;]*+[A-Za-z]")


@frozen
class Miscopied:
    """``path``: of the parameter. ``value``: as it came. ``meant``: what stands there instead."""

    path: str
    value: str
    meant: str


class Ids:
    """The ids of one reply's calls, looked up in what came before it.

    ``messages``: the client's own, in OpenAI's form. ``tools``: those it offers, which may name an
    id as well. They are read only where there is an id.
    """

    def __init__(self, messages: Sequence[Mapping[str, Any]], tools: Any = None) -> None:
        self._messages = messages
        self._tools = tools
        self._left = MAX_VALUES

    def miscopied(self, values: Iterable[tuple[str, object]]) -> Miscopied | None:
        """The first of a call's values, each with its path, that is an id copied with a slip."""
        ids = ((path, text) for path, value in values if _is_id(text := str(value)))
        for path, value in itertools.islice(ids, self._left):
            self._left -= 1
            near = None if self._stands(value.lower()) else self._near(value.lower())
            if near is not None:
                return Miscopied(path, value, near)
        return None

    @cached_property
    def _told(self) -> tuple[str, str]:
        """What the user and tools gave, and what the model said and called; the newest."""
        told: tuple[list[str], list[str]] = ([], [])
        left = MAX_CHARS
        for own, text in _newest(self._messages):
            told[own].append(text[-left:])
            left -= len(text)
            if left <= 0:
                break
        given, said = (_GLUE.sub(" ", "\n".join(one)) for one in told)
        return given, said

    @cached_property
    def _given(self) -> dict[str, str]:
        """The ids and words of the user and of tools, by lower case."""
        tokens = _ID.findall(self._told[0])
        return {one.lower(): one for one in tokens if LEAST <= len(one) <= _MOST}

    @cached_property
    def _all_told(self) -> str:
        return "\n".join(self._told).lower()

    def _stands(self, wanted: str) -> bool:
        """Whether it was said or called, by anybody: what was called has been looked at then."""
        spelled = (wanted, f"{int(wanted):,}") if wanted.isdecimal() else (wanted,)
        return any(_holds(self._all_told, one) for one in spelled)

    def _near(self, wanted: str) -> str | None:
        """The one id that the user or a tool gave, of which this is a slip.

        Of several alike it is one more, as like as not; and one that a schema names is meant.
        """
        half = len(wanted) // 2
        begin, end = wanted[:half], wanted[half:]  # one edit leaves one of them as it is
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


def _newest(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[bool, str]]:
    """All texts from the end on, and whether they are the model's own."""
    for message in reversed(messages):
        own = message.get("role") == "assistant"
        for text in (*texts([message]), *(call.get("arguments") for call in calls(message))):
            if isinstance(text, str):
                yield own, text


def _holds(text: str, wanted: str) -> bool:
    """Whether it stands there by itself, between what is no letter or digit of an id's."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(wanted)}(?![A-Za-z0-9])", text) is not None


def is_slip(one: str, other: str) -> bool:
    """Whether two ids in lower case are one edit apart, of a kind that is hardly ever meant.

    Meant are a digit for another, which may be the next of a series; a zero more; and what is
    changed at a segment's end, unless it is written twice.
    """
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    same_size = len(one) == len(other)
    alike = (i for i, (a, b) in enumerate(zip(longer, shorter, strict=False)) if a != b)
    at = next(alike, len(shorter))
    if one == other or longer[at + 1 :] != shorter[at + same_size :]:
        return False
    segment, place = _segment(longer, at)
    if same_size:
        rest = segment[:place] + segment[place + 1 :]
        is_letter = shorter[at].isalnum() and not (longer[at] + shorter[at]).isdigit()
        return is_letter and place < len(rest) >= _READ and _is_mixed(rest)
    amid = 0 < place < len(segment) - 1 or longer[at] in (
        longer[at - 1 : at],
        longer[at + 1 : at + 2],
    )
    long = len(segment) >= (LEAST if segment.isdigit() else _MIXED)
    return amid and long and longer[at] != "0" and any(map(str.isdigit, segment))


def _is_mixed(segment: str) -> bool:
    return any(map(str.isdigit, segment)) and any(map(str.isalpha, segment))


def _segment(id_: str, at: int) -> tuple[str, int]:
    """What stands between separators around a place, and the place in it."""
    for found in _SEGMENT.finditer(id_):
        if found.start() <= at < found.end():
            return found[0], at - found.start()
    return "", 0
