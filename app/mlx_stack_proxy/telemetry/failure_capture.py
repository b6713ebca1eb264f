"""Writes failing exchanges as records for ``replay`` (``observability.capture_failures``).

An observer for each exchange keeps the bytes of each reply. At the exchange's end it makes a record
of each attempt: the client's request, the reply as it came over the wire, the verdict, and for a
mended reply also what the client got. A thread writes the records, one a line, if an attempt failed
or a reply was mended. Keys are removed; prompts and replies are not, so the capture is off by
default and the folder private.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import fcntl
import os
import re
import stat
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from .. import log
from ..daemon_threads import Worker
from ..engine.client_errors import as_data
from ..engine.exchange import Exchange
from ..engine.headers import RawHeaders
from ..engine.outcome import Outcome
from ..engine.rate_limit import RateLimit
from ..engine.request import UpstreamRequest
from ..engine.upstream import Response
from ..engine.verdicts import Failure, Verdict
from .observers import Observer

FILE: Final = "failures.jsonl"
OLD_FILE: Final = "failures.old.jsonl"
MAX_RAW: Final = 4 * 1024 * 1024  # bytes kept from the beginning of a reply
MAX_WAITING: Final = 64  # exchanges that wait for the disk; further ones are lost
CLOSE_SECONDS: Final = 5.0
REMOVED: Final = b"[key removed]"
SHORTEST_KEY: Final = 8  # characters; a shorter key ("local") is no secret
# Fields in which LiteLLM's clients send keys, at any depth of a request's body, except in the
# fields of `_SAID`.
_KEY_FIELD = re.compile(
    r"api_?key|secret|password|authorization|credential|(auth|access)_?token|headers", re.IGNORECASE
)
# Fields that are kept as they are, because a replay needs what an agent and its tools have said.
_SAID = frozenset({"messages", "tools", "functions", "response_format"})
_LOOKS_LIKE_A_KEY = re.compile(
    rb"(?<=[Bb]earer )[A-Za-z0-9._~+/=-]{8,}"
    rb"|\b(?:sk|hf|gsk|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[a-z])[-_][A-Za-z0-9_-]{16,}"
    rb"|\bAKIA[0-9A-Z]{16}\b|\bAIza[A-Za-z0-9_-]{35}"
    # A JSON Web Token.
    rb"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}"
    rb"|(?<=PRIVATE KEY-----)[A-Za-z0-9+/=\s\\]{64,}"  # whose line ends are \n in JSON
)
_KEPT_HEADERS = (b"content-type", b"retry-after")
# The fields of a failure that the bytes of the reply don't show.
_FAILED = ("reason", "kind", "message", "status", "fault", "final", "retry_after")


class FailureCapture:
    """Writes one process's records; ``of`` makes an exchange's observer."""

    name = "capture"

    def __init__(self, folder: str, most_bytes: int, keys: Sequence[str], report: Any) -> None:
        """``folder``: is made private. ``most_bytes``: of the two files together.

        ``keys``: never written. ``report``: called with ``name`` for each fault.
        """
        self._folder = Path(folder).expanduser()
        self._max_file_bytes = most_bytes // 2  # in each of the two files
        self._keys = tuple(key for key in keys if len(key) >= SHORTEST_KEY)
        self._report = report
        self._worker: Worker | None = None
        self._waiting = 0  # exchanges that the thread has not written yet
        self._log_limit = RateLimit()  # of the log's lines about faults

    def start(self) -> None:
        self._worker = Worker("mlx-stack-capture")

    async def close(self) -> None:
        """Write the waiting records, for at most ``CLOSE_SECONDS``, and end the thread."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await asyncio.wait([worker.do(lambda: None)], timeout=CLOSE_SECONDS)
            worker.shutdown()

    def of(self, exchange: Exchange) -> Observer:
        return _ExchangeRecorder(self, exchange)

    def keep(self, records: list[dict[str, Any]], owner: str) -> None:
        """Queue an exchange's records for the thread. ``owner``: the client's own key."""
        if self._worker is None or self._waiting >= MAX_WAITING:
            self._failed(OSError("too many wait for the disk"))
            return
        self._waiting += 1
        keys = (*self._keys, owner) if len(owner) >= SHORTEST_KEY else self._keys
        self._worker.call(partial(self._write, records, keys), self._written)

    def _written(self, _: None, error: BaseException | None) -> None:
        self._waiting -= 1
        if isinstance(error, Exception):
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._report(self.name)
        if self._log_limit.allows(type(error).__name__):
            reason = error.strerror if isinstance(error, OSError) else None
            log.fault("capture_fault", error, reason=reason or str(error), said="once a minute")

    # In the thread

    def _write(self, records: list[dict[str, Any]], keys: Sequence[str]) -> None:
        lines = (orjson.dumps(_json(record, keys)) for record in records)
        data = b"".join(_without_keys(line, keys) + b"\n" for line in lines)
        if len(data) > self._max_file_bytes:
            raise OSError(f"{len(data)} bytes of one exchange are more than a file may hold")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(self._folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _make_private(folder)
            fcntl.flock(folder, fcntl.LOCK_EX)  # the workers of one proxy share the files
            path = self._folder / FILE
            if path.exists() and path.stat().st_size + len(data) > self._max_file_bytes:
                path.replace(self._folder / OLD_FILE)
            _append(path, data)
        finally:
            os.close(folder)


def _make_private(folder: int) -> None:
    """Make our folder private. A shared one (/tmp, with its sticky bit) stays unchanged."""
    found = os.fstat(folder)
    ours = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
    if ours and stat.S_IMODE(found.st_mode) & 0o077:
        os.fchmod(folder, 0o700)


class _ExchangeRecorder(Observer):
    """Captures the replies of one exchange, and makes a record of each at its end."""

    name = FailureCapture.name

    def __init__(self, capture: FailureCapture, exchange: Exchange) -> None:
        self._capture = capture
        self._exchange = exchange
        self._tapes: list[_Tape] = []  # of the calls, in their order

    def call_begins(self, request: UpstreamRequest, headers: RawHeaders) -> RawHeaders:
        self._tapes.append(_Tape())
        return headers

    def answered(self, response: Response) -> None:
        # Not the response itself: it holds the tape, and the two would outlive the exchange.
        tape = self._tapes[-1]
        tape.status, tape.headers = response.status, response.headers
        response.tap(tape.take)

    def ended(self, outcome: str) -> None:
        calls = [(at, one) for at, one in enumerate(self._exchange.outcomes) if one.called]
        records = []
        worth_keeping = False  # an attempt failed, or a reply was mended
        for number, (tape, (index, call)) in enumerate(zip(self._tapes, calls, strict=False), 1):
            if call.verdict is None and call.reason is not None:
                continue  # the client has left, so nothing was judged
            record = self._record(tape, index, call) | {"attempt": number, "outcome": outcome}
            worth_keeping = worth_keeping or call.reason is not None or "delivered" in record
            records.append(record)
        if worth_keeping:
            self._capture.keep(records, self._exchange.request.owner)

    def _record(self, tape: _Tape, index: int, call: Outcome) -> dict[str, Any]:
        exchange = self._exchange
        before = copy.copy(exchange)  # as it was when the call ended
        before.steps = exchange.steps[:index]
        record = {
            "time": round(tape.began + call.figures.seconds, 3),
            "request_id": exchange.request.id,
            "session": exchange.request.session.hash,
            "tier": call.tier,
            "seconds": round(call.figures.seconds, 3),
            "request": exchange.request.body,
            "reply": (tape, call.verdict),  # made JSON in the thread
            "verdict": as_data(call.verdict),
            "context": {
                "named": not exchange.request.session.derived,
                "bypass": sorted(exchange.request.controls.bypass),
                "retried": dict(before.retried),
                "guided": bool(call.guided),
            },
        }
        if call.reason is None and call.reply is not None and 0 in call.reply.mended:
            # What the client gets of a reply whose first choice was mended.
            choice = call.reply.choices[0]
            calls = [{"name": one.name, "arguments": one.arguments} for one in choice.tool_calls]
            record["delivered"] = {"text": choice.text, "tool_calls": calls}
        return record


class _Tape:
    """A call's status and headers, and the beginning of its body, at most ``MAX_RAW`` bytes."""

    __slots__ = ("began", "cut_off", "headers", "parts", "size", "status")

    def __init__(self) -> None:
        self.began = time.time()
        self.status: int | None = None  # None: there was no answer
        self.headers: Sequence[tuple[bytes, bytes]] = ()  # names in lower case
        self.parts: list[bytes] = []
        self.size = 0  # bytes read so far
        self.cut_off = False  # whether the body was longer than the limit

    def take(self, data: bytes) -> None:
        self.size += len(data)
        if self.size <= MAX_RAW:
            self.parts.append(data)
        else:
            self.cut_off = True


def _append(path: Path, data: bytes) -> None:
    """Append all of ``data`` or nothing: half a line would spoil the next one, too."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(path, "ab", buffering=0, opener=lambda name, _: os.open(name, flags, 0o600)) as file:
        os.fchmod(file.fileno(), 0o600)
        old_size = os.fstat(file.fileno()).st_size
        unwritten = memoryview(data)
        try:
            while unwritten:
                unwritten = unwritten[os.write(file.fileno(), unwritten) :]
        except OSError:
            file.truncate(old_size)
            raise


def _json(record: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    tape, verdict = record["reply"]
    request = {
        name: value if name in _SAID else _without_key_fields(value)
        for name, value in record["request"].items()
        if not _KEY_FIELD.search(name)
    }
    return {**record, "request": request, "reply": _reply(tape, verdict, keys)}


def _without_key_fields(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_key_fields(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {k: _without_key_fields(v) for k, v in value.items() if not _KEY_FIELD.search(k)}


def _reply(tape: _Tape, verdict: Verdict | None, keys: Sequence[str]) -> dict[str, Any]:
    """Return a reply as ``replay`` reads it: the bytes from the wire, and why the call failed."""
    reply: dict[str, Any] = {}
    if tape.status is not None:
        content_type = dict(reversed(tape.headers)).get(b"content-type", b"").lower()
        name = "body"
        if b"event-stream" in content_type and tape.status < 400:
            name = "stream"
        else:
            reply["status"] = tape.status
        kept = [header for header in tape.headers if header[0] in _KEPT_HEADERS]
        reply["headers"] = {name.decode(): value.decode("latin-1") for name, value in kept}
        raw = _without_keys(b"".join(tape.parts), keys)  # before base64 hides them
        try:
            reply[name] = raw.decode()
        except UnicodeDecodeError:
            reply[f"{name}_base64"] = base64.b64encode(raw).decode()
        if tape.cut_off:
            reply["cut_off"] = True
    if isinstance(verdict, Failure) and not verdict.answered and verdict.error is None:
        reply["failed"] = {name: getattr(verdict, name) for name in _FAILED}
    return reply


def _without_keys(line: bytes, keys: Sequence[str]) -> bytes:
    for key in keys:
        line = line.replace(key.encode(), REMOVED)
    return _LOOKS_LIKE_A_KEY.sub(REMOVED, line)
