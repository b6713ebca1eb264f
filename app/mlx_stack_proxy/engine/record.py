"""The record of an exchange: who asked, what each attempt did, and what the client got.

All reports about an exchange are functions of its record: counters, metrics, events, the log, the
report, ``why`` and the page. Each attempt's part is made as it ends (:func:`attempts_of`). A record
holds names, numbers and words of fixed sets, and no text of a client or a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ..errors import ProxyError
from ..wire.dialect import error_reply
from .client_errors import refusal_passed_on
from .exchange import Exchange
from .outcome import Figures, Incident, Outcome
from .request import MAX_NAME
from .steps import Fail, LastStep, Move, PassOn, Retry
from .verdicts import Failure, InvalidToolCall, LoopDetected, is_doubt, reason_of
from .wordings import error_class

OTHER: Final = "other"  # the tier of pass-through models; any tool that was not offered
# How a reply came to be right after failed attempts.
RECOVERED: Final = ("retried_right", "escalated_right")
# A reply that was delivered although it is broken, because no tier had a better one.
BROKEN: Final = "went_out_broken"
# The result of a delivered reply: how it came to be right, or `BROKEN`.
WAYS: Final = ("right_at_once", "repaired", "found_in_text", "confirmed", *RECOVERED, BROKEN)
# Errors about bad replies; other errors are about budgets, memory or LiteLLM.
ABOUT_REPLIES: Final = ("tool_validation_failed", "loop_detected", "all_tiers_failed")
UNREACHABLE: Final = "unreachable"  # no connection could be made to LiteLLM
MAX_ATTEMPTS: Final = 24  # kept in a record's data; more are only counted
MAX_TOOLS: Final = 32  # names kept in a record's data
MOST_NAMED: Final = 16  # tools, repairs or detectors kept in an attempt's data
_NO_FAILURE: Final = ("client_left", "client_error")  # reasons that don't blame the tier
_GUIDED: Final = "guided"  # the word in X-MLX-Stack-Repairs for a reply in a schema of ours
_RESCUED: Final = "rescued"  # the same for a call found in text

# The fields of a record and of an attempt that its data holds unchanged.
_COPIED_FIELDS: Final = (
    *("outcome", "status", "way", "call_as_text", "passed_over", "escalated_from"),
    *("escalation_reason", "model", "stream", "size", "messages", "tools_offered"),
    *("refused_for", "budget"),
)
_ATTEMPT_FIELDS: Final = ("tier", "wrong", "doubted", "then")

Json = dict[str, Any]


class AttemptRecord(Struct, frozen=True):
    """What one attempt did."""

    tier: str
    reason: str | None  # why it failed, as in metrics; None: it didn't
    unreachable: bool  # no connection could be made
    called: bool  # an upstream call was made
    doubted: bool  # the failure is only a doubt
    wrong: str  # what went wrong, in words
    figures: Figures
    guided: str
    calls: Mapping[str, int]  # the calls that the model made, by offered tool
    incidents: tuple[Incident, ...]  # one per loop or call
    then: str  # the step that followed: "retry", "move", or "" after the last attempt
    then_reason: str  # that step's reason, as in metrics

    @property
    def failure(self) -> str:
        """Why the tier failed; "" if it didn't: doubts and the client's mistakes don't count."""
        if self.reason is None or self.reason in _NO_FAILURE or self.doubted:
            return ""
        return UNREACHABLE if self.unreachable else self.reason

    def as_data(self) -> Json:
        figures = self.figures
        data = {name: getattr(self, name) for name in _ATTEMPT_FIELDS}
        data |= {"silent": round(figures.silent, 3), "waited": round(figures.waited, 3)}
        data |= {"tokens_in": figures.tokens_in, "tokens_out": figures.tokens_out}
        data["calls"] = dict(islice(self.calls.items(), MOST_NAMED))
        data["repairs"] = self._labels(-1, "tool_call_repaired", "tool_call_rescued")
        data["loops"] = self._labels(0, "loop_warning", "loop_break")
        data = {name: value for name, value in data.items() if value}
        data["reason"] = UNREACHABLE if self.unreachable else self.reason
        data |= {"status": figures.status, "seconds": round(figures.seconds, 3)}
        return data if self.called else {**data, "called": False}

    def _labels(self, place: int, *kinds: str) -> list[str]:
        """Return a label of the incidents of these kinds, without repetition."""
        found = (one.labels[place] for one in self.incidents if one.kind in kinds)
        return list(dict.fromkeys(found))[:MOST_NAMED]


class Record(Struct, frozen=True):
    """One finished exchange. Its moves and loops are in ``attempts``."""

    id: str
    session: str
    session_source: str  # where the session's name came from: a header, a field, or "derived"
    agent: str
    time: float  # when it ended, in seconds since 1970
    seconds: float  # duration, waits included
    outcome: str  # as in ``mlx_stack_requests_total``
    status: int | None  # the client's status; None: it had disconnected
    way: str  # one of `WAYS`; "": nothing was delivered
    repairs: str  # of the delivered reply, as in X-MLX-Stack-Repairs
    call_as_text: bool  # the delivered text may hold a call
    tier: str  # the last one that answered
    passed_over: str  # the tier skipped at the start; "": none was
    escalated_from: str
    escalation_reason: str
    model: str  # as the client named it
    stream: bool
    size: int  # bytes of the request
    messages: int
    tools: tuple[str, ...]  # the offered ones' names, at most `MAX_TOOLS`
    tools_offered: int
    refused_for: str  # why no reply was attempted or awaited to its end; "": it was
    budget: str  # the scope of the budget that refused the request; "": none did
    attempts: tuple[AttemptRecord, ...]

    @property
    def plain(self) -> bool:
        """Whether the reply was right at once, and there is nothing to report."""
        at_once = self.way == "right_at_once" and len(self.attempts) == 1
        return at_once and not self.attempts[0].incidents and not self.escalated_from

    def as_data(self) -> Json:
        """Return the record as JSON-ready data of at most a few kilobytes, without empty fields."""
        data = {name: getattr(self, name) for name in _COPIED_FIELDS}
        data["seconds"], data["tools"] = round(self.seconds, 3), sorted(self.tools)
        data["attempts_made"] = sum(attempt.called for attempt in self.attempts)
        data["attempts"] = [attempt.as_data() for attempt in self.attempts[:MAX_ATTEMPTS]]
        return {name: value for name, value in data.items() if value}


def record_of(
    exchange: Exchange,
    outcome: str,
    now: float,
    seconds: float,
    last: LastStep | None = None,
    *,
    begun: bool = False,
) -> Record:
    """Return a finished exchange's record. ``now``: seconds since 1970; ``seconds``: duration.

    ``last``: what the client got, the only step if no attempt was made; None: it disconnected.
    ``begun``: its response had begun before.
    """
    request, session = exchange.request, exchange.request.session
    offered, start = request.offered, exchange.start
    delivered = exchange.delivered if outcome == "ok" else None
    as_text = delivered is not None and _is_call_as_text(exchange, delivered)
    budget = ""
    if isinstance(last, Fail) and last.error.type == "budget_exceeded":
        budget = str(last.error.extra.get("scope", ""))
    attempts = tuple(attempts_of(exchange))
    return Record(
        id=request.id,
        session=session.hash,
        session_source=session.source,
        agent=request.agent,
        time=now,
        seconds=seconds,
        outcome=outcome,
        status=_status(exchange, outcome, last, begun=begun),
        way=_way(exchange, delivered, as_text=as_text) if delivered is not None else "",
        repairs=exchange.reply_notes.get("Repairs", ""),
        call_as_text=as_text,
        tier=tier_label(exchange),
        passed_over=request.route.first if start is not None and start.reason else "",
        escalated_from=exchange.escalated_from,
        escalation_reason=exchange.escalation_reason,
        model=request.model[:MAX_NAME],
        stream=request.stream,
        size=request.size,
        messages=len(request.body.get("messages") or ()),
        tools=tuple(islice(offered, MAX_TOOLS)),
        tools_offered=len(offered),
        refused_for=_refused_for(outcome, attempts),
        budget=budget,
        attempts=attempts,
    )


def _status(exchange: Exchange, outcome: str, last: LastStep | None, *, begun: bool) -> int | None:
    """Return the status that the client got, in its dialect; None: it disconnected."""
    if outcome == "client_left":
        return None
    if outcome == "ok" or begun:
        return 200
    request = exchange.request
    if isinstance(last, Fail):
        return error_reply(request.dialect, last.error, request.id).status
    if not isinstance(last, PassOn):
        return 500
    if request.dialect is None:
        return last.status
    return error_reply(request.dialect, refusal_passed_on(exchange, last), request.id).status


def attempts_of(exchange: Exchange) -> list[AttemptRecord]:
    """Return the records of all finished attempts, each made once, after its step."""
    made = exchange.recorded
    while len(made) < len(exchange.outcomes):
        made.append(attempt_of(exchange, len(made)))
    return made


def attempt_of(exchange: Exchange, index: int) -> AttemptRecord:
    """Return the record of the attempt that ended with ``exchange.outcomes[index]``."""
    outcome = exchange.outcomes[index]
    step = exchange.steps[index] if index < len(exchange.steps) else None
    going_on = isinstance(step, (Retry, Move))
    incidents = incidents_of(exchange, index)
    return AttemptRecord(
        tier=outcome.tier if exchange.request.route.tiers else OTHER,
        reason=outcome.reason,
        unreachable=outcome.unreachable,
        called=outcome.called,
        doubted=is_doubt(outcome.verdict),
        wrong=_wrong(exchange, outcome) if outcome.verdict is not None else "",
        figures=outcome.figures,
        guided=outcome.guided,
        calls=_calls(outcome, incidents, exchange.request.offered),
        incidents=incidents,
        then="" if not going_on else "retry" if isinstance(step, Retry) else "move",
        then_reason=step.reason if isinstance(step, (Retry, Move)) else "",
    )


def tier_label(exchange: Exchange) -> str:
    """Return the tier's name for a metric's label; ``other`` for models that pass through."""
    return exchange.tier if exchange.request.route.tiers else OTHER


# What went wrong


def _wrong(exchange: Exchange, outcome: Outcome) -> str:
    """Say what was wrong with an attempt, without any text of the client or the model."""
    match outcome.verdict:
        case InvalidToolCall(failures=failures):
            offered = exchange.request.offered
            calls: dict[str, list[str]] = {}
            for failure in failures:
                tool = failure.tool[:MAX_NAME]
                tool = tool if tool in offered else ""
                field = f" {failure.field}" if failure.field else ""
                calls.setdefault(tool, []).append(f"{failure.kind}{field}")
            found = ((tool, ", ".join(dict.fromkeys(wrong))) for tool, wrong in calls.items())
            return "; ".join(f"{tool}: {wrong}" if tool else wrong for tool, wrong in found)[:300]
        case LoopDetected() as loop:
            times = f", {loop.repeats} times" if loop.repeats else ""
            return f"{loop.detector}{times}"
        case Failure(kind="parroted"):
            return "only our own words"
        case Failure(error=ProxyError() as error):
            return error.code or ""
        case Failure(kind="unreachable", message=message):  # the reason, in our own words
            return message
        case Failure(message=message, body=body) if outcome.verdict.reason == "server_error":
            return error_class(message, body)
    return ""


def _refused_for(outcome: str, attempts: Collection[AttemptRecord]) -> str:
    """Say why a request ended with an error that is not about a reply; "" for other ends.

    The error's type says it, with two exceptions: LiteLLM was unreachable, or the proxy stopped;
    and no tier was called, for the reason in the last attempt.
    """
    if outcome in ("ok", "client_left", "client_error"):
        return ""
    if outcome == "upstream_unavailable":
        return UNREACHABLE if any(attempt.unreachable for attempt in attempts) else "stopping"
    if outcome not in ABOUT_REPLIES:
        return outcome
    if any(attempt.called for attempt in attempts):
        return ""
    reasons = [attempt.reason for attempt in attempts if attempt.reason]
    return reasons[-1] if reasons else outcome


# Calls and loops


def incidents_of(exchange: Exchange, index: int) -> tuple[Incident, ...]:
    """Return an attempt's incidents. A loop that was broken before is marked ``again``.

    A tool is named only if it was offered, because any other name is the model's text.
    """
    outcome = exchange.outcomes[index]
    if not outcome.remarks.incidents or outcome.reason == "client_left":  # never judged
        return ()
    offered = exchange.request.offered
    broken = {
        _name(incident)
        for earlier in exchange.outcomes[:index]
        for incident in earlier.remarks.incidents
    }
    incidents = []
    for incident in outcome.remarks.incidents:
        again = incident.kind == "loop_break" and _name(incident) in broken
        detail = {**incident.detail, "again": True} if again else incident.detail
        if detail.get("tool") not in offered:
            detail = {name: value for name, value in detail.items() if name != "tool"}
        incidents.append(replace(incident, detail=detail))
        broken.add(_name(incident))
    return tuple(incidents)


def _name(incident: Incident) -> tuple[str, tuple[str, ...], object]:
    return incident.kind, incident.labels, incident.detail.get("pattern")


def _calls(
    outcome: Outcome, incidents: Iterable[Incident], offered: Collection[str]
) -> Mapping[str, int]:
    """Return the number of calls per tool, including wrong ones and those in text."""
    names: Iterable[str] = outcome.remarks.calls
    if not names and outcome.reply is not None:
        choices = outcome.reply.choices.values()
        names = [call.name for choice in choices for call in choice.tool_calls]
    wrong = [one.detail.get("tool", "") for one in incidents if one.kind == "tool_call_invalid"]
    if not names and not wrong:
        return {}
    made = Counter(tool_label(name, offered) for name in names)
    # A call that could not be parsed at all is among the wrong ones only.
    return made | Counter(tool_label(name, offered) for name in wrong)


def tool_label(name: str | None, offered: Collection[str]) -> str:
    """Return a tool's name; ``other`` if it was not offered, because it is the model's text."""
    name = (name or "")[:MAX_NAME]
    return name if name and name in offered else OTHER


# What the client got


def _way(exchange: Exchange, delivered: Outcome, *, as_text: bool) -> str:
    """Return a delivered reply's way (one of ``WAYS``). ``as_text``: it may hold a call."""
    attempts, verdict = exchange.attempts, delivered.verdict
    bad_call = isinstance(verdict, InvalidToolCall) and not verdict.doubt
    # A bad call, an empty reply, our own words, or a call that stayed text.
    if as_text or bad_call or reason_of(verdict) == "empty_response":
        return BROKEN
    # A single attempt can have a reason: an earlier exchange's second opinion confirmed its call.
    failed = [attempt for attempt in attempts if attempt.reason] if len(attempts) > 1 else []
    if any(not is_doubt(attempt.verdict) for attempt in failed):
        same = all(attempt.tier == exchange.tier for attempt in failed)
        return "retried_right" if same else "escalated_right"
    if failed:
        return "confirmed"
    repairs = set(exchange.reply_notes.get("Repairs", "").split(",")) - {"", _GUIDED}
    if not repairs:
        return "right_at_once"
    return "found_in_text" if _RESCUED in repairs else "repaired"


def _is_call_as_text(exchange: Exchange, delivered: Outcome) -> bool:
    """Whether the delivered text may hold a call, and nothing proves that it is an answer.

    The same text from the model again proves nothing.
    """
    if _doubts_text(delivered) or delivered.remarks.call_as_text:
        return True
    if len(exchange.outcomes) == 1:
        return False
    doubted = [earlier for earlier in exchange.attempts if _doubts_text(earlier)]
    return any(_text_of(earlier) == _text_of(delivered) != "" for earlier in doubted)


def _doubts_text(outcome: Outcome) -> bool:
    return isinstance(outcome.verdict, InvalidToolCall) and outcome.verdict.doubts_text


def _text_of(outcome: Outcome) -> str:
    """Return the text of a reply without calls; "" if it has calls."""
    choices = list(outcome.reply.choices.values()) if outcome.reply is not None else []
    if not choices or any(choice.tool_calls for choice in choices):
        return ""
    return choices[0].text.strip()
