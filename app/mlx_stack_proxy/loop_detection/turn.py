"""A turn: what came in, and what the assistant did about it.

The messages since the previous assistant message, and the assistant message that answers them.
Turns are small: they hold digests of 64 bits, and no text.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..frozen import frozen
from .call_keys import Call


class Result(NamedTuple):
    """A tool's answer. ``shape``: its digest without numbers.

    ``size``: characters, without blanks that say nothing.
    """

    digest: int
    shape: int
    size: int = 0


@frozen
class Inputs:
    """What came since the last assistant message."""

    # Of the answers to its calls, or of all that came where there are none.
    digest: int = 0
    shape: int = 0  # the same without numbers
    results: tuple[Result | None, ...] = ()  # in the order of its calls; None where none came
    user: bool = False  # a user message is among it
    known: bool = True  # False: nothing can have come yet
    # The user speaks first of all, after an agent that made calls has ended without one, or as at
    # first.
    starts_task: bool = False
    interjected: bool = False  # the user speaks beside tool results, and did not the time before


NOTHING_YET: Final = Inputs(known=False)


@frozen
class Turn:
    """What came in, and the assistant's output."""

    inputs: Inputs
    action: int  # a digest of the calls, else of the command in the text, else of the text
    calls: tuple[Call, ...] = ()  # sorted
    # Names what the assistant has said up to and with this turn, whatever the client has since
    # taken out of its inputs; this process's own.
    place: int = 0
    before: int = 0  # the place of the turn before
