"""What is remembered: what blocks of messages say, and what sessions were shown."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine.session_id import digest
from mlx_stack_proxy.loop_detection import memory, turns
from mlx_stack_proxy.loop_detection.history import MAX_SEEN, History, SeenTurns
from mlx_stack_proxy.loop_detection.memory import SessionMemory, Sessions
from mlx_stack_proxy.loop_detection.turns import Inputs
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


def test_a_block_that_is_known_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read_now: list[Json] = []
    one_given = turns.input_message_of

    def counted(message: Json, *others: Any) -> turns.InputMessage:
        read_now.append(message)
        return one_given(message, *others)

    monkeypatch.setattr("mlx_stack_proxy.loop_detection.history.input_message_of", counted)
    reader = SessionMemory()
    reader.read(Blocks([{**SYSTEM, "content": "It is 11:59."}, *run(50)]))
    assert len(read_now) == 51
    read_now.clear()
    reader.read(Blocks([SYSTEM, *run(52)]))
    assert len(read_now) == 2, "only what is new, also within a block"
    for more in ([SYSTEM, *run(53)], [SYSTEM, *run(48), assistant(text="Another way."), USER]):
        read_now.clear()
        found = reader.read(Blocks(more))
        assert len(read_now) < BLOCK / 2, "a clock before it and a branch behind it change nothing"
        assert told(found) == told(read(more))


def test_results_that_are_errors_are_so_for_one_request() -> None:
    """They are marked apart from the messages, whose blocks are remembered."""

    def came(number: int, *failed: str) -> int:
        messages = [USER, *step(1, f"line {number}"), *run(40)[1:]]
        return kept.read(Blocks(messages), failed).turns[1].inputs.digest

    kept = SessionMemory()
    assert came(1) != came(2)
    kept = SessionMemory()
    assert came(1, "c1") == came(2, "c1")


def test_memory_is_bounded() -> None:
    sessions = Sessions(9)
    for session in range(19):
        sessions.of(str(session))
    assert len(sessions) <= 9
    seen = SeenTurns()
    for place in range(3 * MAX_SEEN):
        seen.new(place, Inputs(place))
    assert len(seen._inputs) == MAX_SEEN
    assert seen.at(0, Inputs(7)).digest == 7, "the oldest are forgotten"


def many_turns(first: str, turns: int) -> list[Json]:
    said = [(assistant(call("f", {"n": n})), tool(str(n))) for n in range(turns)]
    return [{**USER, "content": first}, *[message for pair in said for message in pair]]


def all_bytes(sessions: Sessions) -> int:
    return sum(session.bytes for session in sessions.values())


def test_memory_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_BYTES", 400_000)
    sessions = Sessions(100)

    def read_in(name: str, blocks: Blocks) -> History:
        kept = sessions.of(name)
        before = kept.bytes
        whole = kept.read(blocks)
        sessions.weigh(kept.bytes - before)
        return whole

    kept = digest("key-a", "kept")
    read_in(kept, Blocks(run(20)))
    for session in range(3):
        for number in range(6):
            name = digest("key-b", str(session))
            read_in(name, Blocks(many_turns(f"{session} {number}", 100)))
            assert all_bytes(sessions) <= 400_000
    weighed = {name: one.bytes for name, one in sessions.items()}
    assert weighed[kept] > min(weighed.values()), "the heaviest key pays"
    assert len(sessions) == 4, "and with its transcripts alone"
    long = Blocks(many_turns("long", 2_000))
    assert len(read_in(kept, long).turns) == 2_000, "read, and not remembered"
    assert all_bytes(sessions) <= 400_000


def test_the_bytes_are_about_those_that_memory_takes() -> None:
    """Also where readings share turns, or are one long text or list of messages."""
    transcripts = [many_turns(str(number), 1_000) for number in range(5)]
    grown = many_turns("grown", 2_000)
    transcripts += [grown[:length] for length in range(16, 1_000, 16)]
    transcripts += [
        [{**USER, "content": f"{number}{'x' * 10_000_000}"}] * 16 for number in range(2)
    ]
    transcripts += [[{**USER, "content": f"{number}"}] * 5_000 for number in range(2)]
    gc.collect()
    tracemalloc.start()
    try:
        kept = SessionMemory()
        for transcript in transcripts:
            kept.read(Blocks(transcript))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken / 2 < kept.bytes < taken * 2


@pytest.mark.parametrize("own", [1, 3])
def test_a_key_pushes_out_none_of_anothers_sessions(own: int) -> None:
    kept = Sessions(100)
    theirs = [digest("key-a", str(name)) for name in range(own)]
    for name in theirs:
        kept.of(name)
    for name in range(1_000):
        kept.of(digest("key-b", str(name)))
        assert len(kept) <= 100
    assert [name for name in kept if name in theirs] == theirs
    assert digest("key-b", "999") in kept


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
    """But for what was shown when it was new."""

    def done(whole: History) -> list[Any]:
        made = [(turn.action, turn.calls, turn.place) for turn in whole.turns]
        return [made, whole.pending.digest, whole.place]

    reader = SessionMemory()
    for messages in transcripts:
        assert done(reader.read(Blocks(messages))) == done(read(messages))
        longer = [*messages, *transcripts[0]]
        assert done(reader.read(Blocks(longer))) == done(read(longer))


def test_the_beginning_of_a_task_is_kept_up() -> None:
    """Turn by turn, with branches and new tasks: the same as a reader that sees all at once."""
    again = {"role": "user", "content": "And now the other one."}
    whole = [USER, *step(1), *step(2), *step(1), assistant(text="Done."), again]
    whole += [*step(3), *step(1), *step(1)]
    reader = SessionMemory()
    for end in (3, 5, 7, 5, 8, 9, 11, 15, 13, 9, 15):
        kept, counted = reader.read(Blocks(whole[:end])), read(whole[:end])
        assert kept.task_start == counted.task_start, end


# What a client clears


def cleared(messages: list[Json], keep: int) -> list[Json]:
    """As clients do that edit their context: old results are gone."""
    old = [at for at, one in enumerate(messages) if one["role"] == "tool"][:-keep]
    return [
        {**one, "content": "(cleared)"} if at in old else one for at, one in enumerate(messages)
    ]


def test_what_a_client_has_cleared_is_still_known() -> None:
    reader = SessionMemory()
    whole = [USER, *[one for number in range(9) for one in step(number, f"found {number}")]]
    for end in range(3, len(whole) + 1, 2):
        history = reader.read(Blocks(cleared(whole[:end], keep=2)))
        assert told(history) == told(read(whole[:end])), end
        assert [turn.place for turn in history.turns] == [
            turn.place for turn in read(whole[:end]).turns
        ]
