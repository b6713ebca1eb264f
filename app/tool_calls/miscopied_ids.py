"""Ids that a call copies with a slip: `61211` for `612111`, `I4YDQTS` for `T4YDQTS`.

Weak models misread what they copy, most of all runs of the same digit and letters between digits.
No schema sees it, and the tool that is called may well know the other id. So a value of a parameter
that names an id, and that stands nowhere in the conversation, is compared with what does. What is
one edit apart is mostly a slip; what is counted up (A-1001, A-1002), given a suffix or filled up
with zeros is meant. The rules are judgement: whoever is told must be ready to take the same call
for an answer.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from app.tool_calls.conversation import texts
from app.tool_calls.names import words

from ..frozen import frozen

MAX_CHARS: Final = 400_000  # of the newest messages: ids are copied from what was just read
MAX_VALUES: Final = 8  # of one call, or list
MAX_NODES: Final = 256  # of its arguments
MAX_PLACES: Final = 512  # where a half of one value stands
LEAST, _MOST = 5, 64  # characters of an id; shorter ones are near too many others
_LONG_RUN: Final = 5  # digits, of which one more or less isn't seen at a glance
_LONG_SEGMENT: Final = 6  # characters between separators
_LONG_MIXED: Final = 8  # letters and digits, as a hash or half a UUID has them

_ID: Final = re.compile(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)*")
_HAS_DIGIT: Final = re.compile(r"\d")
_TOKEN: Final = re.compile(r"[A-Za-z0-9]+(?:[_-]+[A-Za-z0-9]+)*")
_SEGMENT: Final = re.compile(r"[a-z0-9]+")
_HASH: Final = re.compile(r"[0-9a-f]{8,}")
_DIGITS: Final = re.compile(r"[0-9]+")
_NAMING: Final = frozenset(
    {"id", "ids", "uuid", "uuids", "guid", "guids", "identifier", "identifiers"}
    | {"sku", "iban", "sha"}
)
# … behind another word: an `order_number` is an id, a `number` may be what is reckoned with.
_NAMING_LAST: Final = frozenset({"number", "numbers", "no", "ref", "reference", "code", "key"})


@frozen
class Miscopied:
    """``path``: of the parameter. ``value``: as it came. ``meant``: what stands there instead."""

    path: str
    value: str
    meant: str


def miscopied(arguments: str, messages: Sequence[Mapping[str, Any]]) -> Miscopied | None:
    """The first id of a call that is copied with a slip, if any is.

    ``arguments``: JSON text, as on the wire. ``messages``: the client's own, in OpenAI's form;
    they are read only where there is an id.
    """
    if not _HAS_DIGIT.search(arguments):
        return None
    try:
        given = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(given, dict):
        return None
    for path, value in itertools.islice(_ids(given), MAX_VALUES):
        wanted = value.lower()
        if _stands(wanted, messages):
            continue
        near = {token.lower(): token for token in _near(wanted, messages)}
        if len(near) == 1:  # of several it is one more, as like as not
            return Miscopied(path, value, *near.values())
    return None


def _ids(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The values that look like ids, of parameters whose names say so: path and value."""
    left: list[tuple[str, str, Any]] = [(key, key, value) for key, value in arguments.items()]
    for _ in range(MAX_NODES):
        if not left:
            break
        path, key, value = left.pop(0)
        if isinstance(value, dict):
            left += [(f"{path}.{sub}", sub, inside) for sub, inside in value.items()]
        elif isinstance(value, list):
            left += [(f"{path}[{at}]", key, item) for at, item in enumerate(value[:MAX_VALUES])]
        elif isinstance(value, (str, int)) and _is_id(text := str(value)) and _names_id(key):
            yield path, text


def _is_id(text: str) -> bool:
    if not LEAST <= len(text) <= _MOST or not _ID.fullmatch(text):
        return False
    return any(map(str.isdigit, text))


def _names_id(parameter: str) -> bool:
    said = [word for word in words(parameter) if not word.isdecimal()]
    return bool(said) and (said[-1] in _NAMING or (len(said) > 1 and said[-1] in _NAMING_LAST))


def _stands(wanted: str, messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether an id was said, or called, by anybody: what was called has been looked at then."""
    left = MAX_PLACES
    for text in _newest_first(messages, _said_or_called):
        lowered = _lowered(text)
        for at in _places(wanted, lowered):
            left -= 1
            end = at + len(wanted)
            around = lowered[at - 1 : at], lowered[end : end + 1]
            if not any(map(str.isalnum, around)) or not left:  # of so many one does, most likely
                return True
    return False


def _near(wanted: str, messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The ids that the user or a tool gave, and of which `wanted` is a slip."""
    half = len(wanted) // 2
    left = MAX_PLACES
    for text in _newest_first(messages, _given):
        lowered = _lowered(text)
        for part in (wanted[:half], wanted[half:]):  # one edit leaves one of them as it is
            for at in itertools.islice(_places(part, lowered), left):
                left -= 1
                token = _token_at(text, at)
                if is_slip(wanted, token.lower()):
                    yield token


def _newest_first(
    messages: Sequence[Mapping[str, Any]],
    told: Callable[[Mapping[str, Any]], Iterable[str]],
) -> Iterator[str]:
    seen = 0
    for message in reversed(messages):
        for text in told(message):
            yield text[-MAX_CHARS:]
            seen += len(text)
            if seen > MAX_CHARS:
                return


def _given(message: Mapping[str, Any]) -> Iterable[str]:
    return () if message.get("role") == "assistant" else texts([message])


def _said_or_called(message: Mapping[str, Any]) -> Iterator[str]:
    yield from texts([message])
    for call in message.get("tool_calls") or ():
        function = call.get("function")
        called = function.get("arguments") if isinstance(function, Mapping) else None
        if isinstance(called, str):
            yield called


def _lowered(text: str) -> str:
    """In lower case, each character at its place: a few letters would become two."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else text


def _places(part: str, text: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def _token_at(text: str, at: int) -> str:
    """The id, or word, in whose midst a place is; one that is too long is cut."""
    for found in _TOKEN.finditer(text, max(at - _MOST - 1, 0), at + _MOST + 2):
        if found.end() > at:
            return found[0] if found.start() <= at else ""
    return ""


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
    if inside and _is_mixed(segment) and max(len(segment), len(longer) // 2) >= _LONG_MIXED:
        return True
    run = next((r[0] for r in _DIGITS.finditer(segment) if r.start() <= place < r.end()), "")
    # 007 for 7 and 1000 for 100 are other ways to count.
    if len(run) < _LONG_RUN or longer[at] == "0":
        return False
    return inside or longer[at] in (longer[at - 1 : at], longer[at + 1 : at + 2])


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
