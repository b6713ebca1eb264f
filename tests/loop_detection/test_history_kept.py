"""What is remembered of a transcript, so that only what is new of it is read."""

from __future__ import annotations

import copy
import gc
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.loop_detection import turns as turns_module
from mlx_stack_proxy.loop_detection.history import MAX_BEGINNINGS, History, HistoryReader
from mlx_stack_proxy.loop_detection.seen import MAX_SEEN, MAX_TURNS, Seen
from mlx_stack_proxy.loop_detection.turn import Inputs
from mlx_stack_proxy.wire.blocks import BLOCK, Blocks
from tests.loop_detection.turns_made import (
    SYSTEM,
    USER,
    assistant,
    call,
    read,
    run,
    step,
    told,
    tool,
)

Json = dict[str, Any]


class Counting(HistoryReader):
    """Counts the messages that had to be read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **bounds: int) -> None:
        super().__init__(**bounds)
        self.count = 0
        add = turns_module.Transcript.add

        def counted(transcript: Any, message: Any, failed: Any) -> None:
            self.count += 1
            add(transcript, message, failed)

        monkeypatch.setattr(turns_module.Transcript, "add", counted)

    def read_new(self, messages: list[Json], session: str = "s") -> int:
        before = self.count
        found = self.read(session, Blocks(copy.deepcopy(messages)))
        count = self.count - before
        assert told(found) == told(read(messages)), "the same as read from its beginning"
        return count


def test_whole_blocks_that_are_known_are_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Counting(monkeypatch)
    assert reader.read_new(run(50)) == 101
    assert reader.read_new(run(50)) == 101 % BLOCK
    assert reader.read_new(run(51)) == 103 % BLOCK
    assert reader.read_new([SYSTEM, *run(52)]) == 105 % BLOCK, "a clock in it changes nothing"


def test_branches_and_sub_agents_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Counting(monkeypatch)
    other = [{"role": "user", "content": "You are the reviewer."}, *run(20)[1:]]
    reader.read_new(run(20))
    reader.read_new(other)
    for count in range(21, 25):
        assert reader.read_new(run(count)) < BLOCK
        assert reader.read_new([other[0], *run(count)[1:]]) < BLOCK
    branch = [*run(24), assistant(text="Another way."), USER, *step(99)]
    assert reader.read_new(branch) < BLOCK


def test_sub_agents_that_come_late_and_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read whole once (a restart, say), and that throws no other's beginning out."""
    reader = Counting(monkeypatch)
    tasks = [{"role": "user", "content": f"You are agent {at}."} for at in range(12)]
    for task in tasks:
        assert reader.read_new([task, *run(70)[1:]]) > 100
    for count in range(71, 75):
        for task in tasks:
            assert reader.read_new([task, *run(count)[1:]]) < BLOCK


def test_the_last_messages_may_be_edited(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Counting(monkeypatch)
    for count in range(30, 60):
        marked = run(count)
        marked[-1] = {**marked[-1], "content": [{"type": "text", "text": "ok", "cache": True}]}
        assert reader.read_new(marked) < (BLOCK + 2 if count > 30 else 100)


def test_compaction_and_an_edited_beginning_are_read_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Counting(monkeypatch)
    reader.read_new(run(30))
    summary = {"role": "user", "content": "So far: nothing found."}
    compacted = [summary, *run(30)[-4:]]
    assert reader.read_new(compacted) == 5
    edited = run(30)
    edited[2] = tool("something else", "c0")
    assert reader.read_new(edited) == len(edited)


def test_another_session_has_a_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Counting(monkeypatch)
    reader.read_new(run(5), "one")
    assert reader.read_new(run(5), "two") == 11
    reader.forget("one")
    assert reader.read_new(run(5), "one") == 11


def test_memory_is_bounded_both_ways() -> None:
    reader = HistoryReader(max_sessions=3)
    for session in range(9):
        for branch in range(30):
            first = {"role": "user", "content": str(branch)}
            reader.read(str(session), Blocks([first, *run(40)[1:]]))
    assert len(reader._sessions) == 3
    for known in reader._sessions.values():
        assert len(known.beginnings) == MAX_BEGINNINGS


def talk(turns: int, characters: int) -> list[Json]:
    """A conversation in which no two answers are the same."""
    found = [USER]
    for number in range(turns):
        answer = f"Answer {number}: ".ljust(characters, "x")
        found += [assistant(text=answer), {"role": "user", "content": f"And {number}?"}]
    return found


def test_of_those_that_talk_much_fewer_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Counting(monkeypatch, max_bytes=12_000)
    for name in "abc":
        reader.read_new(talk(20, 3_000), name)
    again = [*talk(20, 3_000), *step(1)]
    assert reader.read_new(again, "b") < BLOCK
    assert reader.read_new(again, "a") == len(again), "forgotten: the oldest"
    reader.read_new(talk(100, 3_000), "large")
    assert list(reader._sessions) == ["large"], "one is kept, however large"
    reader.forget("large")
    for number in range(100):
        reader.read_new(run(1), str(number))
    assert len(reader._sessions) > 20, "small ones have all the room again"


@pytest.mark.parametrize("messages", [run(200), talk(200, 40), talk(200, 2_000)])
def test_what_a_session_takes_is_known_about(messages: list[Json]) -> None:
    reader = HistoryReader()
    gc.collect()
    tracemalloc.start()
    try:
        for end in range(101, len(messages) + 1, 2):
            # Texts of its own: what is kept of them stays when the request has gone.
            reader.read("s", Blocks(json.loads(json.dumps(messages[:end]))))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.5 < reader._bytes / taken < 2


def test_the_last_turns_of_a_very_long_run_are_kept() -> None:
    reader = HistoryReader()
    assert len(reader.read("s", Blocks(run(MAX_TURNS + 20))).turns) == MAX_TURNS
    whole = reader.read("s", Blocks(run(MAX_TURNS + 21)))
    assert len(whole.turns) == MAX_TURNS
    assert len(whole.closed_by("", []).turns) == MAX_TURNS


MESSAGES = st.lists(
    st.one_of(
        st.builds(lambda n: {"role": "user", "content": str(n)}, st.integers(0, 2)),
        st.builds(lambda n: {"role": "assistant", "content": str(n)}, st.integers(0, 2)),
        st.builds(lambda n: assistant(call("f", {"n": n})), st.integers(0, 2)),
        st.builds(lambda n: tool(str(n)), st.integers(0, 2)),
    ),
    max_size=12,
)


@given(st.lists(MESSAGES, min_size=1, max_size=6))
def test_what_was_seen_before_never_changes_what_is_read(transcripts: list[list[Json]]) -> None:
    """But for what was shown when it was new, and isn't there any more."""

    def done(whole: History) -> list[Any]:
        turns = [(turn.action, turn.calls, turn.place) for turn in whole.turns]
        return [turns, whole.pending.digest, whole.place]

    reader = HistoryReader()
    for messages in transcripts:
        assert done(reader.read("s", Blocks(messages))) == done(read(messages))
        longer = [*messages, *transcripts[0]]
        assert done(reader.read("s", Blocks(longer))) == done(read(longer))


def test_the_beginning_of_a_task_is_kept_up() -> None:
    """Turn by turn, with branches and new tasks: the same as a reader that sees all at once."""
    again = {"role": "user", "content": "And now the other one."}
    whole = [USER, *step(1), *step(2), *step(1), assistant(text="Done."), again]
    whole += [*step(3), *step(1), *step(1)]
    reader = HistoryReader()
    for end in (3, 5, 7, 5, 8, 9, 11, 15, 13, 9, 15):
        kept, counted = reader.read("s", Blocks(whole[:end])), read(whole[:end])
        assert kept.task_start == counted.task_start, end


def test_the_beginning_of_a_task_longer_than_what_is_kept_of_it() -> None:
    whole = [USER, assistant(text="Yes?"), USER, *run(MAX_TURNS + 20)[1:]]
    reader = HistoryReader()
    for end in range(len(whole) - 8, len(whole) + 1, 2):
        history = reader.read("s", Blocks(whole[:end]))
    assert (len(history.turns), history.task_start) == (MAX_TURNS, 0)


# What a client clears


def cleared(messages: list[Json], keep: int) -> list[Json]:
    """As clients do that edit their context: old results are gone."""
    old = [at for at, one in enumerate(messages) if one["role"] == "tool"][:-keep]
    return [
        {**one, "content": "(cleared)"} if at in old else one for at, one in enumerate(messages)
    ]


def test_what_a_client_has_cleared_is_still_known() -> None:
    reader = HistoryReader()
    whole = [USER, *[one for number in range(9) for one in step(number, f"found {number}")]]
    for end in range(3, len(whole) + 1, 2):
        history = reader.read("s", Blocks(cleared(whole[:end], keep=2)))
        assert told(history) == told(read(whole[:end])), end
        assert [turn.place for turn in history.turns] == [
            turn.place for turn in read(whole[:end]).turns
        ]


def test_what_is_newest_is_believed_over_what_was_known() -> None:
    """The same script again, in the same session: what it is shown now counts."""
    reader = HistoryReader()
    for said in ("first", "second"):
        for end in (3, 5):
            messages = [USER, *step(1, said), *step(2, said)][:end]
            assert told(reader.read("s", Blocks(messages))) == told(read(messages))


def test_what_a_session_was_shown_is_bounded() -> None:
    seen = Seen()
    for place in range(3 * MAX_SEEN):
        seen.new(place, Inputs(place))
    assert len(seen._inputs) == MAX_SEEN
    assert seen.at(0, Inputs(7)).digest == 7, "the oldest are forgotten"
