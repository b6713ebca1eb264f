"""A turn: the messages since the previous assistant message, and the assistant's answer to them.

Turns are small: they hold digests of 64 bits, and no text but tools' names.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ..frozen import frozen
from .call_keys import CallKey

_BYTES: Final = 300  # about what a turn, or its inputs, takes without parts
_PART_BYTES: Final = 150  # of a call, a result, or what a result brought


class Result(NamedTuple):
    """A tool's result, or another message that is not the assistant's."""

    digest: int
    shape: int  # the digest of the message without numbers
    size: int = 0  # characters, with runs of whitespace counted as one


@frozen
class Inputs:
    """The messages since the last assistant message."""

    digest: int = 0  # of the results of its calls; without results, of all messages
    shape: int = 0  # the same digest, without numbers
    results: tuple[Result | None, ...] = ()  # in the order of its calls; None: no result came
    user: bool = False  # a user message is among them
    known: bool = True  # False: the assistant message is a new reply, and nothing can follow yet
    starts_task: bool = False  # a user message begins a task: `history.py` says when
    interjected: bool = False  # the user speaks along with these results, not with those before
    # The results that came, each as the tool's name ("": a command in a text) and a digest of the
    # result without the call's own arguments.
    brought: tuple[tuple[str, int], ...] = ()
    old: int = 0  # how many of the last of them had come before in this task
    fresh: bool = True  # one of them was new, or is missing

    @property
    def bytes(self) -> int:
        """About how many bytes of memory these inputs take."""
        return _BYTES + _PART_BYTES * (len(self.results) + len(self.brought))


NOTHING_YET: Final = Inputs(known=False)


@frozen
class Turn:
    """One turn of a session."""

    inputs: Inputs
    action: int  # a digest of the calls, else of the command in the text, else of the text
    calls: tuple[CallKey, ...] = ()  # sorted
    # A digest of all that the assistant has said up to and with this turn, in this process only. It
    # stays the same if the client takes results out.
    place: int = 0
    before: int = 0  # the place of the previous turn
    acts: bool = False  # it makes calls, or its text holds a command

    @property
    def bytes(self) -> int:
        """About how many bytes of memory the turn takes, its inputs included."""
        names = sum([len(call.name) for call in self.calls])
        return _BYTES + self.inputs.bytes + _PART_BYTES * len(self.calls) + names
