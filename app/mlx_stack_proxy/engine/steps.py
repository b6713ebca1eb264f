"""What can follow an attempt. ``next_step.py`` decides which of these it is; the runner obeys."""

from __future__ import annotations

from ..errors import ProxyError
from ..frozen import frozen


@frozen
class Deliver:
    """What the gate holds goes out, and the exchange is over.

    ``doubted``: what is held of the attempt that was doubted, not of the last one.
    """

    doubted: bool = False


@frozen
class Retry:
    """Try again on the same tier. ``number``: which retry for this reason, from 1.

    ``correct``: tell the model what was wrong. ``last``: no other retry will follow this one.
    ``hint``: a sentence that goes to the end of the request. ``in_result``: words of ours go into
    the last tool result, from here on while the tier stays. ``after``: seconds to wait, to which
    the runner adds up to ``next_step.JITTER`` of them.
    """

    reason: str
    number: int
    correct: bool = False
    last: bool = False
    hint: str = ""
    in_result: bool = False
    after: float = 0.0


@frozen
class Move:
    """Go on with another tier, further up. ``hint``, ``correct`` as in :class:`Retry`."""

    tier: str
    reason: str
    hint: str = ""
    correct: bool = False


@frozen
class PassOn:
    """Upstream's own answer goes to the client as it came: the fault is in the request."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


@frozen
class Fail:
    """The client gets this error: as the response, or in the stream if one has begun."""

    error: ProxyError


Step = Deliver | Retry | Move | PassOn | Fail


def outcome_of(step: Deliver | PassOn | Fail) -> str:
    """What a last step makes of the exchange, in a word for metrics, counters and log."""
    match step:
        case Deliver():
            return "ok"
        case PassOn():
            return "client_error"
        case Fail():
            return step.error.type
