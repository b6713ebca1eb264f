"""Watches one reply while it is written, for text that repeats itself and for repeated calls.

A choice's text, its reasoning and each call's arguments have a :class:`Flow` of their own. A
finding ends the attempt: a repetition or endless whitespace as a loop, too much reasoning as a
truncation, repeated calls as a cut, which delivers the reply up to the surplus call.
"""

from __future__ import annotations

import functools
import sys
from typing import Final

from ...engine.exchange import Exchange
from ...engine.outcome import Incident, Remarks
from ...engine.request import MOST_NAME, UpstreamRequest
from ...engine.verdicts import Cut, LoopDetected, Verdict, truncated
from ...frozen import frozen
from ...settings import Settings
from ...tool_validation.tools import ToolSet, tool_set
from ...wire.call import Call
from ...wire.delta import FINISH, REASONING, Delta
from ...wire.growing import Growing
from ...wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from ...wire.reply import ChoiceReply, Reply
from ..call_keys import digest
from .calls import CallCounter, WrittenCalls
from .flow import Flow
from .limits import Excess, RepeatedCall
from .marked_calls import MarkedCalls, MarkHold

DETECTOR = "generation"
REPEATED_CALLS: Final = "repeated_tool_calls"
# The hint leaves the next step open: models that were asked to answer briefly left steps out.
HINT = (
    "Do not write the same text again and again. Take the next step, or answer; say each thing "
    "only once."
)
STOPPED: Final = f"[Stopped: the answer repeated itself ({DETECTOR}). Try a different approach.]"


@frozen
class _Stopped:
    """A choice that was stopped because its text repeated itself."""

    choice: int
    kept: int  # the characters before the second lap

    def end(self, reply: Reply) -> None:
        choice = reply.choices[self.choice]
        choice.tool_calls = []
        if choice.text[: self.kept].strip():
            choice.text = choice.text[: self.kept]
        else:  # an empty reply would count as a failure; blanks may have been sent already
            choice.text = choice.text[: max(self.kept, reply.flowed)] + STOPPED
        reply.mended.add(self.choice)


class ReplyWatch:
    """Watches the reply of one attempt."""

    def __init__(self, exchange: Exchange, settings: Settings) -> None:
        rules = settings.reliability.loop_detection
        self._exchange = exchange
        self.remarks = Remarks()
        self._rules = rules
        self._generation = rules.generation if rules.generation.enabled else None
        self._tools = functools.partial(_tools, exchange, settings)
        self._late = _late(exchange, settings)
        self._request: UpstreamRequest | None = None
        # By choice; the arguments by their call's identity.
        self._texts: dict[int, Flow] = {}
        self._reasonings: dict[int, Flow] = {}
        self._written: dict[int, WrittenCalls] = {}
        self._marked: dict[int, MarkedCalls] = {}
        self._calls: dict[int, CallCounter] = {}
        self._arguments: dict[int, Flow] = {}
        self._finished: set[int] = set()
        self._cut: int | None = None  # the choice that was cut for repeated calls
        self._prose: str | None = None  # that choice's text before its first call in text
        self._stopped: _Stopped | None = None

    def on_request(self, request: UpstreamRequest) -> None:
        """Take the request that goes upstream; later stages may still change its body."""
        self._request = request

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        """Return the verdict that ends the attempt, if this frame brings one."""
        for piece in delta.choices:
            said, index = piece.delta, piece.index
            verdict: Verdict | None = None
            if delta.kinds & REASONING and said.thought:
                if (flow := self._reasonings.get(index)) is None:
                    flow = Flow(self._generation, "reasoning", late=self._late)
                    self._reasonings[index] = flow
                verdict = self._look(flow, reply.choices[index].thought, index, unseen=True)
            if verdict is None and (text := said.content):
                verdict = self._on_text(reply.choices[index].written, text, index)
            if verdict is not None:
                return verdict
        for index, call, _ in delta.grown:
            if (verdict := self._on_call(reply.choices[index], call, index)) is not None:
                return verdict
        if delta.kinds & FINISH:
            self._finished |= {piece.index for piece in delta.choices if piece.finish_reason}
        return None

    @functools.cached_property
    def text_hold(self) -> MarkHold:
        """What holds text back that may be one call too many."""
        return MarkHold()

    def mend(self, reply: Reply) -> None:
        """Take repetitions out of the reply, and end the choices that were cut."""
        for index, marked in self._marked.items():
            choice = reply.choices[index]
            if marked.finish(choice.text):
                choice.text = choice.text[: max(marked.cut_at, reply.flowed)]
                reply.mended.add(index)
                self._note_truncated(marked.tool, index == self._cut)
        ended = self._cut if self._stopped is None else self._stopped.choice
        for index, choice in reply.choices.items():
            if ended is not None and index not in self._finished:
                self._end(index, choice, cut=index == ended)
                reply.mended.add(index)
        if self._stopped is not None:
            self._stopped.end(reply)
            return
        self.drop_surplus(reply)

    def drop_surplus(self, reply: Reply) -> None:
        """Leave out surplus calls. Called again once other stages have read calls out of text."""
        for index, choice in reply.choices.items():
            is_cut = index == self._cut
            if is_cut and choice.tool_calls:
                choice.finish_reason = "tool_calls"
                choice.text = choice.text if self._prose is None else self._prose
            counter = self._new_counter()
            kept = counter.kept(choice.tool_calls)
            if counter.tool:
                choice.tool_calls = kept
                reply.mended.add(index)
                self._note_truncated(counter.tool, is_cut)

    # While the reply comes

    def _new_text(self, choice: int) -> Flow:
        limit = self._rules.in_response.max_repeats
        written_calls = self._written[choice] = WrittenCalls(
            limit, self._rules.exempt_tools, self._tools
        )
        flow = self._texts[choice] = Flow(self._generation, late=self._late, calls=written_calls)
        marked = MarkedCalls(limit, self._rules.exempt_tools, formats=not self._tools())
        self._marked[choice] = marked
        self.text_hold.marked = self.text_hold.marked or marked
        return flow

    def _new_counter(self) -> CallCounter:
        return CallCounter(self._rules.in_response.max_repeats, self._rules.exempt_tools)

    def _on_text(self, written: Growing, piece: str, choice: int) -> Verdict | None:
        flow = self._texts.get(choice) or self._new_text(choice)
        marked = self._marked[choice]
        if marked.add(piece, written):
            # A cut for a surplus call, unless the text before it repeats itself.
            before = written.text()[: marked.cut_at]
            if len(before) >= flow.due and isinstance(finding := flow.look(before), Excess):
                return self._verdict(finding, choice)
            self._cut = choice
            return Cut(REPEATED_CALLS, "stop")
        return self._look(flow, written, choice)

    def _on_call(self, choice: ChoiceReply, call: Call, index: int) -> Verdict | None:
        counter = self._calls.get(index)
        if counter is None:
            counter = self._calls[index] = self._new_counter()
        if counter.look(choice.tool_calls):
            self._cut = index
            return Cut(REPEATED_CALLS, "tool_calls")
        flow = self._arguments.get(id(call))
        if flow is None:
            flow = Flow(self._generation, "arguments", late=self._late)
            self._arguments[id(call)] = flow
        return self._look(flow, call.written, index, unseen=True)

    def _look(
        self, flow: Flow, written: Growing, choice: int, *, unseen: bool = False
    ) -> Verdict | None:
        """Look at a text if that is due. ``unseen``: as in :meth:`_verdict`."""
        if written.size < flow.due or (finding := flow.look(written.text())) is None:
            return None
        return self._verdict(finding, choice, unseen=unseen)

    def _verdict(
        self, finding: Excess | RepeatedCall, choice: int, *, unseen: bool = False
    ) -> Verdict:
        """Return the verdict on a finding.

        ``unseen``: the text is reasoning or arguments, so all visible text can be kept.
        """
        if isinstance(finding, RepeatedCall):
            self._cut = choice
            return Cut(REPEATED_CALLS, "stop")
        self._note_saved()
        if finding.rule == "reasoning":
            return truncated("reasoning")
        if self._exchange.second_opinion_on is not None:
            return _loop(finding)  # the second opinion failed: the first reply is delivered
        self.remarks.incidents.append(Incident("loop_break", (DETECTOR, "circuit_break")))
        note = f"circuit_break;detector={DETECTOR}"
        if self._rules.on_break == "stop":
            kept = finding.start + len(finding.lap.strip() and finding.lap)
            if unseen:
                kept = sys.maxsize
            self._stopped = _Stopped(choice, kept)
            self.remarks.reply_notes["Loop"] = note
            return Cut("loop_detected", "stop")
        self.remarks.notes["Loop"] = note
        return _loop(finding)

    # At its end

    def _end(self, index: int, choice: ChoiceReply, *, cut: bool) -> None:
        """End an unfinished choice; ``cut``: this choice is why the reply was cut."""
        has_calls_in_text = index in self._written and self._marked[index].cut_at < 0
        if not cut:
            choice.finish_reason = "length"  # the choice is incomplete
        elif has_calls_in_text and not choice.tool_calls and self._stopped is None:
            choice.finish_reason = "length"  # the last call in its text may be incomplete
            calls, text = self._written[index], choice.text
            self._prose, choice.text = calls.before(text), calls.closed(text)
        if index in self._calls:  # the last call may be incomplete
            choice.tool_calls = choice.tool_calls[:-1]

    def _note_truncated(self, tool: str, cut: bool) -> None:
        remarks = self.remarks
        remarks.reply_notes["Truncated"] = REPEATED_CALLS
        if "Loop" not in self._exchange.notes and "Loop" not in remarks.notes:
            remarks.reply_notes["Loop"] = f"warning;detector={REPEATED_CALLS}"
        detail = {"tool": tool[:MOST_NAME]}
        remarks.incidents.append(Incident("truncated", (REPEATED_CALLS,), detail))
        if cut:
            self._note_saved()

    def _note_saved(self) -> None:
        """Note how many tokens the model could still have written, if the request has a limit."""
        body = self._request.body if self._request is not None else {}
        values = [body.get(key) for key in ("max_tokens", "max_completion_tokens")]
        limits = [limit for limit in values if isinstance(limit, int)]
        if not limits:
            return
        flows = [*self._texts.values(), *self._reasonings.values()]
        written = sum(flow.size for flow in flows) // BYTES_PER_OUTPUT_TOKEN
        saved = max(min(limits) - written, 0)
        self.remarks.incidents.append(Incident("tokens_saved", (), {"tokens": saved}))


def _tools(exchange: Exchange, settings: Settings) -> ToolSet:
    """Return the tools whose calls are read out of text. A method would form a reference cycle."""
    rules, request = settings.reliability.tool_validation, exchange.request
    rescues = rules.enabled and rules.rescue_text_calls
    if not rescues or "validation" in exchange.controls.bypass:
        return tool_set(())
    return tool_set(() if request.body.get("tool_choice") == "none" else request.tools)


def _late(exchange: Exchange, settings: Settings) -> int:
    """Return how many characters the tool-call limit allows each text."""
    budget, request = settings.reliability.token_budget, exchange.request
    limits = budget.tool_calls
    limited = budget.enabled and limits.apply != "never" and bool(request.tools)
    if not limited or "budget" in exchange.controls.bypass:
        return sys.maxsize
    tokens = limits.max_tokens if request.max_tokens else limits.default_max_tokens
    return tokens * BYTES_PER_OUTPUT_TOKEN


def _loop(excess: Excess) -> LoopDetected:
    extent = f"{excess.laps}x"
    if len(excess.lap) > 1:
        extent += f", every {len(excess.lap)} characters"
    return LoopDetected(
        DETECTOR,
        excess.laps,
        f"Repetitive generation detected ({extent}). Consider rephrasing the request or trying a "
        "different approach.",
        hint=HINT,
        # A lap may begin anywhere: sorted, its characters are always the same.
        pattern=f"{DETECTOR}:{digest(''.join(sorted(excess.lap))):x}",
        generated=True,
    )
