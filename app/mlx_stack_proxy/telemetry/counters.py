"""Computes what a finished exchange adds to the hour's counters: a pure function, ``counts_of``.

Attempts, moves and incidents count for the tier where they happened; the exchange itself counts for
the tier that answered last. Each delivered reply counts for exactly one of ``WAYS``, each exchange
for exactly one of ``PARTS``. The counters' names and meanings are in docs/http.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from ..engine.outcome import Incident
from ..engine.record import BROKEN, OTHER, AttemptRecord, Record
from ..state.hourly import HOUR, Counts

AT_ONCE: Final = 0.001  # seconds; a shorter wait is not counted as queueing
MINUTES: Final = "at:"  # the counters `at:MM:PART`: what the exchanges of five minutes came to
SLOT: Final = 5  # minutes
# What exchanges came to, with the counters that each part adds up.
PARTS: Final = {
    "right": ("right_at_once", "confirmed"),
    "mended": ("repaired", "found_in_text"),
    "retried": ("retried_right",),
    "moved": ("escalated_right",),
    "failed": (BROKEN, "errors"),  # without the refused ones
    "refused": ("refused",),
    "client": ("client_left", "client_errors"),
}
_PART_OF: Final = {counter: part for part, counters in PARTS.items() for counter in counters}
# The counter of an exchange that ended without a reply, by its outcome; all others are errors.
_NO_REPLY: Final = {"client_left": "client_left", "client_error": "client_errors"}
# The parts in which a reply was broken.
BROKEN_PARTS: Final = ("mended", "retried", "moved", "failed")

Row = defaultdict[str, float]


class Account(Struct, frozen=True):
    """Where one kind of incident, which stages report, is counted and recorded."""

    metric: str  # the counter's name in ``metrics.py``
    hour: Mapping[str, str]  # the hour's counter by the incident's last label; "": any other label
    event: str = ""  # the kind of the event that is recorded; "": none is
    labels: tuple[str, ...] = ()  # the labels' names in the event's detail
    by_tier: bool = False  # whether the metric has the tier as its first label
    whole: bool = False  # whether the incident's whole detail stands in the event's


_LOOP: Final = ("detector", "action")
_LOOPS: Final = {
    "": "loops_told",
    "second_opinion": "loops_doubted",
    "circuit_break": "loops_broken",
}
_CUTS: Final = {"": "loops_cut", "max_output_tokens": "replies_cut"}
INCIDENTS: Final = {
    "tool_call_invalid": Account(
        "tool_call_failures",
        {"": "invalid_calls"},
        "tool_call_invalid",
        ("failure",),
        by_tier=True,
        whole=True,
    ),
    "tool_call_repaired": Account(
        "tool_call_repairs", {"": "repairs"}, "tool_call_repaired", ("repair",)
    ),
    "tool_call_rescued": Account(
        "rescued_tool_calls", {"": "calls_found"}, "tool_call_repaired", ("format",)
    ),
    "tool_call_unchecked": Account("unchecked_tool_calls", {}),
    "loop_warning": Account("loops", _LOOPS, "loop_warning", _LOOP, whole=True),
    "loop_break": Account("loops", _LOOPS, "loop_break", _LOOP, whole=True),
    "loop_answer": Account("loop_questions", {}),
    "truncated": Account("truncations", _CUTS, "loop_warning", ("truncated",), by_tier=True),
    "prompt_cut": Account("cut_prompts", {}, "prompt_cut", by_tier=True, whole=True),
    "tokens_saved": Account("tokens_saved", {"": "tokens_saved"}),
}


def amount_of(incident: Incident) -> int:
    """Return how much an incident adds to its counters: tokens, else 1; 0 for a known loop."""
    if incident.kind == "tokens_saved":
        return int(incident.detail["tokens"])
    return 0 if incident.detail.get("again") else 1


def counts_of(record: Record) -> dict[str, Counts]:
    """Return an exchange's counters by tier."""
    rows: defaultdict[str, Row] = defaultdict(lambda: defaultdict(float))
    before = ""
    for attempt in record.attempts:
        row = rows[attempt.tier]
        if before != "retry":
            row["visits"] += 1
        before = attempt.then
        if attempt.then == "retry":
            row["retries"] += 1
        elif attempt.then == "move":
            row["left"] += 1
            row[f"left:{attempt.then_reason}"] += 1
        if attempt.called:
            _add_call(row, attempt)
        waited, placed = attempt.figures.waited, attempt.figures.placed
        if waited > AT_ONCE or not placed:
            row["queued"] += 1
            row["queue_seconds"] += waited
            row["queue_timeouts"] += not placed
        for incident in attempt.incidents:
            _add_incident(row, incident)
    if record.passed_over:
        row = rows[record.passed_over]
        row["passed_over"] += 1
    _add_outcome(rows[record.tier], record)
    return {tier: {k: n for k, n in row.items() if n} for tier, row in rows.items()}


def _add_call(row: Row, attempt: AttemptRecord) -> None:
    figures = attempt.figures
    row["attempts"] += 1
    row["model_seconds"] += figures.seconds
    row["silent_seconds"] += figures.silent
    row["tokens_in"] += figures.tokens_in
    row["tokens_out"] += figures.tokens_out
    if attempt.guided:
        row["guided"] += attempt.guided == "obeyed"
        row["guided_in_vain"] += attempt.guided in ("disregarded", "refused")
    if attempt.reason and (failure := attempt.failure):
        row["failed"] += 1
        row[f"failed:{failure}"] += 1
    for tool, number in attempt.calls.items():
        row["calls"] += number
        row[f"calls:{tool}"] += number


def _add_incident(row: Row, incident: Incident) -> None:
    hour = INCIDENTS[incident.kind].hour
    counter = hour.get(incident.labels[-1] if incident.labels else "") or hour.get("")
    if counter == "invalid_calls" and incident.detail.get("doubt"):
        counter = "doubted_calls"
    if counter is not None:
        row[counter] += amount_of(incident)
    if counter == "repairs":
        row[f"repairs:{incident.labels[-1]}"] += 1
    if counter in ("invalid_calls", "doubted_calls"):
        row[f"{counter}:{incident.detail.get('tool', OTHER)}"] += 1


def _add_outcome(row: Row, record: Record) -> None:
    row["requests"] += 1
    row["seconds"] += record.seconds
    if record.outcome == "ok":
        row["turns"] += 1
        row["calls_as_text"] += record.call_as_text
    counter = record.way or _NO_REPLY.get(record.outcome, "errors")
    row[counter] += 1
    if counter == "errors":
        row[f"errors:{record.outcome}"] += 1
    if record.refused_for:
        row["refused"] += 1
        row[f"refused:{record.refused_for}"] += 1
    minute = int(record.time % HOUR // 60) // SLOT * SLOT
    part = "refused" if record.refused_for else _PART_OF[counter]
    row[f"{MINUTES}{minute:02d}:{part}"] += 1


def failed_of(counts: Counts) -> float:
    """Return how many exchanges failed: bad replies that reached the client, errors, refusals."""
    return counts.get(BROKEN, 0) + counts.get("errors", 0)


def parts_of(counts: Counts) -> dict[str, int]:
    """Return the exchanges in each of ``PARTS``, which add up to all requests."""
    parts = {part: sum(counts.get(name, 0) for name in names) for part, names in PARTS.items()}
    parts["failed"] -= parts["refused"]
    return {part: int(number) for part, number in parts.items() if number}
