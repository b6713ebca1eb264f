"""A session's memory between exchanges: its turns, hints, breaks and questions.

The keys are places of turns (``Turn.place``), which depend only on the assistant's messages. So the
memory survives parallel sub-agents and clients that clear old results. If the memory is lost (a
restart, too many sessions), a hint is given twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..engine.exchange import SessionStart
from ..engine.session_id import DIGITS, busiest_key
from ..recent import Recent
from ..wire.blocks import BLOCK, Blocks, PrefixCache, dumped
from .finding import Finding, NoteKey
from .history import History, SeenTurns
from .turns import Turn

MAX_BYTES: Final = 128 * 1024 * 1024  # of everything that is remembered of transcripts
MAX_READINGS: Final = 16  # transcript prefixes that a session remembers
_BYTES: Final = 3_000  # a session's approximate size without its transcripts
_MESSAGE_BYTES: Final = 1_000  # a short message's approximate size
_SHARE: Final = 100  # one of so many sessions is evicted at once: finding the key takes time
_UNWEIGHED: Final = 64  # weigh everything again after this fraction of MAX_BYTES
_NOTHING: Final = History()


@dataclass(slots=True)
class TaskNotes:
    """What the loop model was asked and answered about a task."""

    next_look: int | None = None  # the turn at which to ask again
    # The loop that it found; until that loop is broken, or permanently if it was found twice.
    finding: Finding | None = None
    verdicts: int = 0  # how often it found a loop


class _Newest(NamedTuple):
    """The newest transcript: its full blocks by hash, and the messages after these."""

    name: int = 0
    messages: int = 0
    digest: int = 0
    history: History | None = None


@dataclass(slots=True)
class SessionMemory:
    """The memory of one session."""

    has_transcript: bool = False  # the client resends the transcript
    # By exchange: its turn, if it made calls. Used only if the client sends no transcript.
    turns: dict[str, Turn] = field(default_factory=dict)
    began: float | None = None  # when the store first saw the session; None: unknown
    # By detector and turn of the run: for a hint `History.place`, for a break the run's length,
    # for a question to a second tier the number of calls.
    notes: Recent[NoteKey, int] = field(default_factory=lambda: Recent(3 * 256))
    tasks: Recent[int, TaskNotes] = field(default_factory=Recent)
    seen: SeenTurns = field(default_factory=SeenTurns)
    known: PrefixCache[History] = field(default_factory=lambda: PrefixCache(MAX_READINGS))
    bytes: int = _BYTES  # approximate size
    _newest: _Newest = field(default_factory=_Newest)
    _weighed: History | None = None  # the newest reading at the last weighing
    _readings_bytes: int = 0  # bytes

    def read(
        self, blocks: Blocks, failed: Collection[str] = (), *, salient: bool = False
    ) -> History:
        """Return the history in a request's messages.

        ``failed``: the ids of calls whose results are errors. ``salient``: see `call_keys`.
        """
        seen, newest = self.seen, self._newest

        def go_on(earlier: History, more: Sequence[Any]) -> History:
            return earlier.extended_by(more, seen, failed, salient=salient)

        name = blocks.names[-1] if blocks.names else -len(blocks.head) - 1
        rest = blocks.messages[len(blocks.names) * BLOCK :]
        begun = dumped(rest[: newest.messages])
        if newest.history and (newest.name, newest.digest) == (name, hash(begun)):
            history = go_on(newest.history, rest[newest.messages :])
        else:
            history = self.known.read(blocks, _NOTHING, go_on)
        written = begun if len(rest) == newest.messages else dumped(rest)
        self._newest = _Newest(name, len(rest), hash(written), history)
        if (readings := self.known.values()) and readings[-1] is not self._weighed:
            parts: dict[int, int] = {}
            for reading in readings:
                parts |= reading.parts()
            self._weighed, self._readings_bytes = readings[-1], sum(parts.values())
        own = len(written) + len(rest) * _MESSAGE_BYTES
        self.bytes = _BYTES + seen.bytes + self._readings_bytes + own
        return history.with_pending_input(seen)

    def forget_transcripts(self) -> None:
        """Forget what was read and seen; notes about turns stay."""
        self.seen, self.known = SeenTurns(), PrefixCache(MAX_READINGS)
        self.bytes, self._newest, self._weighed, self._readings_bytes = _BYTES, _Newest(), None, 0

    def start_over(self) -> None:
        """Forget the notes about turns, because the same script runs again."""
        self.turns.clear()
        self.notes.clear()
        self.tasks.clear()
        self.has_transcript = False

    def task(self, place: int) -> TaskNotes:
        """Return the notes on the task that began at this place."""
        notes = self.tasks[place] = self.tasks.get(place) or TaskNotes()
        return notes

    def keep(self, exchange: str, turn: Turn, limit: int) -> None:
        """Keep the turn of an exchange's last attempt; drop all but the last ``limit`` turns."""
        self.turns.pop(exchange, None)
        self.turns[exchange] = turn
        while len(self.turns) > limit:
            del self.turns[next(iter(self.turns))]

    def turns_before(self, exchange: str) -> list[Turn]:
        """Return the turns of the session's other exchanges, oldest first."""
        return [turn for id, turn in [*self.turns.items()] if id != exchange]

    def note_hint(self, finding: Finding, history: History) -> tuple[bool, bool]:
        """Record a hint. Return whether it is the run's first, and whether to give it at all.

        A run gets one hint. The same request again (our retry or the client's) gets the hint again.
        """
        run = finding.keys("hint")
        history_place = self.notes.find_and_refresh(run)
        if history_place is None:
            self.notes[run[-1]] = history.place
        return history_place is None, history_place in (None, history.place)

    def note_break(self, finding: Finding) -> bool:
        """Record that a run is broken. Return whether it was broken before."""
        run = finding.keys("break")
        known = self.notes.find_and_refresh(run) is not None
        for key in run[-2:]:  # the broken reply, and the previous turn, which the client has
            self.notes[key] = finding.length
        return known

    def note_run(self, finding: Finding) -> bool:
        """Record that a run goes on. Return whether two tiers have confirmed it.

        If they have, the run is longer than when it was broken: the broken reply was delivered.
        """
        broken_length = self.notes.find_and_refresh(finding.keys("break"))
        return broken_length is not None and finding.length > broken_length


class Sessions(Recent[str, SessionMemory]):
    """By session hash; evicts the oldest of the API key with the most, so that keys are fair."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._unweighed = 0  # bytes added since the last weighing

    def find(self, session: str, began: SessionStart | None = None) -> SessionMemory | None:
        """Return a session's memory, if any. ``began``: when the session began in the store.

        If the session started over in the store, another process has forgotten it, so this process
        forgets it, too.
        """
        if (memory := self.get(session)) is None:
            return None
        if began and memory.began is not None and began.first_seen > memory.began:
            self.pop(session, None)
            return None
        return self._use(session, memory, began)

    def of(self, session: str, began: SessionStart | None = None) -> SessionMemory:
        """Return a session's memory, created if necessary."""
        return self.find(session, began) or self._use(session, SessionMemory(), began)

    def _use(
        self, session: str, memory: SessionMemory, began: SessionStart | None
    ) -> SessionMemory:
        self[session] = memory
        if began is not None and began.turns:
            memory.began = began.first_seen
        return memory

    def weigh(self, more: int) -> None:
        """Record new bytes; drop transcripts if all together are too large."""
        self._unweighed += more
        part = MAX_BYTES // _UNWEIGHED
        if self._unweighed > part:
            self._unweighed = 0
            self._keep_within(MAX_BYTES - part)

    def _drop(self) -> None:
        for session in busiest_key([*self])[: 1 + self._max_keys // _SHARE]:
            self.pop(session, None)

    def _keep_within(self, most: int) -> None:
        """Drop transcripts of the largest session of the largest API key until the size fits.

        ``most``: bytes that all sessions may take.
        """
        weights = {session: memory.bytes - _BYTES for session, memory in [*self.items()]}
        excess = sum(weights.values()) + len(weights) * _BYTES - most
        while excess > 0 and any(weights.values()):
            keys: Counter[str] = Counter()
            for session, weight in weights.items():
                keys[session[DIGITS:]] += weight
            ((heaviest, _),) = keys.most_common(1)
            own = [session for session in weights if session[DIGITS:] == heaviest]
            victim = max(own, key=weights.__getitem__)
            excess -= weights.pop(victim)
            if memory := self.get(victim):
                memory.forget_transcripts()
