"""The steps that can follow an attempt: ``next_step.py`` decides, ``driver.py`` executes."""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from ..errors import ProxyError


class Start(Struct, frozen=True):
    """The tier on which an exchange starts."""

    tier: str
    reason: str = ""  # why it isn't the route's first tier; "" if it is, or needs no reason
    stays: bool = False  # the exchange may use no other tier
    guided: bool = False  # send a schema that only allows a valid reply


@lru_cache(maxsize=64)
def start_on(tier: str) -> Start:
    """Return the plain start on a tier; cached."""
    return Start(tier)


class Deliver(Struct, frozen=True):
    """Deliver the newest attempt's reply, including what the gate holds."""


class DeliverEarlier(Struct, frozen=True):
    """Deliver an earlier attempt's doubted reply, because there is no better one."""

    index: int  # of the earlier attempt's outcome


class Retry(Struct, frozen=True):
    """Try again on the same tier."""

    reason: str
    number: int  # counts this reason's retries on this tier, from 1
    correct: bool = False  # tell the model what was wrong
    last: bool = False  # the last retry for this reason on this tier
    hint: str = ""  # a sentence to append to the request
    hint_in_tool_result: bool = False  # from now on put our words into a tool result on this tier
    strict: bool = False  # from now on rewrite messages for a strict chat template
    after: float = 0.0  # seconds to wait; the driver adds up to `rules.JITTER` of them
    guided: bool = False  # see :class:`Start`
    warmer: bool = False  # raise the temperature more than other retries
    plain: bool = False  # without any words of ours
    most_output: int = 0  # limit on output tokens on this tier; 0: none


class Move(Struct, frozen=True):
    """Escalate to another tier. For ``hint``, ``correct``, ``guided`` see :class:`Retry`."""

    tier: str
    reason: str
    hint: str = ""
    correct: bool = False
    guided: bool = False


class PassOn(Struct, frozen=True):
    """Send upstream's answer to the client unchanged, because it refuses the client's request.

    In a stream that has begun, and in other dialects, an error with the same message goes out.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


class Fail(Struct, frozen=True):
    """Send the client this error, as the response or in a stream that has begun."""

    error: ProxyError


Step = Deliver | DeliverEarlier | Retry | Move | PassOn | Fail
LastStep = Deliver | DeliverEarlier | PassOn | Fail


def outcome_of(step: LastStep) -> str:
    """Return the result of a last step as one word for metrics, counters and log."""
    match step:
        case Deliver() | DeliverEarlier():
            return "ok"
        case PassOn():
            return "client_error"
        case Fail():
            return step.error.type
