"""What a reply is made of, as the stages see it, whatever the wire it came over.

All events of a reply carry ``choice``, the index among ``n`` alternatives. They are values: nobody
changes one. (They aren't declared frozen, since that makes each three times as slow to create, and
there is one for every token.)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TextDelta:
    """A piece of the answer's visible text."""

    choice: int
    text: str


@dataclass(slots=True)
class ReasoningDelta:
    """A piece of the model's thinking, whichever field the server sends it in."""

    choice: int
    text: str


@dataclass(slots=True)
class RefusalDelta:
    """A piece of a refusal (OpenAI's ``refusal`` field)."""

    choice: int
    text: str


@dataclass(slots=True)
class ToolCallDelta:
    """A piece of one tool call. ``index`` is its place in the reply; unsent parts are empty.

    ``was_object``: the arguments came as JSON itself, not as its text.
    """

    choice: int
    index: int
    id: str
    name: str
    arguments: str
    was_object: bool = False


@dataclass(slots=True)
class OtherDelta:
    """Content that no stage looks into: audio, images."""

    choice: int


@dataclass(slots=True)
class Usage:
    """Token counts of the whole reply, as upstream gives them.

    ``counted_by_litellm``: they look like LiteLLM's own, made where the server sent none.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    counted_by_litellm: bool = False


@dataclass(slots=True)
class Finish:
    """A choice is complete. ``reason`` is OpenAI's finish_reason."""

    choice: int
    reason: str


@dataclass(slots=True)
class UpstreamErrorEvent:
    """An error object inside a stream that began with status 200."""

    message: str
    type: str
    code: str | None


@dataclass(slots=True)
class Tick:
    """Time has passed without an event. ``now`` in seconds, on the exchange's clock."""

    now: float


Event = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallDelta
    | OtherDelta
    | Usage
    | Finish
    | UpstreamErrorEvent
    | Tick
)
