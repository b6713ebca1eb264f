"""One upstream call's reply, from upstream's bytes to the client's bytes; without I/O.

:meth:`Attempt.feed` takes upstream's bytes, parses them into chunks, passes each chunk to the reply
and the stages, and returns the bytes that the gate releases. The attempt is over when ``verdict``
is set or ``done`` is true. Then :meth:`Attempt.settle` lets the stages mend and judge the reply,
and :meth:`Attempt.rest` (a stream) or :meth:`Attempt.completion` (one object) returns what remains
to be delivered.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence, Set
from typing import Any

import orjson

from ..errors import invalid
from ..wire import sse, thoughts
from ..wire.chat import ChatRenderer
from ..wire.chunks import ChunkReader, MalformedChunk
from ..wire.delta import OTHER, Delta, UpstreamErrorEvent, render
from ..wire.dialect import DialectRenderer
from ..wire.reply import MAX_CALLS, Reply
from ..wire.usage import UsageCheck
from . import own_words
from .exchange import Exchange
from .gate import MAX_HELD, Gate
from .headers import RawHeaders
from .outcome import Committed, Figures, Outcome, Remarks
from .pipeline import FaultReport, Pipeline, Stage
from .request import UpstreamRequest
from .spent import TokensUsed, tokens_used_by
from .upstream_answers import failure_inside, repetition_inside
from .verdicts import Cut, Failure, Verdict, empty, reason_of, rejected

LONG_READ = 32 * 1024  # bytes; watching this much text may take 10 ms
MAX_STREAM = 512 * 1024 * 1024  # bytes; no model writes this much
_TOO_LONG = Failure(
    "server_error", "upstream sent more than any reply needs", status=200, final=True
)
_TOO_MANY = Cut("too_many_calls", "tool_calls")


class Attempt:
    """One attempt: its request, the reply so far, and the held part of the reply.

    The driver records its upstream call here, with times on the event loop's clock.
    """

    waited = 0.0  # seconds waited for a place on the tier
    placed = True  # whether it got one
    began: float | None = None  # None: no call has been made
    first_byte: float | None = None  # when the reply began; None: nothing has arrived
    # For the tier's breaker: when the call began by the wall clock, and whether it is a probe.
    at, probe = math.inf, False
    _bytes_fed = 0  # bytes of upstream's stream so far
    _held_bytes = 0  # of frames held until the reply's end, for a streaming client

    def __init__(
        self,
        exchange: Exchange,
        request: UpstreamRequest,
        stages: Sequence[Stage],
        report: FaultReport,
    ) -> None:
        committed = exchange.committed
        self._client_request = exchange.request
        self._has_earlier_text = exchange.text_committed
        self._separator = thoughts.separator_after(committed.text) if committed else ""
        self.request = request
        self.notes: dict[str, str] = {}  # response headers that the driver adds to the stages'
        self.public: RawHeaders = []  # LiteLLM's response headers for the client
        self._content = b""  # the encoded request, until it is taken
        self._own_words = ""  # what we added at the end of the request's messages
        self.reply = Reply()
        # During the reply: why the attempt ended early. After `settle`: the stages' verdict on the
        # reply or, without one, the cut that ended it.
        self.verdict: Verdict | None = None
        self.done = False  # the reply has ended
        # The `id` and `created` of the first chunk released; None: nothing is out yet.
        self.identity: dict[str, Any] | None = None
        self._other_committed = False  # a part of a refusal, audio or an image was released
        self._expected_choices = exchange.request.body.get("n") or 1
        self._pipeline = Pipeline(stages, exchange, report)
        self._frames = sse.FrameReader()
        model = request.body.get("model") or exchange.tier
        self._usage_check = UsageCheck(request.body, request.window, self.reply)
        self._reader = ChunkReader(
            f"chatcmpl-{exchange.request.id}",
            model,
            self._usage_check,
            self._expected_choices,
            joins=not exchange.request.stream,
        )
        self._renderer = self._new_renderer(exchange, committed)
        hold_whole = exchange.hold_whole or self._has_earlier_text or self._pipeline.hold_whole()
        self._gate = Gate(
            hold_whole=hold_whole,
            text_holds=() if hold_whole else self._pipeline.text_holds(),
            report=functools.partial(report, "text_hold"),
            split=self._renderer.split,
        )

    def _new_renderer(
        self, exchange: Exchange, committed: Committed | None
    ) -> ChatRenderer | DialectRenderer:
        top, request = self._reader.top, exchange.request
        identity = committed.identity if committed is not None else {}
        if exchange.encoder is not None:
            return DialectRenderer(exchange.encoder, top, continues=bool(identity))
        return ChatRenderer(
            top,
            identity,
            streams=request.stream,
            include_usage=request.include_usage,
            legacy_functions=request.legacy_functions,
        )

    @property
    def tier(self) -> str:
        return self.request.tier

    def remarks(self) -> Remarks:
        """The stages' remarks so far, with the driver's notes."""
        remarks = self._pipeline.remarks()
        remarks.notes |= self.notes
        return remarks

    def spent(self, verdict: Verdict | None, *, count_cached: bool) -> TokensUsed | None:
        """Return the tokens that the call used; None: there was no call, or no server took it.

        ``count_cached``: see :func:`tokens_used_by`.
        """
        if self.began is None or (isinstance(verdict, Failure) and verdict.not_taken):
            return None
        return tokens_used_by(self._client_request, self.reply, count_cached=count_cached)

    def outcome(
        self, verdict: Verdict | None, spent: TokensUsed | None, now: float, *, left: bool = False
    ) -> Outcome:
        """Return how the attempt ended. ``left``: the client disconnected."""
        status = None if left else 200
        began = self.began if self.began is not None else now
        figures = Figures(
            status=verdict.status if isinstance(verdict, Failure) else status,
            seconds=now - began,
            silent=(self.first_byte or now) - began,
            waited=self.waited,
            placed=self.placed,
            tokens_in=spent.prompt if spent is not None else 0,
            tokens_out=spent.output if spent is not None else 0,
        )
        return Outcome(
            self.tier,
            verdict,
            "client_left" if left else reason_of(verdict),
            called=self.began is not None,
            figures=figures,
            committed=self.committed,
            remarks=self.remarks(),
            reply=self.reply,
        )

    @property
    def committed(self) -> Committed | None:
        """What this attempt has released to the client so far; None if nothing."""
        if self.identity is None:
            return None
        choice = self.reply.choices.get(0)
        text = choice.text[: self.reply.flowed] if choice else ""
        return Committed(text, self.identity, self._other_committed)

    def continue_stream(self, committed: Committed) -> None:
        """Continue the stream of another attempt: its chunks' ``id`` and ``created`` stay."""
        self._renderer.continue_stream(committed.identity)

    @property
    def finished(self) -> bool:
        """Whether every choice has its finish_reason; usage and ``[DONE]`` may still come."""
        return self.reply.finished and len(self.reply.choices) >= self._expected_choices

    @property
    def words_follow_result(self) -> bool:
        """Whether our words are a user message right after a tool result in the sent request."""
        asked = self._client_request.body["messages"]
        return own_words.stand_after_result(self.request.body["messages"], asked)

    @property
    def over(self) -> bool:
        """Whether the attempt accepts no more of upstream's bytes."""
        return self.done or self.verdict is not None

    def on_request(self) -> Verdict | None:
        """Let the stages rewrite the request; return a refusal if it can't be written as JSON."""
        self._pipeline.on_request(self.request)
        asked = self._client_request.body["messages"]
        self._own_words = own_words.hold_back(self._gate, self.request.body["messages"], asked)
        try:
            self._content = orjson.dumps(self.request.body)
        except orjson.JSONEncodeError:  # orjson reads deeper nesting than it writes
            return rejected(invalid("the request is nested too deeply"))
        return None

    def take_content(self) -> bytes:
        """Return the encoded request and free its memory; call it once."""
        content, self._content = self._content, b""
        return content

    def is_slow_to_feed(self, data: bytes) -> bool:
        """Whether to call :meth:`feed` in a thread: one event may hold a text of any length."""
        return len(data) + self._frames.waiting > LONG_READ

    def feed(self, data: bytes) -> bytes:
        """Process bytes of upstream's event stream; return the bytes to send now."""
        self._bytes_fed += len(data)
        if self._bytes_fed > MAX_STREAM:
            self.verdict = _TOO_LONG
            return b""
        out: list[bytes] = []
        try:
            self._process(self._reader.read_all(self._frames.feed(data)), out)
        except (MalformedChunk, sse.FrameTooLong) as error:
            self.verdict = Failure("server_error", f"upstream sent {error}", status=200)
        return b"".join(out)

    def end(self) -> bytes:
        """Process the end of upstream's stream; return the bytes that its last event releases."""
        out: list[bytes] = []
        if (tail := self._frames.finish()) is not None and not self.over:
            try:
                self._process(self._reader.read_all([sse.ended(tail)]), out)
            except MalformedChunk:
                self.verdict = _broken("inside an event")
        if not self.over:
            self._end_of_stream()
        return b"".join(out)

    def take_completion(self, completion: dict[str, Any]) -> None:
        """Process an unstreamed JSON reply; nothing goes out before its end."""
        self.reply.whole = True
        try:
            self._process(self._reader.read_completion(completion), [])
        except (MalformedChunk, orjson.JSONEncodeError):
            message = "upstream sent an answer that is nested too deeply"
            self.verdict = Failure("server_error", message, status=200)

    def is_slow(self) -> bool:
        """Whether to call :meth:`settle` in a thread, because it may take many milliseconds."""
        return self.reply.is_long or self._pipeline.is_slow(self.reply)

    def settle(self) -> Verdict | None:
        """Let the stages mend and judge the reply, complete or cut; return the verdict."""
        cut, reply = self.verdict, self.reply
        if isinstance(cut, Cut):
            reply.cut = True
            for index in self._begun_choices():
                reply.choice(index)
            for index, choice in reply.choices.items():  # a cut choice is always rewritten
                choice.finish_reason = choice.finish_reason or cut.finish_reason
                reply.mended.add(index)
        if reply.usage is None:
            reply.generated = reply.written()  # for the estimate of its cost
        self._complete_usage()
        self.verdict = self._pipeline.end(reply) or cut
        if self.verdict is _TOO_MANY:
            self.verdict = _broken(f"by a choice with more than {MAX_CALLS} calls")
        if self.verdict is None and own_words.are_all(reply, self._own_words):
            self.verdict = empty("parroted")
        if self.verdict is None:
            self._renderer.unpack()
        return self.verdict

    def rest(self, note: bytes = b"", metadata: dict[str, Any] | None = None) -> bytes:
        """Return the bytes that a streaming client still lacks, up to and including ``[DONE]``.

        ``note``: an SSE comment to send before that end. ``metadata``: added to the last chunk as
        ``mlx_stack``.
        """
        for index, choice in self.reply.choices.items() if self._has_earlier_text else ():
            # The text continues an earlier attempt's; next to calls it is dropped.
            has_text = choice.text and not choice.tool_calls
            choice.text = self._separator + choice.text if has_text else ""
            self.reply.mended.add(index)
        for delta in self._gate.close():
            self._renderer.hold(delta)
        return self._renderer.rest(self.reply, note, metadata)

    def completion(self, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the reply as one object, for a client that does not stream."""
        return self._renderer.whole(self.reply, metadata)

    def _process(self, deltas: Iterable[Delta], out: list[bytes]) -> None:
        """Process frames; append the bytes to send now to ``out``."""
        for delta in deltas:
            if not delta.done:
                self._take(delta, out)
            elif not self.over:
                if self.reply.usage is not None:  # the server meant to end here
                    self.reply.finish_all()
                self._end_of_stream()
                self._renderer.end(delta.raw)
            if (self.verdict is not None or self.done) and not self.reply.whole:
                return

    def _take(self, delta: Delta, out: list[bytes]) -> None:
        reply, gate = self.reply, self._gate
        reply.take(delta)
        verdict = _TOO_MANY if reply.overfull else self._pipeline.watch(reply, delta)
        if delta.error is not None:
            verdict = self._failure_inside(delta.error)
        if reply.whole:
            # The model has written everything already, so mending does what a cut would.
            if not isinstance(verdict, Cut) or verdict is _TOO_MANY:
                self.verdict = self.verdict or verdict
            self._hold(delta)
        elif verdict is not None:
            self.verdict = verdict
            if isinstance(verdict, Cut):
                self._hold(delta)
        else:
            for one in gate.push(delta) if not gate.closed else ():
                if self.identity is None:
                    top = self._reader.top()
                    self.identity = {key: top[key] for key in ("id", "created")}
                self._other_committed = self._other_committed or bool(one.kinds & OTHER)
                reply.release(one)
                out.append(self._renderer.release(one))
            if gate.closed:
                self._hold(delta)
            if self._held_bytes + gate.waiting_bytes > MAX_HELD:
                self.verdict = _TOO_LONG

    def _failure_inside(self, error: UpstreamErrorEvent) -> Verdict:
        """Return the verdict on an error in a stream."""
        # A chat template refuses our words before the reply begins, never later.
        may_be_ours = self.words_follow_result and not self.reply.choices
        message = error.message or error.type
        return repetition_inside(message) or failure_inside(
            message, words_follow_result=may_be_ours, tools=bool(self._client_request.tools)
        )

    def _hold(self, delta: Delta) -> None:
        """Hold a frame until the reply's end, after those that the gate held."""
        if self._gate.waiting or not self._gate.closed:
            for earlier in self._gate.close():
                self._renderer.hold(earlier)
        if self._client_request.stream:
            self._held_bytes += len(delta.raw)
        self._renderer.hold(delta)

    def _complete_usage(self) -> None:
        """Add a usage by our own count if the client expects one and upstream's is missing.

        A cut reply has no usage, or one that doesn't count the last pieces. A complete reply gets
        one only for a client that doesn't stream, or if upstream's usage can't be true.
        """
        reply = self.reply
        expected = not self._client_request.stream or self._usage_check.refused
        if reply.cut:
            if reply.usage is not None and reply.counted == reply.pieces:
                return
        elif reply.usage is not None or self.verdict is not None or not expected:
            return
        spent = tokens_used_by(self._client_request, self.reply, count_cached=True)
        tokens = {"prompt_tokens": spent.prompt, "completion_tokens": spent.output}
        usage = self.reply.usage_fields = {**tokens, "total_tokens": spent.total}
        raw = render({**self._reader.top(), "choices": [], "usage": usage})
        self._hold(Delta(raw, usage=usage))

    def _begun_choices(self) -> Set[int]:
        """The choices that have begun, even with just a role; none if ``n`` is 1."""
        return self._reader.begun if self._expected_choices > 1 else frozenset()

    def _end_of_stream(self) -> None:
        # A stream that ends without a finish_reason is broken: the server may have died.
        if self.reply.finished and self._begun_choices() <= self.reply.choices.keys():
            self.done = True
        elif self.reply.choices:
            self.verdict = _broken("before the reply was finished")
        else:
            self.verdict = _broken("before the reply began")


def _broken(place: str) -> Failure:
    return Failure("server_error", f"the stream broke off {place}", status=200)
