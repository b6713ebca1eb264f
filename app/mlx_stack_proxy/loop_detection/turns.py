"""Reads messages as steps: an assistant message, and the messages that follow it.

:func:`steps_in` needs nothing but the messages, so each block of a transcript is read only once.
:func:`joined` puts the blocks together: the last step of a block goes on in the next block.
"""

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

    def turn(self, inputs: Inputs, before: Turn | None) -> Turn:
        """Return this message's turn. The first turn's place depends on what the user asked."""
        place = hash((before.place if before else inputs.digest, self.name))
        return Turn(inputs, self.action, self.calls, place, before.place if before else 0)


class Given(NamedTuple):
    """A message that is not the assistant's."""

    call_id: str | None  # None: no tool sent it
    result: Result


class Step(NamedTuple):
    """An assistant message, and those that follow it. The first step has no assistant message."""

    output: Output | None
    given: tuple[Given, ...]
    inputs: Inputs  # the messages in ``given``, taken together


def output(text: str, made: Iterable[tuple[Call, str]]) -> Output:
    """Reduce an assistant message to what is compared. ``made``: its calls, each with its id."""
    said = digest(action_in(text))
    pairs = sorted(made, key=lambda pair: pair[0])
    action = digest(*[call.key.to_bytes(8, "little") for call, _ in pairs]) if pairs else said
    calls = tuple([call for call, _ in pairs[:MAX_CALLS]])
    return Output(action, calls, tuple([id for _, id in pairs]), hash((said, action, calls)))


def is_given(message: Mapping[str, Any]) -> bool:
    """Whether a message is input for the assistant: neither its own nor the system's."""
    return message.get("role") not in ("assistant", "system", "developer")


def steps_in(messages: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Split messages into steps."""
    steps: list[Step] = []
    last: Output | None = None
    given: list[Given] = []
    for message in messages:
        if message.get("role") == "assistant":
            steps.append(_step(last, given))
            last, given = _output(message), []
        elif is_given(message):
            given.append(_given(message))
    return *steps, _step(last, given)


def joined(parts: Iterable[Sequence[Step]], failed: Collection[str]) -> list[Step]:
    """Join the steps of a transcript's blocks. ``failed``: ids of calls that ended in errors."""
    steps = [_step(None, ())]
    for part in parts:
        last = steps.pop()
        steps.append(_step(last.output, (*last.given, *part[0].given)))
        steps += part[1:]
    if failed:
        steps = [_with_errors(step, failed) for step in steps]
    return steps


def _with_errors(step: Step, failed: Collection[str]) -> Step:
    """Compare errors in a step without numbers: a new line number or id in an error is no news."""
    if not any(one.call_id in failed for one in step.given):
        return step
    given = [
        one._replace(result=one.result._replace(digest=one.result.shape))
        if one.call_id in failed
        else one
        for one in step.given
    ]
    return _step(step.output, given)


def _step(output: Output | None, given: Sequence[Given]) -> Step:
    return Step(output, tuple(given), _inputs(output, given))


def _inputs(output: Output | None, given: Sequence[Given]) -> Inputs:
    results: list[Result | None] = [None] * (len(output.calls) if output is not None else 0)
    others: list[Result] = []
    places = {id: at for at, id in enumerate(output.ids) if id} if output is not None else {}
    for position, (call_id, result) in enumerate(given):
        # Without ids (older forms, careless clients) answers come in the order of the calls.
        at = position if call_id == "" else places.get(call_id or "", len(results))
        if at < len(results) and results[at] is None:
            results[at] = result
        else:
            others.append(result)
    came = results if any(results) else others
    return Inputs(
        hash(tuple([one and one.digest for one in came])),
        hash(tuple([one and one.shape for one in came])),
        tuple(results),
        user=any(one.call_id is None for one in given),
    )


def _output(message: Mapping[str, Any]) -> Output:
    text = text_of(message.get("content"))
    return output(text, [(_read(call), _id(call)) for call in _calls(message) or told_calls(text)])


def _given(message: Mapping[str, Any]) -> Given:
    id = message.get("tool_call_id")
    is_tool = message.get("role") in ("tool", "function")
    call_id = id if isinstance(id, str) else ""
    return Given(call_id if is_tool else None, _result(message.get("content")))


def _result(content: Any) -> Result:
    text = collapse(brought_in(text_of(content)))
    parts: list[bytes] = []
    if isinstance(content, list):
        parts = [dumped(p) for p in content if not (isinstance(p, Mapping) and "text" in p)]
    shape = hash((without_numbers(text), *parts))
    return Result(hash((text, *parts)), shape, len(text))


def _calls(message: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    calls = message.get("tool_calls")
    found = [c for c in calls if isinstance(c, dict)] if isinstance(calls, list) else []
    if not found and isinstance(message.get("function_call"), dict):
        found = [{"function": message["function_call"]}]
    return found


def _read(call: Mapping[str, Any]) -> Call:
    function = call.get("function")
    function = function if isinstance(function, dict) else {}
    name = function.get("name")
    return call_keys.read(name if isinstance(name, str) else "", function.get("arguments"))


def _id(call: Mapping[str, Any]) -> str:
    id = call.get("id")
    return id if isinstance(id, str) else ""
