"""Find ids that a call copies with a slip: ``61211`` for ``612111``, ``I4YDQTS`` for ``T4YDQTS``.

Weak models misread ids that they copy, most of all runs of the same digit and letters between
digits. No schema notices, and the tool may well know the wrong id. So a value with the form of an
id that stands nowhere in the conversation is compared with the ids that do. An id one edit away is
mostly a slip; an id that is counted up (A-1001, A-1002), given a suffix or padded with zeros is
meant. The rules are a judgement, so the caller must accept that the model repeats the call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Final

from .conversation import Conversation, stands

# The newest characters that are searched, of the model's texts and of the others' texts each.
MAX_CHARS: Final = 200_000
MAX_VALUES: Final = 8  # ids compared for one reply
LEAST, _MOST = 5, 64  # characters of an id; a shorter id is near too many others
_READ: Final = 5  # a character counts as misread if its segment has at least as many others
_MIXED: Final = 8  # least characters of a segment with letters that may have lost one

_WORD: Final = re.compile("[A-Za-z0-9]").search
_ID: Final = re.compile(r"[A-Za-z0-9]++(?:[_-]++[A-Za-z0-9]++)*+")
# Escapes that JSON in JSON, and a terminal, put right before a word.
_GLUE: Final = re.compile(r"(?<!\\)\\++(?:u001b\[[0-9;]*+m|[nrtbf])|\x1b\[[0-9;]*+[A-Za-z]")


# Path of the parameter, the id as the call has it, and the id in the conversation.
Miscopied = tuple[str, str, str]


class Ids:
    """Compares the ids in one reply's calls with the conversation before it.

    ``tools``: the request's, which may name an id, too. Conversation and tools are read only if a
    call holds an id.
    """

    def __init__(self, conversation: Conversation, tools: Any = None) -> None:
        self._conversation = conversation
        self._tools = tools
        self._near_ids: dict[str, str | None] = {}  # what was found for each id compared so far

    def miscopied(self, values: Iterable[tuple[str, object]]) -> Miscopied | None:
        """Return the first of a call's (path, value) pairs that is an id copied with a slip."""
        for path, value in values:
            if not _is_id(text := str(value)):
                continue
            lowered = text.lower()
            if lowered not in self._near_ids:
                if len(self._near_ids) >= MAX_VALUES:
                    return None
                # An id that occurs in any message or call stands; earlier calls were checked then.
                known = _holds(self._conversation_text, lowered)
                self._near_ids[lowered] = None if known else self._near(lowered)
            if (near := self._near_ids[lowered]) is not None:
                return path, text, near
        return None

    @cached_property
    def _known_ids(self) -> dict[str, str]:
        """The words of the user and the tools that may be ids: lower case → spelling."""
        id_words = _ID.findall(_newest(self._conversation.given))
        return {word.lower(): word for word in id_words if LEAST <= len(word) <= _MOST}

    @cached_property
    def _conversation_text(self) -> str:
        texts = (self._conversation.given, self._conversation.own)
        return "\n".join(map(_newest, texts)).lower()

    @cached_property
    def _tools_text(self) -> str:
        return str(self._tools).lower()

    def _near(self, candidate: str) -> str | None:
        """Return the one known id of which ``candidate`` is a slip; None if there is no such id.

        If several known ids are as near, ``candidate`` may be one more of their series. An id that
        the tools name is meant.
        """
        half = len(candidate) // 2
        # One edit leaves one of the halves unchanged.
        head, tail = candidate[:half], candidate[half:]
        similar = [
            known_id
            for known_id in self._known_ids
            if (known_id.startswith(head) or known_id.endswith(tail))
            and is_slip(candidate, known_id)
        ]
        named = len(similar) == 1 and _holds(self._tools_text, candidate)
        return self._known_ids[similar[0]] if len(similar) == 1 and not named else None


def _is_id(text: str) -> bool:
    if not LEAST <= len(text) <= _MOST or not _ID.fullmatch(text):
        return False
    return any(map(str.isdigit, text))


def _newest(text: str) -> str:
    return _GLUE.sub(" ", text[-MAX_CHARS:])


def _holds(text: str, id: str) -> bool:
    """Whether ``text`` holds ``id`` with no letter or digit right before or after it."""
    return stands(
        id,
        text,
        lambda start, end: not _WORD(text[max(0, start - 1) : start] + text[end : end + 1]),
    )


def is_slip(first: str, second: str) -> bool:
    """Whether two ids in lower case are one edit apart, by an edit that is hardly ever meant.

    These edits count as meant: one digit for another, which may be the next id of a series;
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
