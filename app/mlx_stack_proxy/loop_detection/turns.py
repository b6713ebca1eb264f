"""Turns, and how messages are reduced to them.

A turn is the messages since the previous assistant message, and the assistant's answer to them.
Turns are small: they hold 64-bit digests, and no text but tools' names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct

from ..wire.blocks import dumped
from ..wire.delta import string_of, text_of
from . import call_keys
from .call_keys import CallKey, digest
from .texts import (
    action_in,
    brought_in,
    collapse,
    transcript_calls,
    without_numbers,
    without_values,
)

MAX_CALLS: Final = 128  # calls of a message that a turn holds; its action covers all of them
MAX_ARGUMENTS: Final = 4_096  # characters; longer arguments are not searched for in their result
Values = Sequence[str]  # argument values of a call, which its result may quote
ResultKey = tuple[str, int]
_BYTES: Final = 300  # the approximate size of a turn, or of its inputs, without parts
_PART_BYTES: Final = 150  # the approximate size of a call, a result, or a result's news


class Result(NamedTuple):
    """A tool's result, or another message that is not the assistant's."""

    digest: int
    shape: int  # the message's digest without numbers
    size: int = 0  # characters, with collapsed whitespace


class Inputs(Struct, frozen=True):
    """The messages since the last assistant message."""

    digest: int = 0  # of the results of its calls; without results, of all messages
    shape: int = 0  # the same digest, without numbers
    results: tuple[Result | None, ...] = ()  # in the order of its calls; None: missing
    user: bool = False  # a user message is among them
    known: bool = True  # False: the assistant message is a new reply, which nothing can follow yet
    starts_task: bool = False  # a user message begins a task: `history.py` says when
    interjected: bool = False  # the user speaks next to these results, unlike the previous ones
    # The results, each as the tool's name ("": a command in a text) and a digest of the result
    # without the call's own arguments.
    brought: tuple[ResultKey, ...] = ()
    old: int = 0  # how many trailing ones had occurred before in this task
    fresh: bool = True  # one of them is new or missing

    @property
    def bytes(self) -> int:
        """The approximate size in memory."""
        return _BYTES + _PART_BYTES * (len(self.results) + len(self.brought))


NOTHING_YET: Final = Inputs(known=False)


class Turn(Struct, frozen=True):
    """One turn of a session."""

    inputs: Inputs
    action: int  # a digest of the calls, else of the command in the text, else of the text
    calls: tuple[CallKey, ...] = ()  # sorted
    # A digest of everything the assistant has said up to and including this turn, valid in this
    # process only. It stays the same if the client removes results.
    place: int = 0
    before: int = 0  # the place of the previous turn
    acts: bool = False  # it makes calls, or its text has a command

    @property
    def pattern(self) -> str:
        return f"{self.action:016x}"

    @property
    def bytes(self) -> int:
        """The approximate size in memory, including the inputs."""
        names = sum([len(call.name) for call in self.calls])
        return _BYTES + self.inputs.bytes + _PART_BYTES * len(self.calls) + names


class Output(NamedTuple):
    """An assistant message's content and actions."""

    action: int  # a digest of the calls, else of the command in the text, else of the text
    calls: tuple[CallKey, ...]  # sorted
    ids: tuple[str, ...]  # the calls' ids; "" for a call without one
    name: int  # a digest of the whole message, valid in this process only
    values: tuple[Values, ...] = ()  # of each call, or of the command in the text
    indexes: Mapping[str, int] = {}  # by id, each call's position

    def turn(self, inputs: Inputs, previous: Turn | None) -> Turn:
        """Return this message's turn. The first turn's place depends on the user's request."""
        before = previous.place if previous is not None else 0
        place = hash((before if previous is not None else inputs.digest, self.name))
        return Turn(inputs, self.action, self.calls, place, before, bool(self.values))

    def index_of(self, call_id: str | None, position: int) -> int:
        """Return the position of the call that a message answers; past the end if none."""
        if call_id is None and not self.calls:
            return 0  # the result of a command in the text
        if call_id == "":  # without ids (older forms, careless clients): in the calls' order
            return position
        return self.indexes.get(call_id or "", len(self.ids))


class InputMessage(NamedTuple):
    """A message that is not the assistant's."""

    call_id: str | None  # None: no tool sent it
    result: Result
    news: int = 0  # a digest of the result without the call's own arguments


def output(text: str, calls_made: Iterable[tuple[CallKey, str, Values]]) -> Output:
    """Reduce an assistant message to the digests that are compared.

    ``calls_made``: the message's calls, each with its id and the values of its arguments.
    """
    command, is_command = action_in(text) if text else ("", False)
    made = sorted(calls_made, key=lambda one: one[0])
    keys = [call.key.to_bytes(8, "little") for call, _, _ in made]
    action = digest(*keys) if made else digest(command)
    calls = tuple([call for call, _, _ in made[:MAX_CALLS]])
    ids = tuple([id for _, id, _ in made])
    values = tuple([values for _, _, values in made[:MAX_CALLS]])
    if is_command and not made:
        values = (_values(command, call_keys.parsed(command)),)
    indexes = {id: index for index, id in enumerate(ids) if id}
    return Output(action, calls, ids, hash((command, action, calls)), values, indexes)


def output_of(message: Mapping[str, Any], *, salient: bool = False) -> Output:
    """Read an assistant message. ``salient``: see :func:`call_keys.key_of`."""
    text = text_of(message.get("content"))
    made = []
    for call in _calls(message) or transcript_calls(text):
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        arguments = function.get("arguments")
        value = call_keys.parsed(arguments)
        key = call_keys.key_of(string_of(function.get("name")), value, salient=salient)
        made.append((key, string_of(call.get("id")), _values(arguments, value)))
    return output(text, made)


def acts(message: Mapping[str, Any]) -> bool:
    """Whether an assistant message makes calls, or its text has a command."""
    text = text_of(message.get("content"))
    return bool(_calls(message)) or action_in(text)[1] or bool(transcript_calls(text))


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    value = message.get("tool_calls")
    calls = [call for call in value if isinstance(call, dict)] if isinstance(value, list) else []
    if not calls and isinstance(legacy := message.get("function_call"), dict):
        calls = [{"function": legacy}]
    return calls


def _values(arguments: Any, value: Any) -> Values:
    if isinstance(arguments, str) and len(arguments) <= MAX_ARGUMENTS:
        return call_keys.values_in(value)
    return ()


def is_input(message: Mapping[str, Any]) -> bool:
    """Whether a message is input for the assistant: neither its own nor the system's."""
    return message.get("role") not in ("assistant", "system", "developer")


def input_message_of(
    message: Mapping[str, Any], failed: Collection[str], output: Output | None, position: int
) -> InputMessage:
    """Read a message that is not the assistant's. ``failed``: ids of calls that ended in errors.

    Errors are compared without numbers: a new line number or id in an error is no news.
    ``output``: the last assistant message; ``position``: the number of messages since.
    """
    content = message.get("content")
    text = collapse(brought_in(text_of(content)))
    parts: list[bytes] = []
    if isinstance(content, list):
        others = [part for part in content if not (isinstance(part, Mapping) and "text" in part)]
        parts = [dumped(part) for part in others]
    shape = hash((without_numbers(text), *parts))
    is_tool = message.get("role") in ("tool", "function")
    call_id = string_of(message.get("tool_call_id")) if is_tool else None
    news = whole = shape if call_id and call_id in failed else hash((text, *parts))
    if output is not None and (index := output.index_of(call_id, position)) < len(output.values):
        rest = without_values(text, output.values[index])
        if rest != text:
            news = hash(without_numbers(rest) if whole == shape else rest)
    return InputMessage(call_id, Result(whole, shape, len(text)), news)


def inputs_of(
    output: Output | None, messages: Sequence[InputMessage], before: Collection[ResultKey]
) -> Inputs:
    """Combine the messages that followed an assistant message.

    ``before``: what calls have returned earlier in this task.
    """
    results: list[Result | None] = [None] * (len(output.calls) if output is not None else 0)
    news = [0] * len(results)
    others: list[InputMessage] = []
    for position, message in enumerate(messages):
        index = output.index_of(message.call_id, position) if output is not None else 0
        if index < len(results) and results[index] is None:
            results[index], news[index] = message.result, message.news
        else:
            others.append(message)
    compared = results if any(results) else [message.result for message in others]
    brought: list[ResultKey] = []
    if output is not None and output.calls:
        rows = zip(output.calls, results, news, strict=True)
        brought = [(call.name, digest) for call, result, digest in rows if result is not None]
    elif output is not None and output.values and others:
        brought = [("", hash(tuple([message.news for message in others])))]
    old, fresh = (0, True) if None in results or not brought else _old(brought, before)
    return Inputs(
        hash(tuple([result and result.digest for result in compared])),
        hash(tuple([result and result.shape for result in compared])),
        tuple(results),
        brought=tuple(brought),
        old=old,
        fresh=fresh,
    )


def _old(brought: Sequence[ResultKey], before: Collection[ResultKey]) -> tuple[int, bool]:
    """Return how many trailing results had occurred before, and whether another one was new."""
    for count, result in enumerate(reversed(brought)):
        if result not in before and result not in brought[: len(brought) - 1 - count]:
            return count, True
    return len(brought), False
