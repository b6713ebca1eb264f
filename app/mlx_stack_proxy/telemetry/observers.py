"""What looks on while an exchange runs: captured failures, traces.

An observer changes nothing of the exchange. One that fails is reported, and told nothing more of
that exchange. Without observers nothing is done for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..engine.attempt import Attempt
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.outcome import Outcome
from ..engine.upstream import Response


class Observer:
    """Of one exchange. Override what is of interest."""

    name = ""  # for the counter of faults

    def call_begins(self, tier: str, headers: RawHeaders) -> RawHeaders:
        """An upstream call is to be made; the headers that go with it."""
        return headers

    def answered(self, response: Response) -> None:
        """Its answer begins; its body is still to be read."""

    def call_ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """It is over, and judged."""

    def ended(self, outcome: str) -> None:
        """The exchange is over; ``outcome`` as in ``mlx_stack_requests_total``."""


MakeObserver = Callable[[Exchange], Observer]
Report = Callable[[str, Exception], None]


class Observers(Observer):
    """Several as one, each guarded."""

    def __init__(self, made: Sequence[Observer], report: Report) -> None:
        self._made = list(made)
        self._report = report

    def call_begins(self, tier: str, headers: RawHeaders) -> RawHeaders:
        for one in self._made[:]:
            with self._guarded(one):
                headers = one.call_begins(tier, headers)
        return headers

    def answered(self, response: Response) -> None:
        for one in self._made[:]:
            with self._guarded(one):
                one.answered(response)

    def call_ended(self, attempt: Attempt, outcome: Outcome) -> None:
        for one in self._made[:]:
            with self._guarded(one):
                one.call_ended(attempt, outcome)

    def ended(self, outcome: str) -> None:
        for one in self._made[:]:
            with self._guarded(one):
                one.ended(outcome)

    @contextmanager
    def _guarded(self, one: Observer) -> Iterator[None]:
        """One that fails looks on no longer."""
        try:
            yield
        except Exception as error:
            self._made.remove(one)
            self._report(one.name, error)


def of(exchange: Exchange, makers: Sequence[MakeObserver], report: Report) -> Observer | None:
    """An exchange's observers; None where nobody wants any."""
    if not makers:
        return None
    made = []
    for make in makers:
        try:
            made.append(make(exchange))
        except Exception as error:
            report("observer", error)
    return Observers(made, report)
