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
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.tool_calls.conversation import texts

from ..frozen import frozen

MAX_CHARS: Final = 400_000  # of the newest messages: ids are copied from what was just read
MAX_VALUES: Final = 8  # of one reply, or list
MAX_NODES: Final = 256  # of a call's arguments
_JUST: Final = 8  # messages
LEAST, _MOST = 5, 64  # characters of an id; shorter ones are near too many others
_LONG_RUN: Final = 5  # digits, of which one more or less isn't seen at a glance
_LONG_SEGMENT: Final = 6  # characters between separators
_LONG_MIXED: Final = 8  # letters and digits, as a hash or half a UUID has them

_ID: Final = re.compile(r"[A-Za-z0-9]++(?:[_-][A-Za-z0-9]++)*+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9]++(?:[_-]++[A-Za-z0-9]++)*+")
_SEGMENT: Final = re.compile(r"[a-z0-9]++")
_HASH: Final = re.compile(r"(?=(?:\d*[a-f]){2})[0-9a-f]{8,}")
_DIGITS: Final = re.compile(r"[0-9]++")
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
        self._text: str | None = None  # what was said or called by anybody, in lower case
        self._given: dict[str, str] = {}  # ids and words of the user and of tools, by lower case

    def miscopied(self, arguments: Mapping[str, Any]) -> Miscopied | None:
        """The first id of a call that is copied with a slip."""
        for path, value in itertools.islice(_ids(arguments), self._left):
            self._left -= 1
            if self._was_just_told(value):
                continue
            wanted = value.lower()
            near = None if self._stands(wanted) else self._near(wanted)
            if near is not None:
                return Miscopied(path, value, near)
        return None

    def _was_just_told(self, value: str) -> bool:
        """Whether it stands where most ids are copied from: that needs no reading of it all."""
        newest = itertools.islice(reversed(self._messages), _JUST)
        told = (text for message in newest for text in _said_or_called(message))
        return any(value in text and _holds(text, value) for text in told)

    def _read(self) -> str:
        if self._text is None:
            given, own = _told(self._messages)
            self._text = f"{given}\n{own}".lower()
            tokens = _TOKEN.findall(given)
            self._given = {one.lower(): one for one in tokens if LEAST <= len(one) <= _MOST}
        return self._text

    def _stands(self, wanted: str) -> bool:
        """Whether it was said or called, by anybody: what was called has been looked at then."""
        spelled = (wanted, f"{int(wanted):,}") if wanted.isdecimal() else (wanted,)
        return any(_holds(self._read(), one) for one in spelled)

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
        named = len(found) == 1 and _holds(_written(self._tools).lower(), wanted)
        return self._given[found[0]] if len(found) == 1 and not named else None


def _ids(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The values that have the form of an id: path and value."""
    left: list[tuple[str, Any]] = list(arguments.items())
    for _ in range(MAX_NODES):
        if not left:
            break
        path, value = left.pop(0)
        if isinstance(value, dict):
            left += [(f"{path}.{sub}", inside) for sub, inside in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{at}]", item) for at, item in enumerate(value[:MAX_VALUES])]
        elif isinstance(value, (str, int)) and _is_id(text := str(value)):
            yield path, text


def _is_id(text: str) -> bool:
    if not LEAST <= len(text) <= _MOST or not _ID.fullmatch(text):
        return False
    return any(map(str.isdigit, text))


def _told(messages: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """What the user and tools gave, and what the model said and called; the newest."""
    texts_of: tuple[list[str], list[str]] = ([], [])
    left = MAX_CHARS
    for message in reversed(messages):
        for text in _said_or_called(message):
            texts_of[message.get("role") == "assistant"].append(text[-left:])
            left -= len(text)
            if left <= 0:
                break
        if left <= 0:
            break
    given, own = ("\n".join(one) for one in texts_of)
    return _GLUE.sub(" ", given), _GLUE.sub(" ", own)


def _said_or_called(message: Mapping[str, Any]) -> Iterator[str]:
    yield from texts([message])
    for call in message.get("tool_calls") or ():
        function = call.get("function")
        called = function.get("arguments") if isinstance(function, Mapping) else None
        if isinstance(called, str):
            yield called


def _written(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return ""


def _holds(text: str, wanted: str) -> bool:
    """Whether it stands there by itself, between what is no letter or digit of an id's."""
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(wanted)}(?![A-Za-z0-9])", text) is not None


def is_slip(one: str, other: str) -> bool:
    """Whether two ids in lower case are one edit apart, of a kind that is hardly ever meant."""
    if one == other:
        return False
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    alike = (i for i, (a, b) in enumerate(zip(longer, shorter, strict=False)) if a != b)
    at = next(alike, len(shorter))
    if len(one) == len(other):
        return one[at + 1 :] == other[at + 1 :] and _is_misread(one, other, at)
    return longer[at + 1 :] == shorter[at:] and _is_left_out(longer, at)


def _is_left_out(longer: str, at: int) -> bool:
    """Whether the character at this place is one that is easily left out, or written twice."""
    segment, place = _segment(longer, at)
    inside = 0 < place < len(segment) - 1
    run = next((r[0] for r in _DIGITS.finditer(segment) if r.start() <= place < r.end()), "")
    if len(run) >= _LONG_RUN:
        # 007 for 7 and 1000 for 100 are other ways to count.
        twice = longer[at] in (longer[at - 1 : at], longer[at + 1 : at + 2])
        return longer[at] != "0" and (inside or twice)
    if not inside or not _is_mixed(segment):
        return False
    if run and not _HASH.fullmatch(segment) and len(longer) < 2 * _LONG_MIXED:
        return False  # node12east beside node1east
    return max(len(segment), len(longer) // 2) >= _LONG_MIXED


def _is_misread(one: str, other: str, at: int) -> bool:
    """Whether a character is read as another, amid letters and digits.

    A digit for a digit may be the next of a series, but not in the midst of a hash.
    """
    segment, place = _segment(one, at)
    if place >= len(segment) - 1 or len(segment) < _LONG_SEGMENT or not other[at].isalnum():
        return False
    if one[at].isdigit() and other[at].isdigit() and not _HASH.fullmatch(segment):
        return False
    return _is_mixed(segment[:place] + segment[place + 1 :])


def _is_mixed(segment: str) -> bool:
    return any(map(str.isdigit, segment)) and any(map(str.isalpha, segment))


def _segment(id_: str, at: int) -> tuple[str, int]:
    """What stands between separators around a place, and the place in it."""
    for found in _SEGMENT.finditer(id_):
        if found.start() <= at < found.end():
            return found[0], at - found.start()
    return "", 0
