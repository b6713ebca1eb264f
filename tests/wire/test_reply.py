"""Pieces of tool calls, put together whatever a server's spelling of their places."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.wire import call as call_module
from mlx_stack_proxy.wire.call import Call, CallPiece, JsonEnd
from mlx_stack_proxy.wire.delta import ChoiceDelta, Delta, DeltaContent
from mlx_stack_proxy.wire.growing import GrowingText
from mlx_stack_proxy.wire.reply import MAX_CALLS, ChoiceReply, Reply
from tests.support.deltas import call_delta, finish_delta, text_delta
from tests.support.deltas import call_piece as piece


def calls(*pieces: CallPiece) -> list[Call]:
    choice = ChoiceReply()
    for one in pieces:
        choice.add_call(one)
    return choice.tool_calls


def said(*pieces: CallPiece) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in calls(*pieces)]


def test_an_entry_without_name_and_id_goes_on_with_the_one_before() -> None:
    pieces = piece("", "f", "a"), piece('{"x":', index=1), piece(" 1}", index=1)
    assert calls(*pieces) == [Call("f", '{"x": 1}', "a", odd=True)]
    assert said(*pieces, piece("", "f", "b", index=2), piece("{}", index=3))[1:] == [
        ("b", "f", "{}")
    ]
    begun = piece('{"x": ', "f", "a"), piece("1}", index=1)
    assert said(*begun) == [("a", "f", '{"x": 1}')]
    # a call whose arguments are complete is whole, and an entry without any may get its name later
    assert len(said(piece("{}", "f", "a"), piece("{}", index=1))) == 2
    assert len(said(piece("", "f", "a"), piece("", index=1), piece("", "f", "b", index=1))) == 2


def test_another_id_and_a_name_begin_another_call() -> None:
    """LiteLLM gives each chunk's first call the index 0 where the server gives none."""
    one, two = piece('{"x": 1}', "f", "a"), piece('{"x": 2}', "f", "b")
    assert calls(one, two) == [
        Call("f", '{"x": 1}', "a"),
        Call("f", '{"x": 2}', "b", odd=True),
    ]
    assert said(piece(name="f", id="a"), piece(name="g", id="b"), piece("{}")) == [
        ("a", "f", ""),
        ("b", "g", "{}"),
    ]


def test_without_ids_whole_arguments_end_a_call() -> None:
    one, two = piece('{"x": 1}', "f"), piece('{"x": 2}', "f")
    assert said(one, two) == [("", "f", '{"x": 1}'), ("", "f", '{"x": 2}')]
    assert said(one, piece('{"x":', "g"), piece("2}")) == [
        ("", "f", '{"x": 1}'),
        ("", "g", '{"x":2}'),
    ]


@pytest.mark.parametrize("arguments", ["{}", '{"x": 1}', ""])
def test_another_name_is_another_call_whatever_it_is_called_with(arguments: str) -> None:
    one, two = piece(arguments, "f"), piece(arguments, "g")
    assert said(one, two) == [("", "f", arguments), ("", "g", arguments)]
    assert said(piece('{"x":', "f"), piece("1}", "g")) == [("", "f", '{"x":1}')]


@pytest.mark.parametrize(
    "pieces",
    [
        (piece('{"x":', "f", "a"), piece("1}", "f", "a")),
        (piece('{"x":', "f"), piece("1}", "f")),
        (piece('{"x":1}', "f", "a"), piece("", "f", "a")),
        (piece('{"x":1}', "f"), piece("", "f")),
        (piece('{"x":1', "f", "a"), piece("}", "", "b")),  # a new id for each piece
    ],
)
def test_a_name_or_an_id_again_is_the_same_call_and_odd(pieces: tuple[CallPiece, ...]) -> None:
    assert [(one.name, one.arguments, one.odd) for one in calls(*pieces)] == [
        ("f", '{"x":1}', True)
    ]


@pytest.mark.parametrize("id", ["", "a"])
def test_the_very_same_call_again_is_never_made_twice(id: str) -> None:
    once = piece('{"x": 1}', "f", id)
    (call,) = calls(once, once)
    assert call.arguments == '{"x": 1}{"x": 1}'  # what checks it sees that it is one


def test_a_piece_that_lacks_its_place_makes_the_call_odd() -> None:
    assert [call.odd for call in calls(piece("{}", "f", "a", odd=True))] == [True]
    assert [call.odd for call in calls(piece("{", "f", "a"), piece("}", odd=True))] == [True]


def test_a_call_that_leaves_a_gap_before_it_is_odd() -> None:
    """Clients take the index for its place in a list."""
    assert [call.odd for call in calls(piece("{}", "f", "a", index=1))] == [True]
    one, two = piece("{}", "f", "a"), piece("{}", "g", "b", index=1)
    assert [call.odd for call in calls(one, two)] == [False, False]
    assert [call.odd for call in calls(one, piece("{}", "g", "b", index=2))] == [False, True]


def test_a_reply_is_finished_when_each_choice_is() -> None:
    reply = Reply()
    for index in range(3):
        reply.take(text_delta("x", index))
    states = []
    for index in (1, 0, 0, 2):
        reply.take(finish_delta("stop", index))
        states.append(reply.finished)
    assert states == [False, False, False, True]
    reply.take(text_delta("x", 3))
    assert not reply.finished


def test_a_finish_looks_at_no_other_choice() -> None:
    """With thousands of choices that would be quadratic."""

    class Counted(dict[int, ChoiceReply]):
        looked_through = 0

        def values(self):  # type: ignore[no-untyped-def]
            self.looked_through += 1
            return super().values()

    choices = Counted()
    reply = Reply(choices)
    for index in range(100):
        reply.take(finish_delta("stop", index))
    assert reply.finished
    assert choices.looked_through == 0


@pytest.mark.parametrize("first", ["{}", '{"x": 1}'])
def test_a_name_whose_arguments_follow_is_another_call(first: str) -> None:
    one, two = piece(first, "f"), piece("", "f")
    assert said(one, two, piece('{"x":'), piece("2}")) == [("", "f", first), ("", "f", '{"x":2}')]
    assert said(one, two) == [("", "f", first)]


def test_pieces_of_arguments_are_joined_when_they_are_asked_for() -> None:
    """To join them as they come would copy a long call with each piece."""
    choice = ChoiceReply()
    choice.add_call(piece('{"a": "', "f", "a"))
    for _ in range(1_000):
        choice.add_call(piece("x"))
    (call,) = choice.tool_calls
    assert len(call.written._pieces) == 1_000
    assert call.arguments == '{"a": "' + "x" * 1_000
    assert not call.written._pieces


@pytest.mark.parametrize("text", ['{"a": "}', "{}", "{", "[]", "}"])
def test_whatever_the_pieces_are_the_arguments_are_parsed_once(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that names the tool in each piece has the proxy ask whether the call is complete."""
    parsed: list[str] = []

    monkeypatch.setattr(call_module, "object_in", parsed.append)
    choice = ChoiceReply()
    choice.add_call(piece(text, "f"))
    for _ in range(100):
        choice.add_call(piece(text, "f"))
        choice.add_call(piece("", "f"))
    assert len(parsed) <= 1


@pytest.mark.parametrize("split", [1, 2, 3, 5, 100])
@pytest.mark.parametrize("value", ['"}"', '"\\\\"', '"\\""', '"a\\\\\\"}"', "[{}]", '{"b": "]"}'])
def test_the_end_of_an_object_is_found_however_it_is_cut(value: str, split: int) -> None:
    text = f' {{"a": {value}}} '
    pieces = [text[at : at + split] for at in range(0, len(text), split)]
    end = JsonEnd()
    closed_at = text.rindex("}") // split
    for at, one in enumerate(pieces):
        end.add(one)
        assert (end.reached, end.over) == (at >= closed_at, False)
    end.add("x")
    assert (end.reached, end.over) == (False, True)


def test_a_reply_notes_that_a_choice_has_too_many_calls() -> None:
    reply = Reply()
    for index in range(MAX_CALLS):
        reply.take(call_delta(piece("{}", "f", f"c{index}", index)))
    assert not reply.overfull
    reply.take(call_delta(piece("", "f", "c", MAX_CALLS)))
    assert reply.overfull


def test_a_text_is_joined_when_it_is_asked_for_and_goes_on() -> None:
    text = GrowingText("a")
    for letter in "bcd":
        text.add(letter)
    assert (text.size, text.count, text.text()) == (4, 3, "abcd")
    text.add("é")
    assert (text.size, text.count, text.text()) == (5, 4, "abcdé")


def test_a_refusal_is_joined_when_it_is_asked_for_as_texts_are() -> None:
    reply = Reply()
    for piece_of_it in ("I ", "ca", "né"):
        reply.take(Delta(b"", [ChoiceDelta(0, DeltaContent(refusal=piece_of_it))]))
    choice = reply.choices[0]
    assert isinstance(choice.refused, GrowingText) and choice.refused.count == 3
    assert (choice.refusal, reply.written()) == ("I cané", 7)
