"""``mlx-stack-proxy replay``: run recorded replies through the stages, without a model.

A record is one line of JSON (docs/operations.md describes it):

    {"request": {…body…}, "reply": {…chat.completion…} | {"chunks": […]} | {"stream": "data: …"}}

``capture_failures`` writes such records, with more keys: how the reply failed if its bytes don't
tell (``failed``), what the proxy knew of the session (``context``), and the ``verdict``, with which
replay compares its own. Unknown keys are ignored. Each recorded reply is played into an attempt, in
the place of a call, and ``next_step.py`` decides what follows. Records are independent, except that
consecutive attempts of one exchange share a session.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import orjson
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from .. import stages
from ..driver.next_step import next_step
from ..engine import client_request, own_words
from ..engine.attempt import Attempt
from ..engine.build_request import build
from ..engine.client_errors import as_data
from ..engine.exchange import Exchange
from ..engine.outcome import Outcome
from ..engine.pipeline import forget
from ..engine.request import Controls, Route
from ..engine.session_id import identify
from ..engine.steps import Deliver, Move, Retry, Start
from ..engine.tier_view import TierView
from ..engine.upstream_answers import completion_in
from ..engine.verdicts import Cut, Failure, LoopDetected, Verdict, reason_of
from ..errors import ProxyError
from ..printable import abridged, printable
from ..settings import Settings
from ..settings_source import load
from ..tool_validation.tools import tool_set
from ..wire import sse
from ..wire.delta import render

CORRECTION_LINES = 2  # how much of a correction is printed below a retry
_RECORDED = "recorded"  # the id of every replayed request
_META = Draft202012Validator(Draft202012Validator.META_SCHEMA)

DELIVERED, REPAIRED, RESCUED = "delivered", "repaired", "rescued"
RETRIED, FAILED, UNREADABLE = "retried", "failed", "unreadable"


class BadRecord(ValueError):
    """A line is not a valid record; the message says why."""


class Replayed(Struct, frozen=True, omit_defaults=True):
    """What the proxy would have done with one record. As JSON it has no empty fields."""

    line: int  # its number in the file, from 1
    action: str  # DELIVERED, REPAIRED, RESCUED, RETRIED, FAILED, or UNREADABLE: not a record
    reason: str = ""
    repairs: tuple[str, ...] = ()  # the rules that repaired a call
    formats: tuple[str, ...] = ()  # the formats of calls that were found in the text
    failures: tuple[dict[str, str], ...] = ()  # of each invalid call: tool, kind, error
    correction: str = ""  # what a retry would have said to the model
    error: str = ""  # why the line is unreadable
    schemas: tuple[str, ...] = ()  # of tools whose schema is invalid: where, and why
    faults: tuple[str, ...] = ()  # exceptions in our stages, which then let the reply through
    request_id: str = ""
    verdict: dict[str, Any] | None = None  # as of ``failures.as_data``
    differs: str = ""  # the recorded verdict, if it is another than `verdict`
    reply: dict[str, Any] | None = None  # the completion that would have been delivered

    def __str__(self) -> str:
        repairs = ", ".join(self.repairs)
        detail = {
            DELIVERED: self.reason or "untouched",
            REPAIRED: repairs,
            RESCUED: "; repaired: ".join(filter(None, [", ".join(self.formats), repairs])),
            UNREADABLE: self.error,
        }.get(self.action, self.reason)
        lines = [f"line {self.line}  {self.action}: {detail}"]
        lines += [f"differs: the recorded verdict was {self.differs}"] if self.differs else []
        lines += [f"{failure['kind']}: {failure['error']}" for failure in self.failures]
        lines += [f"> {line}" for line in self.correction.splitlines()[:CORRECTION_LINES]]
        return "\n    ".join([*lines, *self.schemas, *(f"fault: {one}" for one in self.faults)])


class Replay:
    """Runs any number of records through the stages of a configuration."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stages = stages.build(settings)
        self._next: tuple[Any, int] | None = None  # request and attempt that would follow the last

    def lines(self, source: Iterable[bytes]) -> Iterator[Replayed]:
        """Yield the outcome of each line that is not blank."""
        for number, line in enumerate(source, 1):
            if not line.strip():
                continue
            try:
                yield self.record(orjson.loads(line), number)
            except orjson.JSONDecodeError as error:
                yield Replayed(number, UNREADABLE, error=f"is not valid JSON: {error}")
            except BadRecord as error:
                yield Replayed(number, UNREADABLE, error=str(error))

    def record(self, record: Any, line: int = 0) -> Replayed:
        """Return the outcome of one parsed record. Raises :class:`BadRecord`.

        ``line``: the record's line number, for the outcome.
        """
        exchange = self._exchange(record)
        request_id, number = record.get("request_id"), record.get("attempt")
        if not request_id or (request_id, number) != self._next:
            # All records have one session: drop the state that another exchange has left in it.
            forget(self._stages, exchange.request.session.hash)
        self._next = (request_id, number + 1) if isinstance(number, int) else None
        attempt, faults = self._attempt(exchange, record.get("reply"))
        verdict = exchange.outcomes[-1].verdict
        step = next_step(exchange, self._settings, TierView(), exchange.request.started)
        exchange.steps.append(step if isinstance(step, (Retry, Move)) else Deliver())
        if isinstance(step, Deliver):
            fields = _delivered(exchange, attempt, verdict)
        else:
            fields = {"action": FAILED, "reason": reason_of(verdict) or ""}
            if isinstance(verdict, Failure) and not verdict.answered:
                fields["reason"] += f": {verdict.message}"
            elif isinstance(verdict, LoopDetected):
                fields["reason"] += f": {verdict.detector}, {verdict.repeats}x"
            if isinstance(step, (Retry, Move)):
                sent = build(exchange, self._settings).body["messages"]
                words = own_words.added(sent, exchange.request.body["messages"])
                fields |= {"action": RETRIED, "correction": words.strip()}
        verdict_data = as_data(verdict)
        return Replayed(
            line,
            request_id=str(request_id or ""),
            schemas=tuple(faulty_schemas(exchange.request.tools)),
            faults=tuple(faults),
            failures=tuple((verdict_data or {}).get("failures", ())),
            verdict=verdict_data,
            differs=_difference(record, verdict_data or {}),
            **fields,
        )

    def _attempt(self, exchange: Exchange, reply: Any) -> tuple[Attempt, list[str]]:
        """Play a recorded reply in the place of a call; return its attempt, and stages' faults.

        Raises :class:`BadRecord`.
        """
        faults: list[str] = []

        def note_fault(stage: str, error: Exception) -> None:
            faults.append(f"{stage}: {type(error).__name__}: {error}")

        attempt = Attempt(exchange, build(exchange, self._settings), self._stages, note_fault)
        attempt.began = exchange.request.started
        verdict = attempt.on_request()
        if verdict is None:
            verdict = _play(attempt, reply) or attempt.verdict
            if verdict is None or isinstance(verdict, Cut):
                # The reply alone may not show its failure, if that was judged by the tier's other
                # replies.
                verdict = attempt.settle() or _failure(reply)
        exchange.outcomes.append(attempt.outcome(verdict, None, exchange.request.started))
        return attempt, faults

    def _exchange(self, record: Any) -> Exchange:
        """Return the exchange as it was before the recorded attempt. Raises :class:`BadRecord`."""
        if not isinstance(record, dict):
            raise BadRecord("is not a JSON object")
        if not isinstance(request := record.get("request"), dict):
            raise BadRecord("has no `request` with the body of a chat completion request")
        try:
            # The stages judge a reply alike, streamed or not; a whole one is simpler to print.
            parsed = client_request.parse(orjson.dumps({**request, "stream": False}))
        except ProxyError as error:
            raise BadRecord(f"its request is refused: {error}") from None
        chain = self._settings.reliability.escalation.chain
        tiers = [name for name in (record.get("tier"), parsed.model) if name in chain]
        tier = tiers[0] if tiers else chain[0]
        context = record.get("context") or {}
        try:
            headers = {"x-mlx-stack-session": _RECORDED} if context.get("named") else {}
            request = parsed.with_caller(
                id=_RECORDED,
                session=identify(headers, parsed.body, "", parsed.body["messages"]),
                route=Route((tier,)),
                controls=Controls(bypass=frozenset(context.get("bypass", ()))),
            )
            retried = dict(context.get("retried", {}))
            guided = bool(context.get("guided"))
            return Exchange(
                request,
                outcomes=[Outcome(tier, called=False) for _ in retried],
                steps=[Retry(reason, n, guided=guided) for reason, n in retried.items()],
                start=Start(tier, guided=guided),
            )
        except (AttributeError, TypeError, ValueError) as error:
            raise BadRecord(f"has an invalid `context`: {error}") from None


def _play(attempt: Attempt, reply: Any) -> Verdict | None:
    """Give the recorded reply to the attempt; return a failure that the attempt can't see.

    Raises :class:`BadRecord`.
    """
    if not isinstance(reply, dict):
        raise BadRecord("has no `reply`: a chat.completion, {`chunks`: …} or {`stream`: …}")
    failed = _failure(reply)
    if failed is not None and failed.may_be_ours:
        return failed  # it depends on our request, which the reply's bytes don't show
    if (stream := _raw(reply, "stream")) is not None:
        attempt.feed(stream)
        if not attempt.over and failed is None:
            attempt.end()
    elif failed is not None:
        return failed
    elif (body := _raw(reply, "body")) is not None:
        completion = completion_in(body)
        if not isinstance(completion, dict):
            return completion
        attempt.take_completion(completion)
    elif isinstance(chunks := reply.get("chunks"), list):
        if not all(isinstance(chunk, dict) for chunk in chunks):
            raise BadRecord("has a reply whose `chunks` are not all objects")
        attempt.feed(b"".join(map(render, chunks)) + sse.DONE_FRAME)
    elif isinstance(reply.get("choices"), list) and reply["choices"]:
        attempt.take_completion(reply)
    else:
        forms = "`choices`, `chunks`, `stream`, `body`, `failed`"
        raise BadRecord(f"has a `reply` that holds none of {forms}")
    return None if attempt.over else failed


def _raw(reply: dict[str, Any], name: str) -> bytes | None:
    """Return the bytes that came over the wire: recorded as text, or as base64 if not UTF-8."""
    if isinstance(text := reply.get(name), str):
        return text.encode("utf-8", "replace")
    if isinstance(encoded := reply.get(f"{name}_base64"), str):
        try:
            return base64.b64decode(encoded, validate=True)
        except ValueError:
            raise BadRecord(f"has a `{name}_base64` that is not base64") from None
    return None


def _failure(reply: dict[str, Any]) -> Failure | None:
    """Return the recorded failure that the reply's bytes don't show: a timeout, reset or status."""
    if (recorded := reply.get("failed")) is None:
        return None
    try:
        fields = dict(recorded)
        # Until 0.2 there was a flag for each kind and fault.
        kind = fields.pop("reason", None)
        flags = ("client_fault", "about_ours", "refused")
        clients, ours, refused = (fields.pop(flag, False) for flag in flags)
        if "kind" not in fields:
            fields["kind"] = "unreachable" if refused else kind
            if fields["kind"] == "server_error" and (clients or ours):
                whose = "client_or_ours" if clients and ours else "client" if clients else "ours"
                fields |= {"kind": "refused", "fault": whose}
        return Failure(**fields)
    except (TypeError, ValueError):
        raise BadRecord("has an invalid `failed`") from None


def _difference(record: dict[str, Any], replayed: dict[str, Any]) -> str:
    """Return the recorded verdict in a word if it differs from ``replayed``, else ""."""
    recorded = record.get("verdict", replayed) or {}
    if not isinstance(recorded, dict):
        raise BadRecord("has a `verdict` that is not an object")
    if all(recorded.get(name) == replayed.get(name) for name in ("reason", "detector", "failures")):
        return ""
    return str(recorded.get("detector") or recorded.get("reason") or DELIVERED)


def _delivered(exchange: Exchange, attempt: Attempt, verdict: Verdict | None) -> dict[str, Any]:
    """Return the outcome's fields for a reply that would have been delivered."""
    notes = exchange.reply_notes
    kinds = notes.get("Repairs", "").split(",")
    repairs = tuple(kind for kind in kinds if kind not in ("", "rescued"))
    incidents = exchange.outcomes[-1].remarks.incidents
    rescued = (one for one in incidents if one.kind == "tool_call_rescued")
    formats = tuple(label for one in rescued for label in one.labels)
    action = RESCUED if formats else REPAIRED if repairs else DELIVERED
    reason = reason_of(verdict) or ""
    if truncated := notes.get("Truncated"):
        reason = f"cut: {truncated}"
    elif loop := notes.get("Loop"):  # `on_break: stop` delivers what is left
        reason = f"loop: {loop}"
    elif action == DELIVERED and attempt.reply.mended:
        reason = "half a call was dropped"
    found = {"action": action, "reason": reason, "repairs": repairs, "formats": formats}
    return {**found, "reply": attempt.completion()}


def faulty_schemas(tools: Any) -> Iterator[str]:
    """Yield a sentence for each tool whose schema is invalid; ``tools``: as a request has them.

    The proxy checks what it can of such a schema and lets the rest be. ``jsonschema`` names the
    place: unlike ``jsonschema-rs``, which serves requests, it picks the error that explains most.
    It is too slow for requests, and a hostile schema could hold it.
    """
    offered = tool_set(tools)
    for name in offered.names:
        if fault := _fault_of(json.dumps(offered.compiled(name).raw)):
            yield f'the schema of "{name}" is not a valid JSON Schema at {fault}'


@lru_cache(maxsize=1_024)
def _fault_of(text: str) -> str:
    """Return where and why the schema with this JSON text is invalid; "" if it is valid or null."""
    schema = json.loads(text)
    error = None if schema is None else best_match(_META.iter_errors(schema))
    return "" if error is None else f"{error.json_path}: {abridged(error.message, 200)}"


def summary(outcomes: Sequence[Replayed]) -> dict[str, Any]:
    """Count the records, and how often each action, repair, format and failure occurs."""
    kinds = {
        "actions": (outcome.action for outcome in outcomes),
        "repairs": (kind for outcome in outcomes for kind in outcome.repairs),
        "formats": (kind for outcome in outcomes for kind in outcome.formats),
        "failures": (failure["kind"] for outcome in outcomes for failure in outcome.failures),
    }
    differing = sum(1 for outcome in outcomes if outcome.differs)
    counts = {name: dict(Counter(found).most_common()) for name, found in kinds.items()}
    return {"records": len(outcomes), "differing": differing, **counts}


def add_replay(parser: argparse.ArgumentParser) -> None:
    text = "a file with one record per line; - is standard input"
    parser.add_argument("file", metavar="FILE.jsonl", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object per record")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replay a file; return the exit code: 1 if a line, 2 if the file can't be read, else 0."""
    settings = load(args.config)
    outcomes: list[Replayed] = []
    try:
        source = sys.stdin.buffer if args.file == "-" else open(args.file, "rb")  # noqa: SIM115
    except OSError as error:
        sys.stderr.write(f"replay: {args.file}: {error.strerror}\n")
        return 2
    with source:
        for outcome in Replay(settings).lines(source):
            outcomes.append(replace(outcome, reply=None))
            json_line = json.dumps(to_builtins(outcome), ensure_ascii=False)
            text = json_line if args.json else "\n".join(map(printable, str(outcome).split("\n")))
            print(text.encode("utf-8", "replace").decode())
    total = summary(outcomes)
    if args.json:
        print(json.dumps({"summary": total}))
    else:
        print(f"\nrecords: {total.pop('records')}")
        if other := total.pop("differing"):
            print(f"  verdicts that differ from the recorded ones: {other}")
        for name, counts in total.items():
            if counts:
                print(f"  {name}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}")
    return 1 if any(outcome.action == UNREADABLE for outcome in outcomes) else 0
