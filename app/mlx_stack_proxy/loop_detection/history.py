"""A session's history: the turns of a request's messages, or of the session's last exchanges.

A client that resends its transcript pays only for what is new: the turns of its beginning are kept
at the end of each block of messages (``wire/blocks.py``), and found again by what those say. So a
branch, a parallel sub-agent, an edited or a compacted transcript each go on from the last block
that was seen before; what is behind that is read again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from ..wire.blocks import BLOCK, Blocks
from .call_keys import Call
from .seen import MAX_BEFORE, MAX_TURNS, Before, Recent, Seen
from .turn import NOTHING_YET, Inputs, Turn
from .turns import Transcript, output

MAX_SESSIONS: Final = 512  # whose beginnings are kept; one that isn't is read anew
MAX_BYTES: Final = 128 * 1024 * 1024  # of all of them: agents that talk much have fewer sessions
MAX_BEGINNINGS: Final = 24  # of one session, with its branches and sub-agents
# Of one transcript: an agent may edit its last messages (a cache mark that moves, for one).
_LAST_BLOCKS: Final = 2


class History:
    """The turns of a session, and what the next reply answers. Nobody changes one."""

    __slots__ = ("_repeats", "pending", "place", "task_start", "turns")

    def __init__(
        self,
        turns: tuple[Turn, ...] = (),
        pending: Inputs = NOTHING_YET,
        place: int = 0,
        task_start: int = 0,
    ) -> None:
        self.turns = turns  # oldest first, the last 512 at most
        self.pending = pending
        self.place = place  # names the transcript as it stands, the pending input included
        # The first turn of what the user asked for last; one past the end if none came yet.
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

    def behind(self, turns: tuple[Turn, ...]) -> History:
        """The history of a session whose client sends no transcript; ``turns``: its last ones.

        A request with another input than the one before starts a count of its own.
        """
        same = turns[-1].inputs.digest == self.pending.digest
        starts = [at for at, turn in enumerate(turns) if turn.inputs.starts_task]
        pending = replace(self.pending, starts_task=not same)
        return History(turns, pending, self.place, starts[-1] if starts else 0)


class HistoryReader:
    """Reads histories, and remembers by session what it has read. Bounded in both directions."""

    def __init__(self, max_sessions: int = MAX_SESSIONS, max_bytes: int = MAX_BYTES) -> None:
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._bytes = 0

    def read(self, session: str, blocks: Blocks, failed: Collection[str] = ()) -> History:
        """The history that the messages of a request tell. ``session``: its hash.

        ``failed``: the ids of calls whose results are errors.
        """
        known = self._taken(session)
        transcript = known.read(blocks, failed)
        self._keep(session, known)
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
        turns = sum([one.size for one in known.beginnings.values()])
        known.size = known.seen.size + turns // _LAST_BLOCKS  # these have most turns in common
        self._bytes += known.size
        self._sessions[session] = known
        while len(self._sessions) > 1 and (
            len(self._sessions) > self._max_sessions or self._bytes > self._max_bytes
        ):
            self.forget(next(iter(self._sessions)))


@dataclass(slots=True)
class _Session:
    """What is known of one."""

    # What the first blocks of a transcript came to, by the hash of their names.
    beginnings: Recent[int, Transcript] = field(default_factory=lambda: Recent(MAX_BEGINNINGS))
    seen: Seen = field(default_factory=Seen)
    size: int = 0  # bytes, about

    def read(self, blocks: Blocks, failed: Collection[str]) -> Transcript:
        """Read on behind the longest beginning that is known."""
        names = list(accumulate(blocks.names, lambda before, name: hash((before, name))))
        known = len(names)
        while known and names[known - 1] not in self.beginnings:
            known -= 1
        transcript = Transcript(self.seen)
        if known:
            transcript = self.beginnings[names[known - 1]]
            self.beginnings[names[known - 1]] = transcript  # the last that is forgotten
            transcript = transcript.copy()
        said = blocks.said
        for end in range(known + 1, len(names) + 1):
            for message in said[(end - 1) * BLOCK : end * BLOCK]:
                transcript.add(message, failed)
            if end > len(names) - _LAST_BLOCKS:
                self.beginnings[names[end - 1]] = transcript.copy()
        for message in said[len(names) * BLOCK :]:
            transcript.add(message, failed)
        for name in names[:-_LAST_BLOCKS]:
            self.beginnings.pop(name, None)
        return transcript
