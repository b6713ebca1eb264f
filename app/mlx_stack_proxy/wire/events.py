"""The events that stages see of a reply, the same for every server.

All events but usage and error carry ``choice``, the index among ``n`` alternatives. Events are
immutable.
"""

from __future__ import annotations

from ..frozen import frozen


@frozen
class TextDelta:
    """A piece of the answer's visible text."""

    choice: int
    text: str


@frozen
class ReasoningDelta:
    """A piece of the model's thinking, whichever field the server sends it in."""

    choice: int
    text: str


@frozen
class RefusalDelta:
    """A piece of a refusal (OpenAI's ``refusal`` field)."""

    choice: int
    text: str


@frozen
class ToolCallDelta:
    """A piece of one tool call; fields that the server did not send are empty."""

    choice: int
    index: int  # the call's place in the reply
    id: str
    name: str
    arguments: str
    was_object: bool = False  # the arguments came as a JSON object, not as its text
    odd: bool = False  # the piece lacks the index, the function, or the type beside a name


@frozen
class OtherDelta:
    """Content that no stage looks into: audio, images."""

    choice: int


@frozen
class Usage:
    """Token counts of the whole reply, as upstream gives them."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    counted_by_litellm: bool = False  # the counts look like LiteLLM's own: the server sent none


@frozen
class Finish:
    """A choice is complete. ``reason`` is OpenAI's finish_reason."""

    choice: int
    reason: str


@frozen
class UpstreamErrorEvent:
    """An error object inside a stream that began with status 200."""

    message: str
    type: str
    code: str | None


Event = (
    TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallDelta
    | OtherDelta
    | Usage
    | Finish
    | UpstreamErrorEvent
)
