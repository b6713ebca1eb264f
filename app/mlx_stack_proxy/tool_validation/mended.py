"""What mending makes of one choice of a reply."""

from __future__ import annotations

from dataclasses import dataclass, field

import orjson

from ..engine.verdicts import CallFailure
from ..wire.reply import ToolCall


@dataclass(slots=True)
class Mended:
    """The new contents of one choice; they are applied only if no choice of the reply failed."""

    text: str
    calls: list[ToolCall]
    finish_reason: str | None
    repairs: list[str] = field(default_factory=list)  # names of the repair rules applied
    rescued: list[str] = field(default_factory=list)  # formats of the calls written as text
    failures: list[CallFailure] = field(default_factory=list)

    @property
    def is_cut(self) -> bool:
        return self.finish_reason in ("length", "max_tokens")

    @property
    def speaks_of_calls(self) -> bool:
        return self.finish_reason in ("tool_calls", "function_call")

    def drop_half_call(self) -> None:
        """Drop the last call of a reply cut by its length if that call's arguments are incomplete.

        Half a call is never repaired: if its arguments were closed by force, half a file would be
        written.
        """
        try:
            orjson.loads(self.calls[-1].arguments)
        except orjson.JSONDecodeError:
            self.calls.pop()
