"""Parts of a reply: a mended choice, a choice as a message, calls without an incomplete one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import orjson

from ..engine.request import MAX_NAME
from ..engine.verdicts import CallFailure
from ..wire.call import Call, call_fields
from ..wire.reply import ChoiceReply, Reply


@dataclass(slots=True)
class Mended:
    """The new contents of one choice, applied only if no choice of the reply failed."""

    text: str
    calls: list[Call]
    finish_reason: str | None
    repairs: list[str] = field(default_factory=list)  # names of the repair rules applied
    rescued: list[str] = field(default_factory=list)  # formats of the calls written as text
    failures: list[CallFailure] = field(default_factory=list)
    unchecked: int = 0  # calls that would take too long to check
    # If nothing failed: a possible call, or a bad one, about which the model had better be asked.
    doubt: CallFailure | None = None

    @property
    def is_cut(self) -> bool:
        return self.finish_reason in ("length", "max_tokens")

    @property
    def speaks_of_calls(self) -> bool:
        return self.finish_reason in ("tool_calls", "function_call")


def drop_half_call(calls: list[Call]) -> None:
    """Drop the last call of a reply cut by its length if that call's arguments are incomplete.

    An incomplete call is never repaired: closing its arguments by force would write half a file.
    """
    try:
        orjson.loads(calls[-1].arguments)
    except orjson.JSONDecodeError:
        calls.pop()


def calls_as_text(mended: Mended) -> None:
    """Turn a reply to a request without tools into text: its text, or its calls as JSON.

    A server that knows the model's format makes calls of such a text, whatever was offered.
    """
    if not mended.calls and not mended.speaks_of_calls:
        return
    if not mended.text.strip():
        mended.text = "\n".join(map(_as_json, mended.calls))
    if mended.calls:
        mended.repairs.append("call_without_tools")
    mended.calls = []
    if not mended.is_cut:
        mended.finish_reason = "stop"


def _as_json(call: Call) -> str:
    try:
        arguments = orjson.loads(call.arguments or "{}")
    except orjson.JSONDecodeError:
        arguments = call.arguments
    return orjson.dumps({"name": call.name, "arguments": arguments}).decode()


def bad_calls(failures: Iterable[CallFailure]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each wrong call once, however much is wrong with it: the first kind, and details."""
    calls: dict[tuple[int, int, str], list[CallFailure]] = {}
    for failure in failures:
        calls.setdefault((failure.choice, failure.position, failure.tool), []).append(failure)
    for of_one in calls.values():
        fields = list(dict.fromkeys(failure.field for failure in of_one if failure.field))
        detail = {"tool": of_one[0].tool[:MAX_NAME], "fields": fields}
        yield of_one[0].kind, {name: value for name, value in detail.items() if value}


def as_message(reply: Reply, index: int) -> dict[str, Any]:
    """Return one choice as an assistant message, for the error's ``last_response``."""
    choice = reply.choices.get(index) or next(iter(reply.choices.values()), ChoiceReply())
    return {
        "role": "assistant",
        "content": choice.text or None,
        "tool_calls": [
            call_fields(call.id, call.name, call.arguments) for call in choice.tool_calls
        ],
    }
