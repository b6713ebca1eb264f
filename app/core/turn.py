"""A turn: what came in, and what the assistant did about it.

The messages since the previous assistant message, and the assistant message that answers them.
Turns are small: digests of 64 bits, and the assistant's text where it is short enough to be
compared word by word.
"""

from __future__ import annotations

import functools
from typing import Final, NamedTuple

from ..frozen import frozen
from .call_keys import Call, digest
from .texts import facts


class Result(NamedTuple):
    """A tool's answer. ``error``: it says that the call failed; ``nothing``: that nothing was found
    or done. ``empty``: there is no text in it, nor anything else. ``brief``: it can be no more than
    a verdict ("alive", "200 OK").
    """

    digest: int
    error: bool
    empty: bool
    nothing: bool = False
    brief: bool = False


# Whoever compares a text does so with many others.
_facts: Final = functools.lru_cache(maxsize=256)(facts)


@frozen
class Inputs:
    """What came since the last assistant message.

    ``results``: the answers to that message's calls, in the order of its ``calls``; None where
    none came. ``user``: a user message is among it. ``known`` False: nothing can have come yet.
    ``starts_task``: the user speaks after an assistant message without calls, or first of all.
    ``interjected``: the user speaks beside tool results, where the input before had none of his.
    """

    digest: int = 0
    results: tuple[Result | None, ...] = ()
    user: bool = False
    known: bool = True
    starts_task: bool = False
    interjected: bool = False


NOTHING_YET: Final = Inputs(known=False)


@frozen
class Turn:
    """``inputs`` and the assistant's output.

    ``text``: digest of the text with whitespace collapsed; ``words``: that text, of a long one its
    sentences' hashes, empty where it is too long for that or unknown; ``facts_in``: the text in
    which :attr:`facts` are to be found, or those. ``calls``: in an order of their own, whichever
    they came in. ``place``: names the transcript up to and with this turn, by what it says; this
    process's own.
    """

    inputs: Inputs
    text: int
    words: str
    facts_in: str | int
    calls: tuple[Call, ...] = ()
    place: int = 0

    @property
    def facts(self) -> int:
        """A digest of the text's numbers, paths, quoted strings and of calls written in it."""
        found = self.facts_in
        return found if isinstance(found, int) else _facts(found)

    @property
    def action(self) -> int:
        """What was done, as a digest: the calls without their noise, else the text."""
        if not self.calls:
            return self.text
        return digest(*(call.loose.to_bytes(8, "little") for call in self.calls))
