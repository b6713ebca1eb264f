"""Work out what an ended exchange adds to the hour's counters: a pure function, ``counts_of``.

Attempts, moves and incidents count for the tier where they happened; the exchange itself counts for
the tier that answered last. Each delivered reply counts for exactly one of ``WAYS``. The counters'
names and meanings are in docs/http.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Final

from ..engine.exchange import Exchange
from ..engine.outcome import Incident, Outcome
from ..engine.verdicts import EmptyResponse, InvalidToolCall, is_doubt
from ..frozen import frozen
from ..state.hourly import Counts
from .metrics import OTHER

# The ways in which a reply came to be right after attempts that failed.
RECOVERED: Final = ("retried_right", "escalated_right")
# A reply that was delivered as it is because nobody had a better one.
BROKEN: Final = "went_out_broken"
# What became of a delivered reply: all ways in which it came to be right, or `BROKEN`.
WAYS: Final = (
    *("right_at_once", "repaired", "found_in_text", "confirmed"),
    *RECOVERED,
    BROKEN,
)
UNREACHABLE: Final = "unreachable"  # no connection could be made to LiteLLM
_RESCUED: Final = "rescued"  # the word in X-MLX-Stack-Repairs for a call found in text
_GUIDED: Final = "guided"  # … and for a reply that was written in a schema of ours
AT_ONCE: Final = 0.001  # seconds; a call that got its place sooner did not queue
_NO_FAILURE: Final = ("client_left", "client_error")  # reasons that are no fault of the tier

Row = defaultdict[str, float]


@frozen
class Account:
    """Where one kind of incident, which stages report, is counted and recorded."""

    metric: str  # the name of the counter's attribute in ``Metrics``
    hour: Mapping[str, str]  # the hour's counter by the incident's last label; "": any other label
    event: str = ""  # the kind of the event that is recorded; "": none is
    labels: tuple[str, ...] = ()  # what the incident's labels are called in the event's detail
    by_tier: bool = False  # whether the metric has the tier as its first label


_LOOP: Final = ("detector", "action")
_LOOPS: Final = {
    "": "loops_told",
    "second_opinion": "loops_doubted",
    "circuit_break": "loops_broken",
}
_CUTS: Final = {"": "loops_cut", "max_output_tokens": "replies_cut"}
INCIDENTS: Final = {
    "tool_call_invalid": Account(
        "tool_call_failures", {"": "invalid_calls"}, "tool_call_invalid", ("failure",), by_tier=True
    ),
    "tool_call_repaired": Account(
        "tool_call_repairs", {"": "repairs"}, "tool_call_repaired", ("repair",)
    ),
    "tool_call_rescued": Account(
        "rescued_tool_calls", {"": "calls_found"}, "tool_call_repaired", ("format",)
    ),
    "tool_call_unchecked": Account("unchecked_tool_calls", {}),
    "loop_warning": Account("loops", _LOOPS, "loop_warning", _LOOP),
    "loop_break": Account("loops", _LOOPS, "loop_break", _LOOP),
    "loop_answer": Account("loop_questions", {}),
    "truncated": Account("truncations", _CUTS, "loop_warning", ("truncated",), by_tier=True),
    "tokens_saved": Account("tokens_saved", {"": "tokens_saved"}),
}


def amount_of(incident: Incident) -> int:
    """Return how much an incident adds to its counters: saved tokens, else 1."""
    return incident.detail["tokens"] if incident.kind == "tokens_saved" else 1


def counts_of(exchange: Exchange, outcome: str) -> dict[str, Counts]:
    """Return an exchange's counters by tier. ``outcome``: as in ``mlx_stack_requests_total``."""
    rows: defaultdict[str, Row] = defaultdict(lambda: defaultdict(float))
    passes_through = not exchange.route.tiers
    offered = exchange.request.offered()  # any other tool name is a model's own text
    for attempt in exchange.attempts:
        row = rows[OTHER if passes_through else attempt.tier]
        _add_attempt(row, attempt, offered)
    for earlier, later in pairwise(exchange.attempts):
        row = rows[OTHER if passes_through else earlier.tier]
        if earlier.tier == later.tier:
            row["retries"] += 1
        else:
            row["left"] += 1
            row[f"left:{earlier.reason}"] += 1
    for ended in exchange.outcomes:
        if ended.waited > AT_ONCE or not ended.placed:
            row = rows[ended.tier]
            row["queued"] += 1
            row["queue_seconds"] += ended.waited
            row["queue_timeouts"] += not ended.placed
        if ended.reason != "client_left":  # else nobody has judged the reply
            for incident in ended.remarks.incidents:
                _add_incident(rows[OTHER if passes_through else ended.tier], incident, offered)
    _add_outcome(rows[OTHER if passes_through else exchange.tier], exchange, outcome)
    return {tier: {k: n for k, n in row.items() if n} for tier, row in rows.items()}


def _add_attempt(row: Row, attempt: Outcome, offered: Collection[str]) -> None:
    row["attempts"] += 1
    row["model_seconds"] += attempt.seconds
    row["silent_seconds"] += attempt.silent
    row["tokens_in"] += attempt.tokens_in
    row["tokens_out"] += attempt.tokens_out
    row["guided"] += attempt.guided == "obeyed"
    row["guided_in_vain"] += attempt.guided in ("disregarded", "refused")
    if attempt.reason and attempt.reason not in _NO_FAILURE and not is_doubt(attempt.verdict):
        row["failed"] += 1
        row[f"failed:{UNREACHABLE if attempt.unreachable else attempt.reason}"] += 1
    choices = attempt.reply.choices.values() if attempt.reply is not None else ()
    for call in [call for choice in choices for call in choice.tool_calls]:
        row["calls"] += 1
        row[f"calls:{_tool(call.name, offered)}"] += 1


def _add_incident(row: Row, incident: Incident, offered: Collection[str]) -> None:
    hour = INCIDENTS[incident.kind].hour
    counter = hour.get(incident.labels[-1] if incident.labels else "") or hour.get("")
    if counter is not None:
        row[counter] += amount_of(incident)
    if counter == "repairs":
        row[f"repairs:{incident.labels[-1]}"] += 1
    if counter == "invalid_calls":
        row[f"invalid_calls:{_tool(incident.detail.get('tool'), offered)}"] += 1


def _tool(name: str | None, offered: Collection[str]) -> str:
    return name if name and name in offered else OTHER


def _add_outcome(row: Row, exchange: Exchange, outcome: str) -> None:
    row["requests"] += 1
    match outcome:
        case "ok":
            row["turns"] += 1
            row[way_of(exchange)] += 1
            row["calls_as_text"] += _is_call_as_text(exchange)
        case "client_left":
            row["client_left"] += 1
        case "client_error":
            row["client_errors"] += 1
        case _:
            row["errors"] += 1
            row[f"errors:{outcome}"] += 1


def _went_out_broken(exchange: Exchange) -> bool:
    """Whether the delivered reply is a bad call, a call as text, empty, or our own words."""
    delivered = exchange.delivered
    verdict = delivered.verdict if delivered is not None else None
    bad_call = isinstance(verdict, InvalidToolCall) and not verdict.doubt
    return bad_call or isinstance(verdict, EmptyResponse) or _is_call_as_text(exchange)


def _is_call_as_text(exchange: Exchange) -> bool:
    """Whether the delivered text may hold a call, and nothing has shown that it is an answer.

    That the model gave the same text again shows nothing.
    """
    delivered = exchange.delivered
    if delivered is None:
        return False
    if _doubts_text(delivered) or delivered.remarks.call_as_text:
        return True
    text = _text_of(delivered)
    return bool(text) and any(
        _doubts_text(earlier) and _text_of(earlier) == text for earlier in exchange.attempts
    )


def _doubts_text(outcome: Outcome) -> bool:
    return isinstance(outcome.verdict, InvalidToolCall) and outcome.verdict.doubts_text


def _text_of(outcome: Outcome) -> str:
    """Return the text of a reply without calls; "" if it has calls."""
    choices = list(outcome.reply.choices.values()) if outcome.reply is not None else []
    if not choices or any(choice.tool_calls for choice in choices):
        return ""
    return choices[0].text.strip()


def way_of(exchange: Exchange) -> str:
    """Return which of ``WAYS`` a delivered reply belongs to."""
    if _went_out_broken(exchange):
        return BROKEN
    # A sole attempt has a reason, too, if an earlier exchange's second opinion confirmed its call.
    asked_again = len(exchange.attempts) > 1
    failed = [a for a in exchange.attempts if asked_again and a.reason]
    if any(not is_doubt(attempt.verdict) for attempt in failed):
        same = all(attempt.tier == exchange.tier for attempt in failed)
        return "retried_right" if same else "escalated_right"
    if failed:
        return "confirmed"
    repairs = set(exchange.reply_notes.get("Repairs", "").split(",")) - {"", _GUIDED}
    if not repairs:
        return "right_at_once"
    return "found_in_text" if _RESCUED in repairs else "repaired"
