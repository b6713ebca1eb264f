"""A session's history: the turns of a request's messages, or of the window that was stored.

A client that resends its transcript pays only for what is new: what its messages came to the last
time is found again by what they say. So a branch, a parallel sub-agent, an
edited or a compacted transcript each go on from the longest beginning that was seen before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import orjson

from ..kept import kept
from ..wire.blocks import BLOCK, Blocks, dumped
from .call_keys import Call, digest
from .seen import MAX_BEFORE, MAX_TURNS, Before, Seen
from .turn import NOTHING_YET, Inputs, Turn
from .turns import Transcript, output

MAX_SESSIONS: Final = 512  # whose beginnings are kept; one that isn't is read anew
MAX_BRANCHES: Final = 12  # of one session: its branches and sub-agents
MAX_BYTES: Final = 128 * 1024 * 1024  # of all of them: agents that talk much have fewer sessions
# An agent may edit its last messages (a cache mark that moves, surroundings taken out again), so
# the beginnings before the last few replies of a branch are kept beside the whole.
_STEPS_BACK: Final = 3


class History:
    """``turns``: oldest first, the last 512 at most. ``pending``: what the next reply answers.

    ``place``: names the transcript as it stands, the pending input included. ``task_start``: the
    first turn of what the user asked for last; one past the end if nothing came yet. Nobody changes
    one.
    """

    __slots__ = ("_repeats", "pending", "place", "task_start", "turns")

    def __init__(
        self,
        turns: tuple[Turn, ...] = (),
        pending: Inputs = NOTHING_YET,
        place: int = 0,
        task_start: int = 0,
    ) -> None:
        self.turns = turns
        self.pending = pending
        self.place = place
        self.task_start = len(turns) if pending.starts_task else task_start
        self._repeats: bool | None = None  # once somebody has asked

    @property
    def repeats(self) -> bool:
        """Whether the newest turn does what was done before in this task."""
        if self._repeats is None:
            actions = [turn.action for turn in self.turns[self.task_start :]]
            self._repeats = bool(actions) and actions.index(actions[-1]) < len(actions) - 1
        return self._repeats

    def closed_by(self, text: str, calls: Sequence[Call]) -> History:
        """The history with a reply as its newest turn."""
        turn = output(text, calls, self.pending, self.turns[-1] if self.turns else None)
        kept = self.turns[-MAX_TURNS + 1 :]
        start = max(self.task_start - (len(self.turns) - len(kept)), 0)
        return History((*kept, turn), NOTHING_YET, self.place, start)


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

    def read(self, session: str, blocks: Blocks, failed: Collection[str] = ()) -> History:
        """The history that the messages of a request tell. ``session``: its hash.

        ``failed``: the ids of calls whose results are errors.
        """
        said = blocks.said
        for message in reversed(said):
            if message.get("role") == "assistant":  # mostly right before the last message
                transcript = self._continued(session, blocks, failed)
                break
        else:
            # The first request of a conversation: little to read, and nothing worth keeping.
            known = self._sessions.get(session)
            transcript = Transcript(known.seen if known else Seen())
            for message in said:
                transcript.add(message, failed)
        inputs = transcript.pending()
        turns = transcript.turns
        place = hash((turns[-1].place if turns else 0, inputs.digest))
        return History(turns, inputs, place, transcript.task_start)

    def replied(
        self, session: str, history: History, text: str, calls: Sequence[tuple[Call, str]]
    ) -> None:
        """Keep where a reply was given, for a client that compacts its transcript behind it."""
        dropped = max(len(history.turns) - MAX_BEFORE, 0)
        start = max(history.task_start - dropped, 0)
        before = Before(history.turns[dropped:], history.pending, start)
        known = self._taken(session)
        known.seen.replied(before, text, calls)
        self._keep(session, known)

    def forget(self, session: str) -> None:
        self._taken(session)

    def _taken(self, session: str) -> _Session:
        """What is known of a session, which is no longer kept."""
        known = self._sessions.pop(session, None) or _Session()
        self._bytes -= known.size
        return known

    def _keep(self, session: str, known: _Session) -> None:
        """As the one that was read last; the oldest go where it is too many, or too much."""
        known.size = known.seen.size
        known.size += sum([branch[-1].transcript.size for branch in known.branches])
        self._bytes += known.size
        self._sessions[session] = known
        while len(self._sessions) > 1 and (
            len(self._sessions) > self._max_sessions or self._bytes > self._max_bytes
        ):
            self.forget(next(iter(self._sessions)))

    def _continued(self, session: str, blocks: Blocks, failed: Collection[str]) -> Transcript:
        known = self._taken(session)
        branches = known.branches
        names = _Names(blocks)
        branch, steps = _longest(branches, names)
        if steps == len(branch) and branch:
            branches.remove(branch)  # it is gone on with; else they part here
        begun = branch[:steps]
        transcript = _read_on(begun, blocks.said, names, known.seen, failed)
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
    seen: Seen = field(default_factory=Seen)
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


def _read_on(
    branch: _Branch,
    said: Sequence[Mapping[str, Any]],
    names: _Names,
    seen: Seen,
    failed: Collection[str],
) -> Transcript:
    """Read what is new behind the branch's end, and add it there."""
    start = branch[-1].length if branch else 0
    if branch and start == len(said):
        return branch[-1].transcript
    transcript = branch[-1].transcript.copy() if branch else Transcript(seen)
    replies = [i for i in range(start, len(said)) if said[i].get("role") == "assistant"]
    keep_before = {position for position in replies[-_STEPS_BACK:] if position > start}
    for position in range(start, len(said)):
        if position in keep_before:
            branch.append(_Beginning(*names.of(position), transcript.copy()))
        transcript.add(said[position], failed)
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
    calls = [list(call) for call in turn.calls]
    return kept(orjson.dumps([turn.inputs.digest, turn.action, calls]))


def of_window(window: Sequence[bytes], asked: History) -> History:
    """The history of a session whose last turns were stored; ``asked``: its request alone.

    Only turns with calls count: who asks the same single question again gets the same answer. A
    request with another input than the one before starts a count of its own.
    """
    turns: list[Turn] = []
    for entry in window:
        if (turn := _decoded(entry, turns[-1] if turns else None)) is not None and turn.calls:
            turns.append(turn)
    same = bool(turns) and turns[-1].inputs.digest == asked.pending.digest
    starts = [at for at, turn in enumerate(turns) if turn.inputs.starts_task]
    pending = replace(asked.pending, starts_task=not same)
    return History(tuple(turns), pending, asked.place, starts[-1] if starts else 0)


def _decoded(entry: bytes, before: Turn | None) -> Turn | None:
    try:
        asked, action, calls = orjson.loads(entry)
        inputs = Inputs(int(asked), int(asked), user=True)
        if before is None or before.inputs.digest != inputs.digest:
            inputs = replace(inputs, starts_task=True)
        read = tuple(Call(str(name), int(key)) for name, key in calls)
        place = digest(str(before.place if before else 0), entry)
        return Turn(inputs, int(action), read, place)
    except (ValueError, TypeError):
        return None  # another version's
