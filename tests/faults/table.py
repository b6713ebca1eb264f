"""The fault table as markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.faults.clients import CLIENTS, ERROR, Client
from tests.faults.places import TIERS, Row
from tests.faults.spoken import SPOKEN

HEADS = ("fault", "client", "got", "from", "upstream calls", "seconds", "")
NAMES = {"whole": "not streamed", "live": "live stream", "buffered": "buffered stream"}


@dataclass
class Line:
    """Clients to whom the same happened."""

    fault: str
    got: str
    tier: str
    calls: str
    right: bool
    clients: list[Client] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def cells(self, everyone: Sequence[Client]) -> tuple[str, ...]:
        least, most = min(self.seconds), max(self.seconds)
        spread = f"{least:.1f}" if most - least < 0.15 else f"{least:.1f} – {most:.1f}"
        mark = "right" if self.right else "**wrong**"
        clients = words(self.clients, everyone)
        return self.fault, clients, self.got, self.tier, self.calls, spread, mark


def lines(rows: Iterable[Row]) -> list[Line]:
    """The rows of one fault, alike ones together."""
    found: dict[tuple[str, ...], Line] = {}
    for row in rows:
        calls = ", ".join(f"{row.arrived[t]} {t}" for t in TIERS if row.arrived.get(t)) or "none"
        outcome = row.outcome
        got = "a good reply" if row.right else row.verdict
        if row.verdict == ERROR:
            assert outcome.error is not None
            where = f"status {outcome.status}" if outcome.status >= 400 else "in the stream"
            got = f"error `{outcome.error['type']}`, {where}"
        key = (got, outcome.tier, calls)
        line = found.setdefault(key, Line(row.fault, got, outcome.tier, calls, row.right))
        line.clients.append(row.client)
        line.seconds.append(outcome.seconds)
    return list(found.values())


def words(clients: Sequence[Client], everyone: Sequence[Client]) -> str:
    """Which clients these are, in few words."""
    if len(clients) == len(everyone):
        return "all" if len(everyone) == len(CLIENTS) else "all with tools"
    hows: dict[str, list[bool]] = {}
    for client in clients:
        hows.setdefault(client.how, []).append(client.tools)
    possible = {how: [c.tools for c in everyone if c.how == how] for how in hows}
    return ", ".join(
        NAMES[how]
        + ("" if sorted(tools) == sorted(possible[how]) else (" (no tools)", " (tools)")[tools[0]])
        for how, tools in hows.items()
    )


class Table:
    """Sections of the table as they come, and what was counted."""

    def __init__(self) -> None:
        self.right = self.wrong = 0
        self.by_path: dict[str, int] = {}  # how many were right

    def section(self, title: str, faults: Iterable[Sequence[Row]]) -> str:
        """A table for each dialect."""
        found = list(faults)
        return "\n".join(self._of_dialect(title, found, speaks) for speaks in SPOKEN)

    def _of_dialect(self, title: str, faults: Iterable[Sequence[Row]], speaks: str) -> str:
        path = SPOKEN[speaks].path
        heads = "| " + " | ".join(HEADS) + " |"
        text = [f"### {title}: `{path}`\n", heads, "|---" * len(HEADS) + "|"]
        for every in faults:
            rows = [row for row in every if row.client.speaks == speaks]
            everyone = [row.client for row in rows]
            self.count(path, sum(row.right for row in rows), sum(not row.right for row in rows))
            text += ["| " + " | ".join(line.cells(everyone)) + " |" for line in lines(rows)]
        return "\n".join(text) + "\n"

    def count(self, path: str, right: int, wrong: int) -> None:
        self.right += right
        self.wrong += wrong
        self.by_path[path] = self.by_path.get(path, 0) + right
