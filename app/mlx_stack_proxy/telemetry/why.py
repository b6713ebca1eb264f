"""Explain one exchange in a paragraph: what was asked, what each attempt did, and what to do now.

``why()`` is a pure function of a record's data (``engine/record.py``), so it works as long as the
store keeps the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from .report_words import REFUSED, at, some, span

Data = Mapping[str, Any]
LEAST_SECONDS: Final = 0.1  # that are worth a word
MOST_NAMED: Final = 5  # tools, and runs of equal attempts from the first on
# What a tier did, by the reason why its attempt failed.
_DID: Final = {
    "tool_validation_failure": "wrote a tool call that can't be delivered",
    "loop_detected": "kept looping",
    "timeout": "was silent for too long",
    "server_error": "returned a server error",
    "unreachable": "could not be reached, because LiteLLM accepted no connection",
    "context_overflow": "has a window too small for the prompt",
    "empty_response": "wrote nothing that a client could use",
    "output_truncated": "reached a limit before it wrote anything usable",
    "client_error": "refused the request",
    "client_left": "was still working when the client disconnected",
    "upstream_unavailable": "was still working when the proxy stopped",
    "tier_busy": "had no free place",
    "tier_degraded": "was skipped because its breaker was open",
    "memory_pressure": "was not called because memory was low",
    "budget_exceeded": "was not called because a token budget was spent",
}
_GOT: Final = {
    "right_at_once": "The client got the reply as the model wrote it",
    "repaired": "The client got the repaired reply",
    "found_in_text": "The client got the tool call that the model had written as text",
    "confirmed": "The client got the reply after a second reply had confirmed it",
    "retried_right": "The client got a correct reply after a retry on the same tier",
    "escalated_right": "The client got a correct reply from another tier",
    "went_out_broken": "The client got a reply that is probably broken: no tier had a better one",
}
_CAPTURE: Final = "Set `observability.capture_failures: true` to keep what the model writes"
CAPTURED: Final = "See what the model wrote: open this request on the page at /mlx-stack/"
# What to do, by why the request was refused, by its error's type, by its last attempt's reason.
_DO: Final = {
    "budget_exceeded": "Raise the budget in `reliability.token_budget`, or wait for free tokens",
    "memory_pressure": "See what uses the memory: `mlx-stack-proxy pressure`",
    "tier_busy": "Send fewer requests at once, or raise the tier's `max_concurrency`",
    "tier_degraded": "See why its server failed: `mlx-stack-proxy events --kind tier_degraded`",
    "unreachable": "Start LiteLLM, then run `mlx-stack-proxy check`",
    "stopping": "Send the request again: the proxy was stopping",
    "error": "This is a fault of the proxy: a line `fault` in its log shows where",
    "loop_detected": "Give the agent a clearer task, or a stronger tier",
    "tool_validation_failed": f"{_CAPTURE}, or start with a stronger tier",
    "client_left": "Raise the client's timeout, or use a faster tier",
    "client_error": "Fix the client's request: no tier was at fault",
    "timeout": "Raise the tier's `first_token_timeout`, or use a smaller model",
    "context_overflow": "Shorten the prompt, or add a tier with a larger window",
    "server_error": "Check the model server's log at that time",
    "empty_response": f"{_CAPTURE}, or start with a stronger tier",
    "output_truncated": "Raise `token_budget.max_output_tokens`, or let the model reason less",
}


def why(event: Data, *, capturing: bool = False) -> str:
    """Return the paragraph. ``event``: the record's event, or the same without a number.

    ``capturing``: whether ``observability.capture_failures`` is on, so that it isn't advised.
    """
    record = event["detail"]
    to_do = _to_do(event, record)
    to_do = to_do.replace(_CAPTURE, CAPTURED) if capturing else to_do
    sentences = [_asked(event, record), *_attempts(record), _got(record), to_do]
    return " ".join(f"{sentence}." for sentence in sentences if sentence)


def _asked(event: Data, record: Data) -> str:
    begun = at(event["time"] - record.get("seconds", 0))
    asked = f"At {begun} {event['agent'] or 'a client'} asked"
    if model := record.get("model"):
        asked += f" for {model}"
    asked += f" with {some(record.get('messages', 0), 'message')}"
    if offered := record.get("tools_offered", 0):
        names = record["tools"][:MOST_NAMED]
        names += [f"{offered - MOST_NAMED} more"] if offered > MOST_NAMED else []
        asked += f" and {some(offered, 'tool')} ({', '.join(names)})"
    if first := record.get("passed_over"):
        reason = record["escalation_reason"]
        asked += f"; {first} {_DID.get(reason, f'was skipped ({_words(reason)})')}"
    return asked


def _attempts(record: Data) -> Iterator[str]:
    """Yield a sentence for each run of equal attempts on a tier."""
    attempts: list[Data] = record.get("attempts", [])
    runs = [list(run) for _, run in groupby(attempts, lambda one: (one["tier"], *_found(one)))]
    subject = ""
    for number, run in enumerate(runs):
        if MOST_NAMED <= number < len(runs) - 1:
            if number == MOST_NAMED:
                others = sum(map(len, runs[MOST_NAMED:-1]))
                yield f"{some(others, 'more attempt')} also failed"
            continue
        yield f"{subject or 'Tier ' + run[0]['tier']} {_did(run)}"
        again = run[-1].get("then") == "retry"
        following = runs[number + 1][0]["tier"] if number + 1 < len(runs) else ""
        subject = "On a retry, it" if again else f"Then {following}"


def _did(run: list[Data]) -> str:
    did, *figures = _found(run[0])
    if len(run) > 1:
        figures.append(f"{len(run)} attempts")
    if (waited := sum(attempt.get("waited", 0) for attempt in run)) >= 1:
        figures.append(f"{span(waited)} in the queue")
    if (seconds := sum(attempt["seconds"] for attempt in run)) >= LEAST_SECONDS:
        figures.append(span(seconds))
    return f"{did} ({', '.join(figures)})" if figures else did


def _found(attempt: Data) -> list[str]:
    """Return what the tier did, and what was found; equal lists make one sentence."""
    reason = attempt["reason"]
    if reason is None:
        did = "answered"
    elif attempt.get("doubted"):
        did = "wrote a reply that may be wrong"
    else:
        did = _DID.get(reason, _words(reason))
    status, repairs = attempt.get("status"), attempt.get("repairs")
    figures = [
        attempt.get("wrong", ""),
        "" if status in (None, 200) else f"status {status}",
        f"repaired: {', '.join(repairs)}" if repairs else "",
    ]
    return [did, *filter(None, figures)]


def _got(record: Data) -> str:
    seconds = record.get("seconds", 0)
    took = f", after {span(seconds)}" if seconds >= LEAST_SECONDS else ""
    outcome = record["outcome"]
    if outcome == "ok":
        return f"{_GOT.get(record.get('way', ''), 'The client got the reply')}{took}"
    if outcome == "client_left":
        return f"The client disconnected before its reply was complete{took}"
    cause = record.get("refused_for", "")
    scope = f" of the {record['budget']}" if record.get("budget") else ""
    because = f": {REFUSED.get(cause, _words(cause))}{scope}" if cause else ""
    status = record.get("status", "?")
    got = "an error after its reply had begun" if status == 200 else f"status {status}"
    return f"The client got {got} ({outcome}{because}){took}"


def _to_do(event: Data, record: Data) -> str:
    outcome = record["outcome"]
    if outcome == "ok" and record.get("way") != "went_out_broken":
        return "Nothing needs to be done"
    if outcome == "client_error":
        return _DO[outcome]
    attempts: list[Data] = record.get("attempts", [])
    reasons = [attempt["reason"] for attempt in attempts if attempt["reason"]]
    if any("out of memory" in attempt.get("wrong", "") for attempt in attempts):
        return "Give the model server more memory, a smaller model, or a smaller window"
    if record.get("budget") == "session":
        return f"Reset the session: `mlx-stack-proxy sessions {event['session'][:12]} --delete`"
    if reasons[-1:] == ["server_error"] and attempts[-1].get("status") in (401, 403):
        return "Correct the key that the proxy sends, then run `mlx-stack-proxy check`"
    for word in (record.get("refused_for"), outcome, *reversed(reasons)):
        if word in _DO:
            return _DO[word]
    return _CAPTURE


def _words(word: str) -> str:
    return word.replace("_", " ")
