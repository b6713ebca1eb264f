"""What can follow an attempt. ``next_step.py`` decides which of these it is; the runner obeys."""

from __future__ import annotations

from ..errors import ProxyError
from ..frozen import frozen


@frozen
class Start:
    """The tier to start on."""

    tier: str
    reason: str = ""  # why it isn't the route's first; "" if that needs no reason
    stays: bool = False  # the exchange may go nowhere else


@frozen
class Deliver:
    """What the gate holds goes out, and the exchange is over."""


@frozen
class DeliverEarlier:
    """The same of an earlier attempt, whose reply was doubted and for which no better came."""

    index: int  # of its outcome


@frozen
class Retry:
    """Try again on the same tier."""

    reason: str
    number: int  # which retry for this reason, from 1
    correct: bool = False  # tell the model what was wrong
    last: bool = False  # no other retry will follow this one
    hint: str = ""  # a sentence that goes to the end of the request
    hint_in_tool_result: bool = False  # from here on the tier gets words of ours in a tool result
    after: float = 0.0  # seconds to wait; the runner adds up to `tries.JITTER` of them


@frozen
class Move:
    """Go on with another tier, further up. ``hint``, ``correct`` as in :class:`Retry`."""

    tier: str
    reason: str
    hint: str = ""
    correct: bool = False


@frozen
class PassOn:
    """Upstream's own answer goes to the client as it came: the fault is in the request.

    Where the stream has begun, an error says the same.
    """

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@frozen
class Fail:
    """The client gets this error: as the response, or in the stream if one has begun."""

    error: ProxyError


Step = Deliver | DeliverEarlier | Retry | Move | PassOn | Fail
LastStep = Deliver | DeliverEarlier | PassOn | Fail


def outcome_of(step: LastStep) -> str:
    """What a last step makes of the exchange, in a word for metrics, counters and log."""
    match step:
        case Deliver() | DeliverEarlier():
            return "ok"
        case PassOn():
            return "client_error"
        case Fail():
            return step.error.type
