"""Reduces messages to digests: what an assistant said and did, and what the next messages bring."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..wire.blocks import dumped
from ..wire.delta import text_of
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
from .turn import Inputs, Result, Turn

MAX_CALLS: Final = 128  # calls of a message that a turn holds; its action counts them all
MAX_ARGUMENTS: Final = 4_096  # characters; longer arguments are not looked for in their result


class Output(NamedTuple):
    """What an assistant message says and does."""

    action: int  # a digest of the calls, else of the command in the text, else of the text
    calls: tuple[CallKey, ...]  # sorted
    ids: tuple[str, ...]  # the calls' ids; "" for a call without one
    name: int  # a digest of the whole message, in this process only
    # The arguments of each call, or the command in the text; "" if they are too long.
    arguments: tuple[str, ...] = ()
    indexes: Mapping[str, int] = {}  # of each call by its id

    def turn(self, inputs: Inputs, previous: Turn | None) -> Turn:
        """Return this message's turn. The first turn's place depends on the user's request."""
        place = hash((previous.place if previous else inputs.digest, self.name))
        before = previous.place if previous else 0
        return Turn(inputs, self.action, self.calls, place, before, acts=bool(self.arguments))


class InputMessage(NamedTuple):
    """A message that is not the assistant's."""

    call_id: str | None  # None: no tool sent it
    result: Result
    news: int = 0  # a digest of the result without the call's own arguments


def output(text: str, calls_made: Iterable[tuple[CallKey, str, str]]) -> Output:
    """Reduce an assistant message to the digests that are compared.

    ``calls_made``: the message's calls, each with its id and its arguments.
    """
    command, is_command = action_in(text)
    made = sorted(calls_made, key=lambda one: one[0])
    keys = [call.key.to_bytes(8, "little") for call, _, _ in made]
    action = digest(*keys) if made else digest(command)
    calls = tuple([call for call, _, _ in made[:MAX_CALLS]])
    ids = tuple([id for _, id, _ in made])
    written = [arguments for _, _, arguments in made] or [command] * is_command
    arguments = tuple([one if len(one) <= MAX_ARGUMENTS else "" for one in written[:MAX_CALLS]])
    indexes = {id: index for index, id in enumerate(ids) if id}
    return Output(action, calls, ids, hash((command, action, calls)), arguments, indexes)


def is_input(message: Mapping[str, Any]) -> bool:
    """Whether a message is input for the assistant: neither its own nor the system's."""
    return message.get("role") not in ("assistant", "system", "developer")


def output_of(message: Mapping[str, Any]) -> Output:
    """Read an assistant message."""
    text = text_of(message.get("content"))
    return output(text, [_made(call) for call in _calls(message) or transcript_calls(text)])


def input_message_of(
    message: Mapping[str, Any], failed: Collection[str], output: Output | None, position: int
) -> InputMessage:
    """Read a message that is not the assistant's. ``failed``: ids of calls that ended in errors.

    Errors are compared without numbers: a new line number or id in an error is no news.
    ``output``: the last assistant message; ``position``: the number of messages since.
    """
    content = message.get("content")
    text = collapse(brought_in(text_of(content)))
    result = _result(text, content)
    is_tool = message.get("role") in ("tool", "function")
    id = message.get("tool_call_id") if is_tool else None
    call_id = id if isinstance(id, str) else "" if is_tool else None
    if call_id and call_id in failed:
        result = result._replace(digest=result.shape)
    news = result.digest
    if output is not None and (index := _index(output, call_id, position)) < len(output.arguments):
        values = call_keys.arguments_in(output.arguments[index])
        if (rest := without_values(text, values)) != text:
            news = hash(without_numbers(rest) if result.digest == result.shape else rest)
    return InputMessage(call_id, result, news)


def _index(output: Output, call_id: str | None, position: int) -> int:
    """Return which call a message answers; past the end if none."""
    if call_id is None and not output.calls:
        return 0  # what a command in the text has brought
    if call_id == "":  # without ids (older forms, careless clients) in the order of the calls
        return position
    return output.indexes.get(call_id or "", len(output.ids))


def inputs_of(
    output: Output | None, messages: Sequence[InputMessage], before: Collection[tuple[str, int]]
) -> Inputs:
    """Take together the messages that followed an assistant message.

    ``before``: what calls have brought earlier in this task.
    """
    results: list[Result | None] = [None] * (len(output.calls) if output is not None else 0)
    news = [0] * len(results)
    others: list[InputMessage] = []
    for position, message in enumerate(messages):
        index = _index(output, message.call_id, position) if output is not None else 0
        if index < len(results) and results[index] is None:
            results[index], news[index] = message.result, message.news
        else:
            others.append(message)
    compared = results if any(results) else [message.result for message in others]
    brought: list[tuple[str, int]] = []
    if output is not None and output.calls:
        rows = zip(output.calls, results, news, strict=True)
        brought = [(call.name, digest) for call, result, digest in rows if result is not None]
    elif output is not None and output.arguments and others:
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


def _old(
    brought: Sequence[tuple[str, int]], before: Collection[tuple[str, int]]
) -> tuple[int, bool]:
    """Return how many of the last results had come before, and whether another was new."""
    for count, result in enumerate(reversed(brought)):
        if result not in before and result not in brought[: len(brought) - 1 - count]:
            return count, True
    return len(brought), False


def _result(text: str, content: Any) -> Result:
    parts: list[bytes] = []
    if isinstance(content, list):
        parts = [
            dumped(part) for part in content if not (isinstance(part, Mapping) and "text" in part)
        ]
    shape = hash((without_numbers(text), *parts))
    return Result(hash((text, *parts)), shape, len(text))


def _calls(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    value = message.get("tool_calls")
    calls = [call for call in value if isinstance(call, dict)] if isinstance(value, list) else []
    if not calls and isinstance(message.get("function_call"), dict):
        calls = [{"function": message["function_call"]}]
    return calls


def _made(call: Mapping[str, Any]) -> tuple[CallKey, str, str]:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name, arguments, id = function.get("name"), function.get("arguments"), call.get("id")
    return (
        call_keys.read(name if isinstance(name, str) else "", arguments),
        id if isinstance(id, str) else "",
        arguments if isinstance(arguments, str) else "",
    )
