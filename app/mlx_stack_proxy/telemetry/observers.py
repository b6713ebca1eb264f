"""Observers watch an exchange while it runs: captured failures, traces.

The engine calls one ``Observer`` for each exchange, which passes the calls on to all that are
configured. An observer changes nothing of the exchange but the headers of its upstream calls. If
one raises, its error is reported and it gets no further calls for this exchange. If none is
configured, the exchange has no observer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.request import UpstreamRequest
from ..engine.upstream import Response


class Observer:
    """Watches one exchange; a subclass overrides the calls that it needs."""

    name = ""  # the label of its faults in ``mlx_stack_stage_faults_total``

    def call_begins(self, request: UpstreamRequest, headers: RawHeaders) -> RawHeaders:
        """An upstream call is about to begin; return the headers to send with it."""
        return headers

    def answered(self, response: Response) -> None:
        """Upstream's response has begun; nobody has read its body yet."""

    def ended(self, outcome: str) -> None:
        """The exchange has ended; ``outcome``: as in ``mlx_stack_requests_total``.

        Its ``attempts`` are the outcomes of the calls that have begun, in their order.
        """


MakeObserver = Callable[[Exchange], Observer]
Report = Callable[[str, Exception], None]


class Observers(Observer):
    """Several observers as one; a fault of one reaches neither the others nor the exchange."""

    def __init__(self, exchange: Exchange, makers: Sequence[MakeObserver], report: Report) -> None:
        self._observers: list[Observer] = []
        self._report = report
        for make in makers:
            try:
                self._observers.append(make(exchange))
            except Exception as error:
                report("observer", error)

    def call_begins(self, request: UpstreamRequest, headers: RawHeaders) -> RawHeaders:
        def begin(observer: Observer) -> None:
            nonlocal headers
            headers = observer.call_begins(request, headers)

        self._each(begin)
        return headers

    def answered(self, response: Response) -> None:
        self._each(lambda observer: observer.answered(response))

    def ended(self, outcome: str) -> None:
        self._each(lambda observer: observer.ended(outcome))

    def _each(self, call: Callable[[Observer], None]) -> None:
        """Call each observer; report and drop one that raises."""
        for observer in self._observers[:]:
            try:
                call(observer)
            except Exception as error:
                self._observers.remove(observer)
                self._report(observer.name, error)


def of(exchange: Exchange, makers: Sequence[MakeObserver], report: Report) -> Observer | None:
    """Make an exchange's observers; return None if ``makers`` is empty."""
    return Observers(exchange, makers, report) if makers else None
