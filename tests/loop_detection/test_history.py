"""Histories: turns as transcripts tell them, and what is remembered of them."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine.session_id import digest
from mlx_stack_proxy.loop_detection import call_keys, memory, turns
from mlx_stack_proxy.loop_detection.history import MAX_SEEN, History, SeenTurns
from mlx_stack_proxy.loop_detection.memory import SessionMemory, Sessions
from mlx_stack_proxy.loop_detection.turns import Inputs
from mlx_stack_proxy.wire.blocks import BLOCK, Blocks
from tests.engine.exchanges import ODD

Json = dict[str, Any]
USER: Json = {"role": "user", "content": "Find it."}
SYSTEM: Json = {"role": "system", "content": "It is 12:00."}


def call(name: str, arguments: Any, id: str = "c1") -> Json:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id, "type": "function", "function": {"name": name, "arguments": text}}


def assistant(*calls: Json, text: str | None = None) -> Json:
    return {"role": "assistant", "content": text, **({"tool_calls": list(calls)} if calls else {})}


def tool(content: Any, id: str = "c1") -> Json:
    return {"role": "tool", "tool_call_id": id, "content": content}


def step(number: int, result: str = "ok") -> list[Json]:
    id = f"c{number}"
    return [assistant(call("search", {"query": str(number)}, id)), tool(result, id)]


def run(count: int) -> list[Json]:
    return [USER, *(message for number in range(count) for message in step(number))]


def read(messages: list[Json], memory: SessionMemory | None = None) -> History:
    return (memory or SessionMemory()).read(Blocks(messages))


def told(whole: History) -> list[Any]:
    """All that a history says, without the names of its places."""
    turns = [(t.inputs, t.action, t.calls) for t in whole.turns]
    return [turns, whole.pending]


def came(whole: History, position: int) -> Inputs:
    """What came after a turn."""
    return [*[turn.inputs for turn in whole.turns], whole.pending][position + 1]


# What a turn is


def test_a_turn_is_what_came_in_and_what_was_done() -> None:
    whole = read([SYSTEM, USER, *step(1, "one"), assistant(text="Found it.")])
    first, second = whole.turns
    assert [c.name for c in first.calls] == ["search"]
    assert not first.inputs.results
    assert second.inputs.results[0] is not None
    assert second.action == read([USER, assistant(text=" Found  it. ")]).turns[0].action
    assert came(whole, 0).results == second.inputs.results
    assert came(whole, 1).results == ()


def inputs_of(*messages: Json) -> int:
    return read([USER, assistant(call("f", {})), *messages]).pending.digest


@pytest.mark.parametrize(
    "same",
    [
        [tool("a  b\n")],
        [tool([{"type": "text", "text": "a b"}])],
        [tool("a b", id="")],
        [{"role": "function", "name": "f", "content": "a b"}],
    ],
)
def test_results_are_the_same_by_what_they_say(same: list[Json]) -> None:
    assert inputs_of(*same) == inputs_of(tool("a b"))


@pytest.mark.parametrize(
    "other",
    [
        [tool("a c")],
        [tool(None)],
        [],
        [tool([{"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {"url": "u"}}])],
    ],
)
def test_and_not_otherwise(other: list[Json]) -> None:
    assert inputs_of(*other) != inputs_of(tool("a b"))


def test_the_order_of_calls_and_of_their_results_does_not_matter() -> None:
    one, two = call("f", {"x": 1}, "a"), call("g", {"y": [2]}, "b")
    first = read([USER, assistant(one, two), tool("1", "a"), tool("2", "b")])
    second = read([USER, assistant(two, one), tool("2", "b"), tool("1", "a")])
    swapped = read([USER, assistant(two, one), tool("1", "b"), tool("2", "a")])
    assert told(first) == told(second)
    assert told(first) != told(swapped)


@pytest.mark.parametrize("arguments", ['{"a":1,"b":2}', '{ "b": 2,\n "a": 1 }', {"b": 2, "a": 1}])
def test_arguments_are_compared_as_json(arguments: Any) -> None:
    made = call("f", "")
    made["function"]["arguments"] = arguments
    assert told(read([USER, assistant(made)])) == told(
        read([USER, assistant(call("f", {"a": 1, "b": 2}))])
    )


def test_a_legacy_function_call_is_a_call() -> None:
    legacy = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    (turn,) = read([USER, legacy]).turns
    assert [one.name for one in turn.calls] == ["f"]


def test_where_a_task_starts() -> None:
    again = {"role": "user", "content": "Now the other one."}
    whole = read([USER, *step(1), assistant(text="Done."), again, *step(2), USER, *step(3)])
    assert [turn.inputs.starts_task for turn in whole.turns] == [True, False, True, False]
    assert whole.task_start == 2
    assert whole.turns[3].inputs.interjected
    assert read([USER, *step(1), assistant(text="Done."), again]).task_start == 2


def test_what_a_user_says_to_an_agent_without_calls_is_what_it_is_shown() -> None:
    """So it is with agents that write their commands into their texts."""
    said = [USER, assistant(text="```\nls\n```"), {"role": "user", "content": "a b"}]
    whole = read([*said, assistant(text="```\ncat a\n```"), {"role": "user", "content": "x"}])
    assert whole.task_start == 0
    assert came(whole, 0).digest == read(said).pending.digest


@given(
    st.lists(st.dictionaries(st.sampled_from(["content", "tool_calls", "name"]), ODD), max_size=4)
)
def test_odd_messages_do_no_harm(parts: list[Json]) -> None:
    roles = ("assistant", "tool", "user", "odd")
    read([{"role": roles[at % 4], **part} for at, part in enumerate(parts)])


@given(st.lists(st.sampled_from("cattu"), max_size=8), st.sampled_from(["", "c"]))
def test_a_reply_closes_a_history_as_if_it_had_been_read(kinds: list[str], last: str) -> None:
    kind = {
        "c": [assistant(call("search", {"query": "1"})), tool("ok")],
        "a": [assistant(text="So.")],
        "t": [assistant(call("read", {"path": "2"}, "c2")), tool("fine", "c2")],
        "u": [USER],
    }
    before = read([USER, *(message for one in kinds for message in kind[one])])
    made = [call_keys.read("search", '{"query": "1"}')] if last else []
    closed = before.with_reply("So.", made)
    messages = [USER, *(message for one in kinds for message in kind[one])]
    reply = assistant(*[call("search", {"query": "1"})] if last else [], text="So.")
    anew = read([*messages, reply])
    assert told(closed)[0] == told(anew)[0]
    assert (closed.task_start, closed.repeats) == (anew.task_start, anew.repeats)


# What is remembered: what blocks of messages say, and what sessions were shown


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
