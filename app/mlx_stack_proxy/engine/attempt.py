"""One upstream call's reply, from its bytes to what the client gets; no I/O.

Bytes go in by :meth:`Attempt.feed`; what may go out comes back. The attempt is over when
``verdict`` is set or ``done`` is true; then :meth:`Attempt.settle` lets the stages mend and judge,
and :meth:`Attempt.rest` or :meth:`Attempt.completion` gives what is left to deliver.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence, Set
from typing import Any

import orjson

from ..errors import invalid
from ..token_budget.budgets import spent_by
from ..wire import sse
from ..wire.chunk_form import ChunkForm
from ..wire.chunks import Chunk, MalformedChunk, chunks_of_completion, made, read_frame, render
from ..wire.client_view import ClientView
from ..wire.completion import CompletionBuilder, apply_mended
from ..wire.events import Event, Finish, OtherDelta, RefusalDelta, UpstreamErrorEvent, Usage
from ..wire.reply import Reply
from ..wire.rewrite import rewritten, without_reasoning
from ..wire.usage import UsageCheck
from .exchange import Exchange
from .gate import Gate
from .headers import RawHeaders
from .outcome import Committed, Remarks
from .pipeline import FaultReport, Pipeline, Stage
from .request import UpstreamRequest
from .upstream_answers import failure_inside, repetition_inside
from .verdicts import Cut, Rejected, UpstreamFailed, Verdict

_OTHER = (RefusalDelta, OtherDelta)
_DEEP = 200  # a chunk with fewer brackets is not nested too deeply to be written again
_OF_ONE_CHUNK = frozenset({"choices", "usage"})


class Attempt:
    """The state of one attempt.

    ``notes``: headers that the loop adds to the stages'. ``public``: what LiteLLM's headers say to
    the client.
    """

    def __init__(
        self,
        exchange: Exchange,
        request: UpstreamRequest,
        stages: Sequence[Stage],
        report: FaultReport,
    ) -> None:
        committed = exchange.committed
        self._client_request = exchange.request
        self._after_text = exchange.text_is_out
        self._continues = committed is not None
        self.request = request
        self.notes: dict[str, str] = {}
        self.public: RawHeaders = []
        self._content = b""
        self.reply = Reply()
        self.verdict: Verdict | None = None
        self.done = False
        self.identity: dict[str, Any] | None = None
        self._other_out = False
        self._top: dict[str, Any] = {}  # what the fields of a chunk made by us are
        self._expected = exchange.request.body.get("n") or 1  # choices
        self._done_frame = sse.DONE_FRAME
        self._pipeline = Pipeline(stages, exchange, report)
        self._watched = self._pipeline.watches_events
        # A client that doesn't stream gets one object: nothing has to be kept of each chunk.
        self._builder = None if exchange.request.stream else CompletionBuilder()
        self._gate = self._new_gate(report, exchange)
        self._reader = sse.FrameReader()
        model = request.body.get("model") or exchange.tier
        self._usage_check = UsageCheck(request.body, request.window, self.reply)
        self._form = ChunkForm(f"chatcmpl-{exchange.id}", model, self._usage_check)
        self._encoder = exchange.outgoing.encoder if exchange.outgoing is not None else None
        self._view = self._view_with(committed.identity if committed else {})

    def _new_gate(self, report: FaultReport, exchange: Exchange) -> Gate:
        hold_whole = exchange.hold_whole or self._after_text or self._pipeline.hold_whole()
        text_hold = None if hold_whole else self._pipeline.text_hold()
        told = functools.partial(report, "text_hold")
        return Gate(hold_whole=hold_whole, text_hold=text_hold, report=told)

    def remarks(self) -> Remarks:
        """What the loop and the stages have said so far."""
        said = self._pipeline.remarks()
        said.notes |= self.notes
        return said

    @property
    def committed(self) -> Committed | None:
        """What this attempt has let out so far; None if nothing."""
        if self.identity is None:
            return None
        choice = self.reply.choices.get(0)
        text = choice.text[: self._gate.flowed] if choice else ""
        return Committed(text, self.identity, self._other_out)

    def go_on_from(self, committed: Committed) -> None:
        """Another attempt's beginning has gone out, though none of its text: this one follows."""
        self._view = self._view_with(committed.identity)

    def _view_with(self, identity: Mapping[str, Any]) -> ClientView:
        request = self._client_request
        return ClientView(
            identity,
            include_usage=request.include_usage,
            legacy_functions=request.legacy_functions,
            encoder=self._encoder,
        )

    @property
    def finished(self) -> bool:
        """Whether all choices have their finish_reason; usage and ``[DONE]`` may still come."""
        return self.reply.finished and len(self.reply.choices) >= self._expected

    @property
    def speaks_behind_result(self) -> bool:
        """Whether words of ours are a user message behind a tool result in what it sends.

        Not where the client's own stands there, to which ours were added.
        """
        messages, given = self.request.body["messages"], self._client_request.body["messages"]
        if [message.get("role") for message in messages[-2:]] != ["tool", "user"]:
            return False
        return not any(messages[-2] is one for one in given[-2:-1])

    @property
    def over(self) -> bool:
        return self.done or self.verdict is not None

    def on_request(self) -> Verdict | None:
        """Let the stages see and rewrite the request, before :meth:`take_content`."""
        if verdict := self._pipeline.on_request(self.request):
            return verdict
        try:
            self._content = orjson.dumps(self.request.body)
        except orjson.JSONEncodeError:  # orjson reads deeper nesting than it writes
            return Rejected(invalid("the request is nested too deeply"))
        return None

    def take_content(self) -> bytes:
        """What is sent of the request. It is given but once: a reply may stream for long, and what
        is sent is as long as the request, and takes up to eight times that as orjson writes it.
        """
        content, self._content = self._content, b""
        return content

    def feed(self, data: bytes) -> bytes:
        """Take bytes of an event stream; the bytes that may go out now."""
        out: list[bytes] = []
        try:
            for frame in self._reader.feed(data):
                if self.done or self.verdict is not None:
                    break
                self._take(self._read(frame), out)
        except (MalformedChunk, sse.FrameTooLong) as error:
            self.verdict = UpstreamFailed("server_error", f"upstream sent {error}", status=200)
        return b"".join(out) if len(out) != 1 else out[0]

    def take_completion(self, completion: dict[str, Any]) -> None:
        """Take a whole JSON reply (upstream did not stream). Nothing goes out before its end."""
        try:
            for chunk in chunks_of_completion(completion, self._form):
                if chunk.done:
                    if not self.over:
                        self._end_of_stream()
                    break
                for event in chunk.events:
                    verdict = self._show(event)
                    # All has been generated: mending takes out what a cut is about.
                    if not isinstance(verdict, Cut):
                        self.verdict = self.verdict or verdict
                self._keep(chunk)
        except (MalformedChunk, orjson.JSONEncodeError):
            said = "upstream sent an answer that is nested too deeply"
            self.verdict = UpstreamFailed("server_error", said, status=200)

    def end(self) -> bytes:
        """Upstream has closed the stream; the bytes that its last event lets go out."""
        out: list[bytes] = []
        rest = self._reader.finish()
        if rest is not None and not self.over:
            try:
                self._take(self._read(sse.ended(rest)), out)
            except MalformedChunk:
                self.verdict = _broken("inside an event")
        if not self.over:
            self._end_of_stream()
        return b"".join(out)

    def settle(self) -> Verdict | None:
        """The stages mend and judge the reply that is whole now, or as whole as it gets."""
        cut = self.verdict
        if isinstance(cut, Cut):
            self._finish(cut)
            self.reply.cut = True
        if self.reply.usage is None:
            self.reply.generated = self.reply.written()  # by which its cost is estimated
        if self._lacks_usage():
            self._keep_usage()
        self.reply.flowed = self._gate.flowed
        self.verdict = self._pipeline.end(self.reply) or cut
        return self.verdict

    def rest(self, note: bytes = b"", metadata: dict[str, Any] | None = None) -> bytes:
        """What is still held, for a client that streams, up to and with ``[DONE]``.

        ``note``: a comment that goes before it. ``metadata``: joins the last chunk, as
        ``mlx_stack``.
        """
        held = self._final()
        if metadata is not None:
            _join_metadata([chunk for chunk in held if self._view.shows(chunk)], metadata)
        frames = [self._view.frame(chunk) for chunk in held]
        return b"".join([*frames, note, self._view.end(self._done_frame)])

    def completion(self, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
        """The whole reply, for a client that does not stream."""
        builder = self._builder
        assert builder is not None, "the client streams"
        whole = builder.build()
        apply_mended(whole, self.reply)
        if metadata is not None:
            whole["mlx_stack"] = metadata
        return self._view.completion(whole)

    def _read(self, frame: sse.Frame) -> Chunk:
        return read_frame(frame, self._form)

    def _take(self, chunk: Chunk, out: list[bytes]) -> None:
        if chunk.done:
            self._end_of_stream()
            self._done_frame = chunk.raw
            return
        for event in chunk.events:
            self.verdict = self._show(event)
            if self.verdict is not None:
                if isinstance(self.verdict, Cut):
                    self._keep_cut(chunk)
                return
        if self._builder is not None:
            self._keep(chunk)
            return
        released = self._gate.push(chunk)
        if released:
            self._let_out(released, out)

    def _show(self, event: Event) -> Verdict | None:
        """Take an event in, and let the stages see it."""
        self.reply.apply(event)
        verdict = self._pipeline.on_event(event) if self._watched else None
        if isinstance(event, UpstreamErrorEvent):
            # A template is asked before there is anything of a reply.
            ours = self.speaks_behind_result and not self.reply.choices
            said = event.message or event.type
            return repetition_inside(said) or failure_inside(said, speaks_behind_result=ours)
        return verdict

    def _keep(self, chunk: Chunk) -> None:
        """Take a chunk of which nothing may go out yet."""
        builder = self._builder
        if builder is None:
            self._gate.hold(chunk)
            return
        payload = chunk.payload
        if payload is not None:
            if len(chunk.raw) > 2 * _DEEP and _brackets(chunk.raw) > _DEEP:
                _check_depth(payload)
            builder.add(payload)

    def _keep_cut(self, chunk: Chunk) -> None:
        """Take the chunk that brought the cut; its finish and usage count, where it has them."""
        self._top = {k: v for k, v in (chunk.payload or {}).items() if k not in _OF_ONE_CHUNK}
        for event in chunk.events:
            if isinstance(event, (Finish, Usage)):
                self.reply.apply(event)
        self._keep(chunk)

    def _finish(self, cut: Cut) -> None:
        """End the choices that were cut, as the model would have ended them."""
        for index in self._begun():
            self.reply.choice(index)
        for index, choice in self.reply.choices.items():
            if choice.finish_reason is None:
                choice.finish_reason = cut.finish_reason
                ending = {"index": index, "delta": {}, "finish_reason": cut.finish_reason}
                self._keep(made({**self._form.top, **self._top, "choices": [ending]}))
            self.reply.mended.add(index)

    def _lacks_usage(self) -> bool:
        """Whether there is less usage than clients count on.

        Of a reply that was cut it comes for what came before, or not at all; of one that doesn't
        stream no client asks whether it is there.
        """
        reply = self.reply
        if reply.cut:
            return reply.usage is None or reply.counted < reply.pieces
        expected = self._builder is not None or self._usage_check.failed
        return reply.usage is None and self.verdict is None and expected

    def _keep_usage(self) -> None:
        """Say what a reply has cost, by our own count."""
        spent = spent_by(self._client_request, self.reply, count_cached=True)
        tokens = {"prompt_tokens": spent.prompt, "completion_tokens": spent.output}
        usage = {**tokens, "total_tokens": spent.total}
        self._keep(made({**self._form.top, **self._top, "choices": [], "usage": usage}))

    def _let_out(self, released: list[Chunk], out: list[bytes]) -> None:
        if self._continues:
            released = without_reasoning(released)
        view = self._view
        for chunk in released:
            if self.identity is None and chunk.payload is not None:
                self.identity = {k: chunk.payload.get(k) for k in ("id", "created")}
            if not self._other_out:
                self._other_out = any(isinstance(event, _OTHER) for event in chunk.events)
            out.append(view.frame(chunk))

    def _final(self) -> list[Chunk]:
        """What is held, as it is to be delivered."""
        if self._after_text:
            for index, choice in self.reply.choices.items():
                # The client has the text of the attempt before: beside calls it is enough.
                says = choice.text and not choice.tool_calls
                choice.text = f"\n\n{choice.text}" if says else ""
                self.reply.mended.add(index)
        held = self._gate.release()
        if self.reply.mended:
            held = rewritten(held, self.reply, self._gate.flowed)
        return without_reasoning(held) if self._continues else held

    def _begun(self) -> Set[int]:
        """Of several choices those of which anything has come, be it but a role."""
        return self._form.begun if self._expected > 1 else frozenset()

    def _end_of_stream(self) -> None:
        # A server that dies leaves this behind: an end without a finish_reason is no end.
        if self.reply.finished and self._begun() <= self.reply.choices.keys():
            self.done = True
        elif self.reply.choices:
            self.verdict = _broken("before the reply was finished")
        else:
            self.verdict = _broken("before the reply began")


def _brackets(raw: bytes) -> int:
    return raw.count(b"{") + raw.count(b"[")


def _check_depth(payload: dict[str, Any]) -> None:
    """Raises :class:`MalformedChunk` for what can be read, and not be written."""
    try:
        orjson.dumps(payload)
    except orjson.JSONEncodeError:
        raise MalformedChunk("an event that is nested too deeply") from None


def _broken(where: str) -> UpstreamFailed:
    return UpstreamFailed("server_error", f"the stream broke off {where}", status=200)


def _join_metadata(held: list[Chunk], metadata: dict[str, Any]) -> None:
    if held and held[-1].payload is not None:
        last = held[-1]
        last.payload = {**held[-1].payload, "mlx_stack": metadata}
        last.raw = render(last.payload)
