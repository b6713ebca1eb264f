"""``mlx-stack-proxy replay``: recorded exchanges through the stages, without a model.

A record is one line of JSON (docs/replay.md describes it):

    {"request": {…body…}, "reply": {…chat.completion…} | {"chunks": […]} | {"stream": "data: …"}}

``capture_failures`` writes such records, with more: how else the reply failed (``failed``), what
was known of the session (``context``), and the ``verdict``, which is then compared. Other keys may
be there. Each record is judged on its own, but for an exchange's attempts that follow each other:
what would have gone out untouched, what mended, and what a retry would have said to the model.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson

from .. import stages
from ..engine import client_request, correction
from ..engine.attempt import Attempt
from ..engine.build_request import build
from ..engine.exchange import Exchange
from ..engine.failures import as_data
from ..engine.next_step import next_step
from ..engine.outcome import Outcome as Ended
from ..engine.request import Controls, Route
from ..engine.session_id import identify
from ..engine.steps import Deliver, Move, Retry
from ..engine.upstream_answers import completion_in
from ..engine.verdicts import Cut, InvalidToolCall, LoopDetected, UpstreamFailed, Verdict, reason_of
from ..errors import ProxyError
from ..escalation.ladder import TierView
from ..frozen import frozen
from ..printable import printable
from ..settings import Settings
from ..settings_source import load
from ..wire import sse
from ..wire.chunks import render

CORRECTION_LINES = 2  # of a correction, beside a retry
_RECORDED = "recorded"  # the request's id

DELIVERED, REPAIRED, RESCUED = "delivered", "repaired", "rescued"
RETRIED, FAILED, UNREADABLE = "retried", "failed", "unreadable"


class BadRecord(ValueError):
    """A line that is no record; the message says why."""


@frozen
class Outcome:
    """What the stages would have done with one record.

    ``action``: delivered, repaired, rescued, retried, failed, or unreadable for a line that is no
    record. ``reply``: the completion that would have been delivered. ``faults``: faults in our own
    stages, which let a reply through. ``verdict``: as ``failures.as_data`` has it. ``differs``:
    what the recorded verdict was, where the record has one that is another.
    """

    line: int
    action: str
    reason: str = ""
    repairs: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    failures: tuple[dict[str, str], ...] = ()
    correction: str = ""
    error: str = ""
    faults: tuple[str, ...] = ()
    request_id: str = ""
    verdict: dict[str, Any] | None = None
    differs: str = ""
    reply: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The outcome as JSON: only what there is to say."""
        named = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {k: v for k, v in named.items() if v not in ("", (), None)}

    def __str__(self) -> str:
        said = {
            DELIVERED: self.reason or "untouched",
            REPAIRED: ", ".join(self.repairs),
            RESCUED: ", ".join(self.formats),
            UNREADABLE: self.error,
        }.get(self.action, self.reason)
        if self.action == RESCUED and self.repairs:
            said += f"; repaired: {', '.join(self.repairs)}"
        lines = [f"line {self.line}  {self.action}: {said}"]
        if self.differs:
            lines.append(f"differs: recorded was {self.differs}")
        lines += [f"{one['kind']}: {one['error']}" for one in self.failures]
        lines += [f"> {line}" for line in self.correction.splitlines()[:CORRECTION_LINES]]
        return "\n    ".join([*lines, *(f"fault: {fault}" for fault in self.faults)])


class Replay:
    """The stages of a configuration, for any number of records."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stages = stages.build(settings)
        self._last: tuple[Any, Any] = (None, None)  # the last record's request and attempt

    def lines(self, source: Iterable[bytes]) -> Iterator[Outcome]:
        """The outcome of each line that is not blank."""
        for number, line in enumerate(source, 1):
            if not line.strip():
                continue
            try:
                yield self.record(_parsed(line), number)
            except BadRecord as error:
                yield Outcome(number, UNREADABLE, error=str(error))

    def record(self, record: Any, line: int = 0) -> Outcome:
        """The outcome of one record. Raises :class:`BadRecord`."""
        exchange = self._exchange(record)
        if not self._goes_on(record):
            # Nothing that another exchange has left behind.
            stages.forget(self._stages, exchange.session.hash)
        faults: list[str] = []
        attempt = Attempt(
            exchange,
            build(exchange, self._settings),
            self._stages,
            lambda stage, error: faults.append(f"{stage}: {type(error).__name__}: {error}"),
        )
        verdict = attempt.on_request()
        if verdict is None:
            verdict = _verdict(attempt, record.get("reply"))
        reason, remarks = reason_of(verdict), attempt.remarks()
        ended = Ended(exchange.tier, verdict, reason, remarks=remarks, reply=attempt.reply)
        exchange.outcomes.append(ended)
        step = next_step(exchange, self._settings, TierView(), exchange.started)
        if isinstance(step, Deliver):
            found = _delivered(exchange, attempt, verdict)
        else:
            found = {"action": FAILED, "reason": _reason(verdict)}
            if isinstance(step, (Retry, Move)):
                said = self._correction(exchange, attempt, verdict, step)
                found |= {"action": RETRIED, "correction": said}
        told = as_data(verdict)
        return Outcome(
            line,
            request_id=str(record.get("request_id") or ""),
            faults=tuple(faults),
            failures=tuple((told or {}).get("failures", ())),
            verdict=told,
            differs=_difference(record, verdict),
            **found,
        )

    def _goes_on(self, record: Any) -> bool:
        """Whether this is the attempt that followed the last record's in the same exchange."""
        before, number = self._last
        self._last = request, attempt = record.get("request_id"), record.get("attempt")
        if not request or request != before:
            return False
        return isinstance(attempt, int) and isinstance(number, int) and attempt == number + 1

    def _exchange(self, record: Any) -> Exchange:
        if not isinstance(record, dict):
            raise BadRecord("is no JSON object")
        request = record.get("request")
        if not isinstance(request, dict):
            raise BadRecord("has no `request` with the body of a chat completion request")
        try:
            # Whole replies are judged the same, streamed or not; whole they are simpler to show.
            parsed = client_request.parse(orjson.dumps({**request, "stream": False}))
        except ProxyError as error:
            raise BadRecord(f"its request is refused: {error}") from None
        chain = self._settings.reliability.escalation.chain
        named = [name for name in (record.get("tier"), parsed.model) if name in chain]
        tier = named[0] if named else chain[0]
        context = record.get("context") or {}
        try:
            headers = {"x-mlx-stack-session": _RECORDED} if context.get("named") else {}
            request = parsed.asked_by(
                id=_RECORDED,
                session=identify(headers, parsed.body, "", parsed.body["messages"]),
                route=Route((tier,)),
                controls=Controls(bypass=frozenset(context.get("bypass", ()))),
            )
            retried = dict(context.get("retried", {}))
            return Exchange(
                request,
                outcomes=[Ended(tier, called=False) for _ in retried],
                steps=[Retry(reason, number) for reason, number in retried.items()],
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise BadRecord(f"has a `context` that makes no sense: {error}") from None

    def _correction(
        self, exchange: Exchange, attempt: Attempt, verdict: Verdict | None, step: Retry | Move
    ) -> str:
        if isinstance(verdict, LoopDetected):
            return step.hint
        if not isinstance(verdict, InvalidToolCall) or not step.correct:
            return ""
        # As a system message of its own the correction stands alone, wherever it will be put.
        body = {**exchange.request.body, "messages": []}
        messages = correction.corrected(
            body,
            attempt.reply,
            verdict,
            role="system",
            placement="user",
            with_schema=isinstance(step, Retry) and step.last,
        )
        return str(messages[0]["content"])


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadRecord(f"is not valid JSON: {error}") from None


def _verdict(attempt: Attempt, reply: Any) -> Verdict | None:
    """What is wrong with the recorded reply."""
    verdict = _play(attempt, reply) or attempt.verdict
    if verdict is None or isinstance(verdict, Cut):
        # What a tier's other replies told of this one, it doesn't tell by itself.
        verdict = attempt.settle() or _failure(reply)
    return verdict


def _play(attempt: Attempt, reply: Any) -> Verdict | None:
    """Give an attempt the recorded reply; what else than that was wrong with it."""
    if not isinstance(reply, dict):
        raise BadRecord("has no `reply`: a chat.completion, {`chunks`: …} or {`stream`: …}")
    failed = _failure(reply)
    if failed is not None and failed.about_ours:
        return failed  # which no byte tells, but what had been sent
    if (stream := _raw(reply, "stream")) is not None:
        attempt.feed(stream)
        if not attempt.over and failed is None:
            attempt.end()
    elif failed is not None:
        return failed
    elif (body := _raw(reply, "body")) is not None:
        completion = completion_in(body)
        if isinstance(completion, UpstreamFailed):
            return completion
        attempt.take_completion(completion)
    elif isinstance(reply.get("chunks"), list):
        if not all(isinstance(chunk, dict) for chunk in reply["chunks"]):
            raise BadRecord("has a reply whose `chunks` are not all objects")
        attempt.feed(b"".join(map(render, reply["chunks"])) + sse.DONE_FRAME)
    elif isinstance(reply.get("choices"), list) and reply["choices"]:
        attempt.take_completion(reply)
    else:
        raise BadRecord(
            "has a `reply` that holds none of `choices`, `chunks`, `stream`, `body`, `failed`"
        )
    return None if attempt.over else failed


def _raw(reply: dict[str, Any], name: str) -> bytes | None:
    """What came over the wire, as text or, where it was none, as base64."""
    if isinstance(text := reply.get(name), str):
        return text.encode("utf-8", "replace")
    if isinstance(coded := reply.get(f"{name}_base64"), str):
        try:
            return base64.b64decode(coded, validate=True)
        except ValueError:
            raise BadRecord(f"has a `{name}_base64` that is no base64") from None
    return None


def _failure(reply: dict[str, Any]) -> UpstreamFailed | None:
    """How a reply failed that no byte of it tells: a timeout, a reset, a status."""
    given = reply.get("failed")
    if given is None:
        return None
    try:
        said = {**given, "unreachable": given.get("refused", False)}
        said.pop("refused", None)
        return UpstreamFailed(**said)
    except TypeError:
        raise BadRecord("has a `failed` that makes no sense") from None


def _difference(record: dict[str, Any], verdict: Verdict | None) -> str:
    """The recorded verdict in a word, if it is another than this one."""
    if "verdict" not in record:
        return ""
    recorded, now = record["verdict"] or {}, as_data(verdict) or {}
    if not isinstance(recorded, dict):
        raise BadRecord("has a `verdict` that is no object")
    if all(recorded.get(name) == now.get(name) for name in ("reason", "detector", "failures")):
        return ""
    return str(recorded.get("detector") or recorded.get("reason") or DELIVERED)


def _delivered(exchange: Exchange, attempt: Attempt, verdict: Verdict | None) -> dict[str, Any]:
    notes = exchange.reply_notes
    repairs = [kind for kind in notes.get("Repairs", "").split(",") if kind not in ("", "rescued")]
    formats = [
        label
        for incident in exchange.outcomes[-1].remarks.incidents
        if incident.kind == "tool_call_rescued"
        for label in incident.labels
    ]
    action = RESCUED if formats else REPAIRED if repairs else DELIVERED
    reason = reason_of(verdict) or ""
    if truncated := notes.get("Truncated"):
        reason = f"cut: {truncated}"
    elif loop := notes.get("Loop"):  # `on_break: stop` delivers what is left
        reason = f"loop: {loop}"
    elif action == DELIVERED and attempt.reply.mended:
        reason = "half a call was dropped"
    return {
        "action": action,
        "reason": reason,
        "repairs": tuple(repairs),
        "formats": tuple(formats),
        "reply": attempt.completion(),
    }


def _reason(verdict: Verdict | None) -> str:
    """Why a reply was not delivered."""
    reason = reason_of(verdict) or ""
    if isinstance(verdict, UpstreamFailed):
        return f"{reason}: {verdict.message}"
    if isinstance(verdict, LoopDetected):
        return f"{reason}: {verdict.detector}, {verdict.repeats}x"
    return reason


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """How many of each action; which rules, formats and failures."""
    found = {
        "actions": [one.action for one in outcomes],
        "repairs": [kind for one in outcomes for kind in one.repairs],
        "formats": [kind for one in outcomes for kind in one.formats],
        "failures": [failure["kind"] for one in outcomes for failure in one.failures],
    }
    return {
        "records": len(outcomes),
        "differing": sum(1 for one in outcomes if one.differs),
        **{name: dict(Counter(kinds).most_common()) for name, kinds in found.items()},
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.jsonl", help="one record a line; - is stdin")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """The command: 0, or 1 if a line could not be read, or 2 if the file could not."""
    out, settings = sys.stdout, load(args.config)
    outcomes: list[Outcome] = []
    try:
        source = sys.stdin.buffer if args.file == "-" else open(args.file, "rb")  # noqa: SIM115
    except OSError as error:
        sys.stderr.write(f"replay: {args.file}: {error.strerror}\n")
        return 2
    with source:
        for outcome in Replay(settings).lines(source):
            outcomes.append(replace(outcome, reply=None))
            told = json.dumps(outcome.as_dict(), ensure_ascii=False)
            text = told if args.json else "\n".join(map(printable, str(outcome).split("\n")))
            out.write(text.encode("utf-8", "replace").decode() + "\n")
    total = summary(outcomes)
    if args.json:
        out.write(json.dumps({"summary": total}) + "\n")
    else:
        out.write(_told(total))
    return 1 if UNREADABLE in total["actions"] else 0


def _told(total: dict[str, Any]) -> str:
    lines = [f"\nrecords: {total['records']}"]
    if total["differing"]:
        lines.append(f"  other verdicts than recorded: {total['differing']}")
    for name in ("actions", "repairs", "formats", "failures"):
        if total[name]:
            counts = ", ".join(f"{count} {kind}" for kind, count in total[name].items())
            lines.append(f"  {name}: {counts}")
    return "\n".join(lines) + "\n"
