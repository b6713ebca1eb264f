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
    """What came since the last assistant message.

    ``digest``, ``shape``: of the answers to its calls, or of all that came where there are none;
    with numbers and without.
    ``results``: those answers, in the order of its ``calls``; None where none came. ``user``: a
    user message is among it. ``known`` False: nothing can have come yet. ``starts_task``: the user
    speaks first of all, after an agent that made calls has ended without one, or as at first.
    ``interjected``: the user speaks beside tool results, where the input before had none of his.
    """

    digest: int = 0
    shape: int = 0
    results: tuple[Result | None, ...] = ()
    user: bool = False
    known: bool = True
    starts_task: bool = False
    interjected: bool = False


NOTHING_YET: Final = Inputs(known=False)


@frozen
class Turn:
    """``inputs`` and the assistant's output.

    ``action``: what was done, as a digest: the calls, else the command in the
    text, else the text, blanks apart. ``calls``: in an order of their own, whichever they came in.
    ``place``: names what the assistant has said up to and with this turn, whatever the client has
    since taken out of its inputs; this process's own.
    """

    inputs: Inputs
    action: int
    calls: tuple[Call, ...] = ()
    place: int = 0
