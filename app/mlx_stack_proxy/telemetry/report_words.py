"""Put the report into sentences, in parts by what they are about.

A part is a function that makes lines of the report's JSON; a part without lines is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from ..engine.record import BROKEN, OTHER
from .counters import BROKEN_PARTS, failed_of

Report = Mapping[str, Any]
Counts = Mapping[str, float]
LEAST_SECONDS: Final = 0.1  # of the models' work that are worth a line
MOST_NAMED: Final = 5  # agents and tools in one line

# Why attempts failed, in words for people; the keys are the reasons of docs/escalation.md.
WRONG: Final = {
    "tool_validation_failure": "a wrong tool call",
    "loop_detected": "a loop",
    "timeout": "silence",
    "server_error": "a server error",
    "unreachable": "LiteLLM out of reach",
    "context_overflow": "a prompt too long for the model",
    "empty_response": "an empty reply",
    "output_truncated": "a reply cut short",
    "upstream_unavailable": "the proxy stopping",
}
# Why requests were refused; the keys are the labels of `refused` in docs/http.md.
REFUSED: Final = {
    "budget_exceeded": "a spent token budget",
    "memory_pressure": "low memory",
    "tier_busy": "a full queue",
    "tier_degraded": "an open breaker",
    "unreachable": "LiteLLM out of reach",
    "stopping": "the proxy stopping",
    "invalid_request_error": "a request that no tier accepts",
    "error": "a fault of the proxy",
}
# What is said of counters. In a text {} is the number, in those of the process "once" or "twice".
_RIGHT: Final = {  # ways in which broken replies came to be right
    "repaired": "{} repaired",
    "found_in_text": "{} found in text",
    "retried_right": "{} right after a retry",
    "escalated_right": "{} right from another tier",
}
_LOOPS: Final = {
    "loops_told": "{} noticed, with a hint to the model",
    "loops_doubted": "{} checked with another tier",
    "loops_broken": "{} broken",
    "loops_cut": "{} cut out of a reply",
}
_PROCESS: Final = {
    "starts": "started {}",
    "kills": "{} after a kill or a crash",
    "reloads": "loaded new settings {}",
    "refused_reloads": "refused new settings {}",
}
_SHORT: Final = {
    "pressure_warning_seconds": "{} at warning",
    "pressure_critical_seconds": "{} at critical",
}


def said(report: Report) -> list[dict[str, Any]]:
    """Return ``[{"about": …, "lines": […]}]``, without the parts that have no lines."""
    parts = {part.__name__[1:]: part(report) for part in _PARTS}
    return [{"about": about, "lines": lines} for about, lines in parts.items() if lines]


def _store(report: Report) -> list[str]:
    if report.get("store", "ok") == "ok":
        return []
    lines = [f"The store is failing: {report['store']}."]
    if report["remembered"]:
        lines.append("The figures are only those in this process's memory.")
    return lines


def _requests(report: Report) -> list[str]:
    totals, agents = report["totals"], report["by_agent"]
    if not totals.get("requests"):
        return ["There were no requests."]
    names = list(agents)[:MOST_NAMED]  # those with failures come first
    parts = [_agent(name, agents[name]) for name in names]
    others = [f"{len(agents) - MOST_NAMED} more"] if len(agents) > MOST_NAMED else []
    suffix = f": {', '.join([*parts, *others])}" if len(agents) > 1 else f", all by {names[0]}"
    return [f"{some(totals['requests'], 'request')}{suffix}."]


def _agent(name: str, counts: Counts) -> str:
    failed = failed_of(counts)
    return f"{name} {_n(counts.get('requests', 0))}{f' ({_n(failed)} failed)' if failed else ''}"


def _replies(report: Report) -> list[str]:
    totals, parts = report["totals"], report["parts"]
    broken = sum(parts.get(part, 0) for part in BROKEN_PARTS)
    whole, seen = broken + parts.get("right", 0), totals.get(BROKEN, 0)
    lines = []
    if broken:
        were = "was" if broken == 1 else "were"
        clause = f"{_n(seen)} reached an agent" if seen else "none reached an agent"
        if failed := parts.get("failed", 0) - seen:
            clause += f", {_n(failed)} ended in an error"
        of_all = some(whole, "reply", "replies")
        lines.append(f"{_n(broken)} of {of_all} {were} broken; {clause}.")
    elif whole:
        subject = "The reply was" if whole == 1 else f"All {_n(whole)} replies were"
        lines.append(f"{subject} right at once.")
    if refused := parts.get("refused", 0):
        causes = _causes(totals, "refused", REFUSED)
        lines.append(f"Refused: {some(refused, 'request')} ({causes}).")
    lines += _listed("Put right", totals, _RIGHT)
    if as_text := totals.get("calls_as_text", 0):
        lines.append(f"{some(as_text, 'call')} reached an agent as text.")
    if guided := totals.get("guided", 0):
        in_vain = totals.get("guided_in_vain", 0)
        clause = f"; {some(in_vain, 'reply', 'replies')} did not obey it" if in_vain else ""
        lines.append(f"Guided by a schema: {some(guided, 'reply', 'replies')}{clause}.")
    if causes := _causes(totals, "failed", WRONG):
        lines.append(f"Why attempts failed: {causes}.")
    return lines + _wrong_calls(totals)


def _wrong_calls(totals: Counts) -> list[str]:
    tools = labels(totals, "invalid_calls")
    named = [name for name in tools if name != OTHER][:MOST_NAMED]
    if not named:
        return []
    parts = [f"{name} {_n(tools[name])}" for name in named]
    if others := sum(tools.values()) - sum(tools[name] for name in named):
        parts.append(f"others {_n(others)}")
    return [f"Invalid tool calls: {', '.join(parts)}."]


def _causes(totals: Counts, counter: str, words: Mapping[str, str]) -> str:
    found = labels(totals, counter)
    return ", ".join(f"{words.get(why, why.replace('_', ' '))} {_n(n)}" for why, n in found.items())


def _loops(report: Report) -> list[str]:
    totals = report["totals"]
    lines = _listed("Loops", totals, _LOOPS)
    if saved := totals.get("tokens_saved"):
        lines.append(f"Cutting loops saved at most {_n(saved)} tokens.")
    if cut := totals.get("replies_cut"):
        lines.append(f"{some(cut, 'reply', 'replies')} reached their length limit.")
    return lines


def _work(report: Report) -> list[str]:
    totals = report["totals"]
    turns = {name: row["turns"] for name, row in report["by_tier"].items() if row.get("turns")}
    in_order = sorted(turns.items(), key=lambda item: -item[1])
    parts = [f"{name} {_n(n)} ({n / totals['turns']:.0%})" for name, n in in_order]
    lines = [f"Replies by tier: {', '.join(parts)}."] if parts else []
    if totals.get("tokens_in") or totals.get("tokens_out"):
        read, written = _n(totals.get("tokens_in", 0)), _n(totals.get("tokens_out", 0))
        lines.append(f"Tokens: {read} read, {written} written.")
    return lines


def _time(report: Report) -> list[str]:
    totals = report["totals"]
    if totals.get("model_seconds", 0) < LEAST_SECONDS:
        return []
    silent, queued = totals.get("silent_seconds", 0), totals.get("queue_seconds", 0)
    line = f"Models worked for {span(totals['model_seconds'])}"
    line += f", {span(silent)} of it before the first token" if silent >= 1 else ""
    line += f"; requests waited {span(queued)} in queues" if queued >= 1 else ""
    whole = totals.get("seconds", 0)
    average = f" Requests took {span(whole / totals['requests'])} on average." if whole >= 1 else ""
    return [f"{line}.{average}"]


def _failed(report: Report) -> list[str]:
    totals = report["totals"]
    lines = []
    if clients := totals.get("client_left"):
        lines.append(f"{some(clients, 'client')} disconnected before the reply was complete.")
    if refused := totals.get("client_errors"):
        lines.append(f"LiteLLM rejected {some(refused, 'request')} because of client errors.")
    errors = labels(totals, "errors")
    if errors:
        kinds = ", ".join(f"{kind} {_n(count)}" for kind, count in errors.items())
        lines.append(f"Errors that clients got: {kinds}.")
    newest = {failure["type"]: failure for failure in report["failures"]}
    for kind, failure in newest.items():
        tried = some(failure["attempts"], "attempt")
        lines.append(f"{at(failure['time'])} {failure['agent']}: {kind} after {tried}:")
        lines.append(f"  {failure['command']}")
    if "budget_exceeded" in errors:
        lines += ["To see spent budgets:", "  mlx-stack-proxy events --kind budget_exceeded"]
    return lines


def _outages(report: Report) -> list[str]:
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for outage in report["outages"]:
        groups.setdefault((outage["what"], outage["tier"]), []).append(outage)
    return [_outage(_OUT[what].format(tier), outages) for (what, tier), outages in groups.items()]


# What an outage is: a breaker that opens says nothing of whether its server can be reached.
_OUT: Final = {
    "litellm": "LiteLLM was out of reach",
    "tier": "The breaker of {} was open",
    "store": "The store was unavailable",
}


def _outage(clause: str, outages: list[Mapping[str, Any]]) -> str:
    newest, seconds = outages[-1], span(sum(outage["seconds"] for outage in outages))
    lasts = " so far" if newest["until"] is None else ""
    why = f" ({newest['why']})" if newest["what"] == "store" and "why" in newest else ""
    if len(outages) == 1:
        return f"{clause} from {at(newest['since'])}, for {seconds}{lasts}{why}."
    return f"{clause} {_times(len(outages))}, for {seconds} in all{lasts}{why}."


def _process(report: Report) -> list[str]:
    process = report["process"]
    return [
        *_listed("The proxy", process, _PROCESS, _times, ""),
        *_listed("Memory pressure", process, _SHORT, span),
    ]


_PARTS: Final = _store, _requests, _replies, _loops, _work, _time, _failed, _outages, _process


def _listed(
    subject: str,
    counts: Counts,
    words: Mapping[str, str],
    number: Callable[[float], str] | None = None,
    colon: str = ":",
) -> list[str]:
    """Return a line with the words of each counter that isn't 0; no line if all are."""
    parts = [
        text.format((number or _n)(counts[name]))
        for name, text in words.items()
        if counts.get(name)
    ]
    return [f"{subject}{colon} {', '.join(parts)}."] if parts else []


def span(seconds: float) -> str:
    """Return a duration in its two largest units: 5 h 12 min."""
    remaining = round(seconds)
    parts = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if remaining >= size:
            parts.append(f"{remaining // size} {unit}")
            remaining %= size
    return " ".join(parts[:2]) or f"{seconds:.1f} s"


def at(seconds: float) -> str:
    """Return a time (seconds since 1970) as this machine's HH:MM."""
    return time.strftime("%H:%M", time.localtime(seconds))


def some(number: float, singular: str, plural: str = "") -> str:
    """Return a number with its noun: 2 requests. ``plural``: "": ``singular`` with an s."""
    return f"{_n(number)} {singular if number == 1 else plural or singular + 's'}"


def _n(number: float) -> str:
    return f"{number:,.0f}"


def _times(number: float) -> str:
    return {1: "once", 2: "twice"}.get(int(number), f"{_n(number)} times")


def labels(counts: Counts, counter: str) -> dict[str, float]:
    """Return a counter's numbers by label, the greatest first."""
    prefix = f"{counter}:"
    pairs: Iterable[tuple[str, float]] = (
        (name.removeprefix(prefix), number)
        for name, number in counts.items()
        if name.startswith(prefix)
    )
    return dict(sorted(pairs, key=lambda pair: -pair[1]))
