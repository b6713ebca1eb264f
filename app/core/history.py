"""A session's history: the turns of a request's messages, or of the window that was stored.

A client that resends its transcript pays only for what is new: what its messages came to the last
time is found again by what they say, not by where they stand. So a branch, a parallel sub-agent, an
edited or a compacted transcript each go on from the longest beginning that was seen before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from .call_keys import Call, digest
from .turns import MAX_TURNS, NOTHING_YET, Inputs, Result, Transcript, Turn, output

MAX_SESSIONS: Final = 512  # whose beginnings are kept; one that isn't is read anew
MAX_BEGINNINGS: Final = 12  # of one session: its branches and sub-agents
# An agent may edit its last messages (a cache mark that moves, surroundings taken out again), so
# the beginnings before the last few replies are kept beside the whole.
_STEPS_BACK: Final = 3


@dataclass(frozen=True, slots=True)
class History:
    """``turns``: oldest first, the last 512 at most. ``pending``: what the next reply answers.

    ``place``: names the transcript as it stands, the pending input included.
    """

    turns: tuple[Turn, ...] = ()
    pending: Inputs = NOTHING_YET
    place: int = 0

    def results(self, position: int) -> tuple[Result | None, ...]:
        """The answers to the calls of a turn, in their order; empty where none can have come."""
        later = position + 1
        inputs = self.turns[later].inputs if later < len(self.turns) else self.pending
        return inputs.results

    def task_start(self) -> int:
        """The first turn of what the user asked for last; one past the end if nothing came yet."""
        if self.pending.starts_task:
            return len(self.turns)
        for position in range(len(self.turns) - 1, -1, -1):
            if self.turns[position].inputs.starts_task:
                return position
        return 0

    def closed_by(self, text: str, calls: Sequence[Call]) -> History:
        """The history with a reply as its newest turn."""
        turn = output(text, calls, self.pending, self.place)
        return History((*self.turns[-MAX_TURNS + 1 :], turn), NOTHING_YET, self.place)


class HistoryReader:
    """Reads histories, and remembers by session what it has read. Bounded in both directions."""

    def __init__(
        self, max_sessions: int = MAX_SESSIONS, max_beginnings: int = MAX_BEGINNINGS
    ) -> None:
        self._max_sessions = max_sessions
        self._max_beginnings = max_beginnings
        self._sessions: OrderedDict[str, OrderedDict[int, Transcript]] = OrderedDict()

    def read(self, session: str, messages: Sequence[Mapping[str, Any]]) -> History:
        """The history that the messages of a request tell. ``session``: its hash."""
        said = [m for m in messages if m.get("role") not in ("system", "developer")]
        places = _places(said)
        if not any(message.get("role") == "assistant" for message in said):
            # The first request of a conversation: little to read, and nothing worth keeping.
            transcript = _read(Transcript(), said, places, 0, {})
        else:
            transcript = self._continued(session, said, places)
        return History(tuple(transcript.turns), transcript.inputs(), places[-1] if places else 0)

    def forget(self, session: str) -> None:
        self._sessions.pop(session, None)

    def _continued(
        self, session: str, said: Sequence[Mapping[str, Any]], places: Sequence[int]
    ) -> Transcript:
        known = self._sessions.get(session)
        if known is None:
            known = self._sessions[session] = OrderedDict()
            while len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(session)
        start = len(said)
        while start and places[start - 1] not in known:
            start -= 1
        if start:
            known.move_to_end(places[start - 1])
        begun = known[places[start - 1]] if start else Transcript()
        if start == len(said):
            return begun
        kept: dict[int, Transcript] = {}
        transcript = _read(begun.copy(), said, places, start, kept)
        for place, beginning in kept.items():
            known[place] = beginning
        while len(known) > self._max_beginnings:
            known.popitem(last=False)
        return transcript


def _read(
    transcript: Transcript,
    said: Sequence[Mapping[str, Any]],
    places: Sequence[int],
    start: int,
    kept: dict[int, Transcript],
) -> Transcript:
    """Add the messages from ``start`` on; the last beginnings go into ``kept``, by their place."""
    replies = [i for i in range(start, len(said)) if said[i].get("role") == "assistant"]
    keep_before = {position for position in replies[-_STEPS_BACK:] if position > start}
    for position in range(start, len(said)):
        if position in keep_before:
            kept[places[position - 1]] = transcript.copy()
        transcript.add(said[position], places[position])
    if said:
        kept[places[-1]] = transcript
    return transcript


def _places(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """A name for each beginning of the messages, made of what they say; this process's own."""
    place = 0
    places = []
    for message in messages:
        place = hash((place, _identity(message)))
        places.append(place)
    return places


def _identity(message: Mapping[str, Any]) -> int:
    """What a message says, as a hash. The usual shapes take a microsecond."""
    content = message.get("content")
    calls = message.get("tool_calls")
    if (content is None or type(content) is str) and "function_call" not in message:
        who = (message.get("role"), content, message.get("tool_call_id"))
        try:
            if not calls:
                return hash(who)
            said = [(c.get("id"), c["function"]["name"], c["function"]["arguments"]) for c in calls]
            return hash((who, *said))
        except (TypeError, KeyError, AttributeError):
            pass  # an odd shape
    try:
        return hash(orjson.dumps(message, option=orjson.OPT_NON_STR_KEYS))
    except (TypeError, ValueError):
        return hash(repr(message))


# The stored window: for named sessions whose requests hold no transcript.


def encoded(turn: Turn) -> bytes:
    """A turn for the store: digests and the names of tools, no text."""
    calls = [[c.name, c.exact, c.loose, c.salient, c.writes] for c in turn.calls]
    return orjson.dumps([turn.inputs.digest, turn.text, turn.facts, calls])


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
