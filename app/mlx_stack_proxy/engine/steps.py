"""The steps that can follow an attempt. ``next_step.py`` decides; ``driver.py`` carries out."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from ..errors import ProxyError


class Start(Struct, frozen=True):
    """The tier on which an exchange starts."""

    tier: str
    reason: str = ""  # why the tier isn't the route's first; "" if it is, or needs no reason
    stays: bool = False  # the exchange may use no other tier
    guided: bool = False  # send a schema in which the model can write only a valid reply


@lru_cache(maxsize=64)
def start_on(tier: str) -> Start:
    """Return the plain start on a tier, the same object each time."""
    return Start(tier)


class Deliver(Struct, frozen=True):
    """Deliver the newest attempt's reply: what the gate holds goes out."""


class DeliverEarlier(Struct, frozen=True):
    """Deliver an earlier attempt's reply, which was doubted, because no better reply came."""

    index: int  # of the earlier attempt's outcome


class Retry(Struct, frozen=True):
    """Try again on the same tier."""

    reason: str
    number: int  # counts the retries for this reason on this tier, from 1
    correct: bool = False  # tell the model what was wrong
    last: bool = False  # the last retry for this reason on this tier
    hint: str = ""  # a sentence to add at the end of the request
    hint_in_tool_result: bool = False  # from now on put our words into a tool result on this tier
    strict: bool = False  # from now on write messages as a strict chat template takes them
    after: float = 0.0  # seconds to wait; the driver adds up to `rules.JITTER` of them
    guided: bool = False  # as in :class:`Start`
    warmer: bool = False  # raise the temperature more than a retry does anyway
    plain: bool = False  # without any words of ours
    most_output: int = 0  # tokens of output to ask for at most on this tier; 0: no such limit


class Move(Struct, frozen=True):
    """Escalate to another tier. ``hint``, ``correct`` and ``guided`` are as in :class:`Retry`."""

    tier: str
    reason: str
    hint: str = ""
    correct: bool = False
    guided: bool = False


class PassOn(Struct, frozen=True):
    """Send upstream's own answer to the client as it came, because it refuses the client's request.

    In a stream that has begun, and in other dialects, an error with the same message goes out.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Fail(Struct, frozen=True):
    """Send the client this error: as the response, or in the stream if one has begun."""

    error: ProxyError


Step = Deliver | DeliverEarlier | Retry | Move | PassOn | Fail
LastStep = Deliver | DeliverEarlier | PassOn | Fail


def outcome_of(step: LastStep) -> str:
    """Return a last step's result as one word for metrics, counters and log."""
    match step:
        case Deliver() | DeliverEarlier():
            return "ok"
        case PassOn():
            return "client_error"
        case Fail():
            return step.error.type
