"""A session's history: the turns of a request's messages, or of the window that was stored.

A client that resends its transcript pays only for what is new: what its messages came to the last
time is found again by what they say. So a branch, a parallel sub-agent, an
edited or a compacted transcript each go on from the longest beginning that was seen before.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import orjson

from ..kept import kept
from .blocks import BLOCK, Blocks, dumped
from .call_keys import Call, digest
from .progress import Brought, Counted, Progress, Tally
from .turn import NOTHING_YET, Inputs, Result, Turn
from .turns import MAX_TURNS, Transcript, output

MAX_SESSIONS: Final = 512  # whose beginnings are kept; one that isn't is read anew
MAX_BRANCHES: Final = 12  # of one session: its branches and sub-agents
MAX_BYTES: Final = 128 * 1024 * 1024  # of all of them: agents that talk much have fewer sessions
# An agent may edit its last messages (a cache mark that moves, surroundings taken out again), so
# the beginnings before the last few replies of a branch are kept beside the whole.
_STEPS_BACK: Final = 3


class History:
    """``turns``: oldest first, the last 512 at most. ``pending``: what the next reply answers.

    ``place``: names the transcript as it stands, the pending input included. Nobody changes one.
    """

    __slots__ = ("_counted", "_task_start", "pending", "place", "turns")

    def __init__(
        self, turns: tuple[Turn, ...] = (), pending: Inputs = NOTHING_YET, place: int = 0
    ) -> None:
        self.turns = turns
        self.pending = pending
        self.place = place
        self._task_start: int | None = None  # these two once somebody has asked
        self._counted: Counted | None = None

    def results(self, position: int) -> tuple[Result | None, ...]:
        """The answers to the calls of a turn, in their order; empty where none can have come."""
        later = position + 1
        inputs = self.turns[later].inputs if later < len(self.turns) else self.pending
        return inputs.results

    @property
    def task_start(self) -> int:
        """The first turn of what the user asked for last; one past the end if nothing came yet."""
        if self._task_start is None:
            self._task_start = self._start_of_task()
        return self._task_start

    def _start_of_task(self) -> int:
        if self.pending.starts_task:
            return len(self.turns)
        for position in range(len(self.turns) - 1, -1, -1):
            if self.turns[position].inputs.starts_task:
                return position
        return 0

    @property
    def counted(self) -> Counted:
        """This task's calls."""
        if self._counted is None:
            task = () if self.pending.starts_task else self.turns[self.task_start :]
            self._counted = Tally(task).counted(self.pending)
        return self._counted

    @property
    def names(self) -> Sequence[str]:
        """The tools called in this task, oldest first."""
        return self.counted.names

    @property
    def counts(self) -> Mapping[str, int]:
        """How often each tool was called in this task."""
        return self.counted.counts

    @property
    def calls(self) -> Brought:
        """This task's calls that can have been answered, oldest first, and which were progress."""
        before, newest = self.counted.brought
        return (*before, *newest)

    def calls_backwards(self) -> Iterator[tuple[Call, Progress]]:
        """The same, newest first: mostly the first few say all."""
        before, newest = self.counted.brought
        return itertools.chain(reversed(newest), reversed(before))

    def counted_by(self, tally: Tally) -> History:
        """This history, which need not count again what ``tally`` has counted."""
        begun = 0 if self.pending.starts_task else tally.turns
        self._task_start = len(self.turns) - begun
        self._counted = tally.counted(self.pending)
        return self

    def closed_by(self, text: str, calls: Sequence[Call]) -> History:
        """The history with a reply as its newest turn."""
        before = self.turns[-1].place if self.turns else 0
        turn = output(text, calls, self.pending, before)
        new = History((*self.turns[-MAX_TURNS + 1 :], turn), NOTHING_YET, self.place)
        if len(new.turns) > len(self.turns):  # nothing was dropped: what is answered is the same
            new._task_start = self.task_start
            new._counted = self.counted.and_made(turn.calls)
        return new


class HistoryReader:
    """Reads histories, and remembers by session what it has read. Bounded in both directions."""

    def __init__(
        self,
        max_sessions: int = MAX_SESSIONS,
        max_branches: int = MAX_BRANCHES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._max_sessions = max_sessions
        self._max_branches = max_branches
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._bytes = 0

    def read(self, session: str, blocks: Blocks) -> History:
        """The history that the messages of a request tell. ``session``: its hash."""
        said = blocks.said
        for message in reversed(said):
            if message.get("role") == "assistant":  # mostly right before the last message
                transcript = self._continued(session, blocks)
                break
        else:
            # The first request of a conversation: little to read, and nothing worth keeping.
            transcript = Transcript(Tally())
            for message in said:
                transcript.add(message)
        inputs = transcript.inputs()
        turns = transcript.turns
        history = History(turns, inputs, hash((turns[-1].place if turns else 0, inputs.digest)))
        return history if transcript.tally is None else history.counted_by(transcript.tally)

    def forget(self, session: str) -> None:
        self._taken(session)

    def _taken(self, session: str) -> _Session:
        """What is known of a session, which is no longer kept."""
        known = self._sessions.pop(session, None) or _Session()
        self._bytes -= known.size
        return known

    def _keep(self, session: str, known: _Session) -> None:
        """As the one that was read last; the oldest go where it is too many, or too much."""
        known.size = sum([branch[-1].transcript.size for branch in known.branches])
        self._bytes += known.size
        self._sessions[session] = known
        while len(self._sessions) > 1 and (
            len(self._sessions) > self._max_sessions or self._bytes > self._max_bytes
        ):
            self.forget(next(iter(self._sessions)))

    def _continued(self, session: str, blocks: Blocks) -> Transcript:
        known = self._taken(session)
        branches = known.branches
        names = _Names(blocks)
        branch, steps = _longest(branches, names)
        if steps == len(branch) and branch:
            branches.remove(branch)  # it is gone on with; else they part here
        begun = branch[:steps]
        transcript = _read_on(begun, blocks.said, names)
        branches.append(begun[-_STEPS_BACK - 1 :])
        del branches[: -self._max_branches]
        self._keep(session, known)
        return transcript


class _Beginning(NamedTuple):
    """What the first ``length`` messages of a transcript came to.

    ``last``, ``digest``: hashes of the last of them, and of all; this process's own.
    """

    length: int
    last: int
    digest: int
    transcript: Transcript


# The beginnings of one transcript that are kept: the shortest first.
_Branch = list[_Beginning]


@dataclass(slots=True)
class _Session:
    """What is known of one, the branch that was read last at the end. ``size``: bytes, about."""

    branches: list[_Branch] = field(default_factory=list)
    size: int = 0


def _longest(branches: Sequence[_Branch], names: _Names) -> tuple[_Branch, int]:
    """The branch with the longest beginning that the messages begin with, and how many it has.

    Of several branches, the one that was read last; none is an empty one.
    """
    found: tuple[_Branch, int] = [], 0
    longest = 0
    for branch in reversed(branches):
        for steps in range(len(branch), 0, -1):
            one = branch[steps - 1]
            if one.length <= longest:
                break
            if names.begin_with(one):
                found, longest = (branch, steps), one.length
                break
    return found


def _read_on(branch: _Branch, said: Sequence[Mapping[str, Any]], names: _Names) -> Transcript:
    """Read what is new behind the branch's end, and add it there."""
    start = branch[-1].length if branch else 0
    if branch and start == len(said):
        return branch[-1].transcript
    transcript = branch[-1].transcript.continued() if branch else Transcript(Tally())
    replies = [i for i in range(start, len(said)) if said[i].get("role") == "assistant"]
    keep_before = {position for position in replies[-_STEPS_BACK:] if position > start}
    for position in range(start, len(said)):
        if position in keep_before:
            branch.append(_Beginning(*names.of(position), transcript.copy()))
        transcript.add(said[position])
    branch.append(_Beginning(*names.of(len(said)), transcript))
    return transcript


class _Names:
    """The names of the beginnings of one request's messages."""

    def __init__(self, blocks: Blocks) -> None:
        self._messages = blocks.said
        self._blocks = blocks.names
        self._chain = [0]  # the hash of no block, of the first one, of the first two …
        self._hashes: dict[int, int] = {}  # of single messages: those in no whole block, the last

    def begin_with(self, one: _Beginning) -> bool:
        """Whether the messages begin with these; most others are told by the last message."""
        length = one.length
        return (
            length <= len(self._messages)
            and self._hash(length - 1) == one.last
            and self._digest(length) == one.digest
        )

    def of(self, length: int) -> tuple[int, int, int]:
        """The length and the two hashes of the first ``length`` messages."""
        return length, self._hash(length - 1), self._digest(length)

    def _hash(self, position: int) -> int:
        found = self._hashes.get(position)
        if found is None:
            found = self._hashes[position] = hash(dumped(self._messages[position]))
        return found

    def _digest(self, length: int) -> int:
        blocks, rest = divmod(length, BLOCK)
        chain = self._chain
        while len(chain) <= blocks:
            chain.append(hash((chain[-1], self._blocks[len(chain) - 1])))
        if not rest:
            return chain[blocks]
        return hash((chain[blocks], *map(self._hash, range(length - rest, length))))


# The stored window: for named sessions whose requests hold no transcript.


def encoded(turn: Turn) -> bytes:
    """A turn for the store: digests and the names of tools, no text."""
    calls = [[c.name, c.exact, c.loose, c.salient, c.writes] for c in turn.calls]
    return kept(orjson.dumps([turn.inputs.digest, turn.text, turn.facts, calls]))


def of_window(window: Sequence[bytes], asked: History) -> History:
    """The history of a session whose last turns were stored; ``asked``: its request alone.

    A request with another input than the one before starts a count of its own.
    """
    turns: list[Turn] = []
    for entry in window:
        if (turn := _decoded(entry, turns[-1] if turns else None)) is not None:
            turns.append(turn)
    same = bool(turns) and turns[-1].inputs.digest == asked.pending.digest
    return History(tuple(turns), replace(asked.pending, starts_task=not same), asked.place)


def _decoded(entry: bytes, before: Turn | None) -> Turn | None:
    try:
        asked, text, facts, calls = orjson.loads(entry)
        inputs = Inputs(int(asked), user=True)
        if before is None or before.inputs.digest != inputs.digest:
            inputs = replace(inputs, starts_task=True)
        read = tuple(Call(str(n), int(e), int(lo), int(s), bool(w)) for n, e, lo, s, w in calls)
        place = digest(str(before.inputs.digest if before else 0), entry)
        return Turn(inputs, int(text), "", int(facts), read, place)
    except (ValueError, TypeError):
        return None  # another version's
