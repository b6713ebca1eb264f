"""Reduces messages to digests: what an assistant said and did, and what the next messages bring."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ..wire.blocks import dumped
from ..wire.chunks import text_of
from . import call_keys
from .call_keys import Call, digest
from .texts import action_in, brought_in, collapse, told_calls, without_numbers
from .turn import Inputs, Result, Turn

MAX_CALLS: Final = 128  # calls of a message that a turn holds; its action counts them all


class Output(NamedTuple):
    """What an assistant message says and does."""

    action: int  # a digest of the calls, else of the command in the text, else of the text
    calls: tuple[Call, ...]  # sorted
    ids: tuple[str, ...]  # the calls' ids; "" for a call without one
    name: int  # a digest of the whole message, in this process only

    def turn(self, inputs: Inputs, previous: Turn | None) -> Turn:
        """Return this message's turn. The first turn's place depends on the user's request."""
        place = hash((previous.place if previous else inputs.digest, self.name))
        return Turn(inputs, self.action, self.calls, place, previous.place if previous else 0)


class Given(NamedTuple):
    """A message that is not the assistant's."""

    call_id: str | None  # None: no tool sent it
    result: Result


def output(text: str, calls_with_ids: Iterable[tuple[Call, str]]) -> Output:
    """Reduce an assistant message to the digests that are compared.

    ``calls_with_ids``: the message's calls, each with its id.
    """
    command = action_in(text)
    pairs = sorted(calls_with_ids, key=lambda pair: pair[0])
    keys = [call.key.to_bytes(8, "little") for call, _ in pairs]
    action = digest(*keys) if pairs else digest(command)
    calls = tuple([call for call, _ in pairs[:MAX_CALLS]])
    return Output(action, calls, tuple([id for _, id in pairs]), hash((command, action, calls)))


def is_given(message: Mapping[str, Any]) -> bool:
    """Whether a message is input for the assistant: neither its own nor the system's."""
    return message.get("role") not in ("assistant", "system", "developer")


def output_of(message: Mapping[str, Any]) -> Output:
    """Read an assistant message."""
    text = text_of(message.get("content"))
    return output(text, [(_read(call), _id(call)) for call in _calls(message) or told_calls(text)])


def given_by(message: Mapping[str, Any], failed: Collection[str]) -> Given:
    """Read a message that is not the assistant's. ``failed``: ids of calls that ended in errors.

    Errors are compared without numbers: a new line number or id in an error is no news.
    """
    result = _result(message.get("content"))
    if message.get("role") not in ("tool", "function"):
        return Given(None, result)
    id = message.get("tool_call_id")
    call_id = id if isinstance(id, str) else ""
    return Given(call_id, result._replace(digest=result.shape) if call_id in failed else result)


def taken_together(
    output: Output | None, messages: Sequence[Given]
) -> tuple[int, int, tuple[Result | None, ...]]:
    """Take together the messages that followed an assistant message.

    Return ``digest``, ``shape`` and ``results`` of their :class:`Inputs`.
    """
    results: list[Result | None] = [None] * (len(output.calls) if output is not None else 0)
    others: list[Result] = []
    indexes = {id: index for index, id in enumerate(output.ids) if id} if output is not None else {}
    for position, (call_id, result) in enumerate(messages):
        # Without ids (older forms, careless clients) answers come in the order of the calls.
        index = position if call_id == "" else indexes.get(call_id or "", len(results))
        if index < len(results) and results[index] is None:
            results[index] = result
        else:
            others.append(result)
    compared = results if any(results) else others
    return (
        hash(tuple([result and result.digest for result in compared])),
        hash(tuple([result and result.shape for result in compared])),
        tuple(results),
    )


def _result(content: Any) -> Result:
    text = collapse(brought_in(text_of(content)))
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


def _read(call: Mapping[str, Any]) -> Call:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name = function.get("name")
    return call_keys.read(name if isinstance(name, str) else "", function.get("arguments"))


def _id(call: Mapping[str, Any]) -> str:
    id = call.get("id")
    return id if isinstance(id, str) else ""
