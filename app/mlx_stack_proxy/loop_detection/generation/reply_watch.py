"""Watches one growing reply for text that repeats itself and for repeated calls.

A choice's text, its reasoning and each call's arguments each get a :class:`Flow` once they are long
enough to be checked. A finding ends the attempt: a repetition or endless whitespace as a loop, too
much reasoning as a truncation, repeated calls as a cut, which delivers the reply up to the surplus
call.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Final

from ...engine.exchange import Exchange
from ...engine.outcome import Incident, Remarks
from ...engine.pipeline import StageState
from ...engine.request import MAX_NAME, UpstreamRequest
from ...engine.verdicts import Cut, LoopDetected, Verdict, truncated
from ...settings import Settings
from ...tool_validation.tools import ToolSet, tool_set
from ...wire.delta import REASONING, TEXT, Delta
from ...wire.growing import GrowingText
from ...wire.prompt_size import BYTES_PER_OUTPUT_TOKEN
from ...wire.reply import ChoiceReply, Reply
from ..call_keys import digest
from .calls import CallCounter, WrittenCalls, closed, prose_before
from .flow import FIRST, Flow
from .limits import Excess, Kind
from .marked_calls import MarkedCalls, MarkHold, first_mark

DETECTOR = "generation"
REPEATED_CALLS: Final = "repeated_tool_calls"
# The hint leaves the next step open: models that were asked to answer briefly skipped steps.
HINT = (
    "Do not write the same text again and again. Take the next step, or answer; say each thing "
    "only once."
)
STOPPED: Final = f"[Stopped: the answer repeated itself ({DETECTOR}). Try a different approach.]"


class ReplyWatch(StageState):
    """Watches the reply of one attempt."""

    def __init__(self, exchange: Exchange, settings: Settings) -> None:
        self._exchange, self._settings = exchange, settings
        self._rules = settings.reliability.loop_detection
        self.remarks = Remarks()
        self._limits: list[int] = []  # tokens: the limits on the reply in the upstream request
        self._first = FIRST if self._rules.generation.enabled else sys.maxsize
        self._flows: dict[int, Flow] = {}  # by the identity of the text
        self._marked: dict[int, MarkedCalls] = {}  # by choice, like the next
        self._counters: dict[int, CallCounter] = {}
        self._hold = MarkHold()
        self._has_mark = first_mark(formats=not self._reads_calls).search
        self._cut: int | None = None  # the choice that caused the cut
        # `on_break: stop`: the characters of that choice before the second lap. None: repeated
        # calls caused the cut.
        self._kept: int | None = None
        self._prose: str | None = None  # that choice's text before its first call in text

    def on_request(self, request: UpstreamRequest) -> None:
        limits = [request.body.get(key) for key in ("max_tokens", "max_completion_tokens")]
        self._limits = [limit for limit in limits if isinstance(limit, int)]

    def text_hold(self) -> MarkHold:
        """Return what holds back text that may be a surplus call."""
        return self._hold

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        """Return the verdict that ends the attempt, if this frame brings one."""
        verdict: Verdict | None = None
        if delta.kinds & (TEXT | REASONING):
            for piece in delta.choices:
                said, index = piece.delta, piece.index
                if delta.kinds & REASONING and said.thought:
                    verdict = self._look("reasoning", reply, index, reply.choices[index].thought)
                if verdict is None and (text := said.content):
                    written = reply.choices[index].written
                    if index in self._marked or self._has_mark(text) is not None:
                        verdict = self._look_for_marks(reply, index, written, text)
                    verdict = verdict or self._look("text", reply, index, written)
                if verdict is not None:
                    return verdict
        for index, call, _ in delta.grown:
            verdict = self._count_calls(reply.choices[index], index)
            verdict = verdict or self._look("arguments", reply, index, call.written)
            if verdict is not None:
                return verdict
        return None

    def mend(self, reply: Reply) -> None:
        """Remove repetitions from the reply, and end the choices that were cut."""
        for index, marked in self._marked.items():
            choice = reply.choices[index]
            if marked.finish(choice.text):
                choice.text = choice.text[: max(marked.cut_at, reply.flowed)]
                reply.mended.add(index)
                self._note_truncated(reply, marked.tool, index)
        if self._cut is not None:
            for index, choice in reply.choices.items():
                if not choice.finished_at:
                    self._end(index, choice)
                    reply.mended.add(index)
        if self._cut is not None and self._kept is not None:
            choice = reply.choices[self._cut]
            choice.tool_calls = []
            kept = choice.text[: self._kept]
            # An empty reply would count as a failure; blanks may already have been sent.
            sent = choice.text[: max(self._kept, reply.flowed)]
            choice.text = kept if kept.strip() else sent + STOPPED
            reply.mended.add(self._cut)
        else:
            self.drop_surplus(reply)

    def drop_surplus(self, reply: Reply) -> None:
        """Remove surplus calls. Called again after other stages have found calls in text."""
        most = self._rules.in_response.max_repeats
        for index, choice in reply.choices.items():
            if index == self._cut and self._kept is None and choice.tool_calls:
                choice.finish_reason = "tool_calls"
                choice.text = choice.text if self._prose is None else self._prose
            if len(choice.tool_calls) <= most:
                continue
            counter = CallCounter(most, self._rules.exempt_tools)
            kept = counter.kept(choice.tool_calls)
            if counter.tool:
                choice.tool_calls = kept
                reply.mended.add(index)
                self._note_truncated(reply, counter.tool, index)

    # While the reply comes

    @cached_property
    def _reads_calls(self) -> bool:
        """Whether calls are recognised in the text."""
        rules, request = self._settings.reliability.tool_validation, self._exchange.request
        reads = rules.enabled and rules.rescue_text_calls and bool(request.tools)
        bypassed = "validation" in self._exchange.request.controls.bypass
        return reads and not bypassed and request.body.get("tool_choice") != "none"

    @cached_property
    def _tools(self) -> ToolSet:
        """The tools whose calls are recognised in the text."""
        return tool_set(self._exchange.request.tools if self._reads_calls else ())

    @cached_property
    def _late(self) -> int:
        """The number of characters that the tool-call limit allows each text."""
        budget, request = self._settings.reliability.token_budget, self._exchange.request
        limits = budget.tool_calls
        limited = budget.enabled and limits.apply != "never" and bool(request.tools)
        if not limited or "budget" in self._exchange.request.controls.bypass:
            return sys.maxsize
        tokens = limits.max_tokens if request.max_tokens else limits.default_max_tokens
        return tokens * BYTES_PER_OUTPUT_TOKEN

    def _look(
        self, kind: Kind, reply: Reply, choice: int, written: GrowingText, upto: int | None = None
    ) -> Verdict | None:
        """Check a text, or its beginning up to an index, if that is due."""
        flow, size = self._flows.get(id(written)), written.size if upto is None else upto
        if size < (self._first if flow is None else flow.due):
            return None
        if flow is None:
            rules, calls = self._rules, None
            if kind == "text":
                calls = WrittenCalls(rules.in_response.max_repeats, rules.exempt_tools, self._tools)
            flow = Flow(rules.generation, kind, late=self._late, calls=calls)
            self._flows[id(written)] = flow
        finding = flow.look(written.text()[:upto])
        return None if finding is None else self._verdict(finding, kind, reply, choice)

    def _look_for_marks(
        self, reply: Reply, choice: int, written: GrowingText, piece: str
    ) -> Verdict | None:
        """Look for a surplus call, unless the text before it repeats itself."""
        if (marked := self._marked.get(choice)) is None:
            rules = self._rules
            most, formats = rules.in_response.max_repeats, not self._reads_calls
            marked = self._marked[choice] = MarkedCalls(most, rules.exempt_tools, formats=formats)
            self._hold.marked = self._hold.marked or marked
        if not marked.add(piece, written):
            return None
        verdict = self._look("text", reply, choice, written, marked.cut_at)
        return verdict or self._cut_calls(choice, "stop")

    def _count_calls(self, choice: ChoiceReply, index: int) -> Cut | None:
        most = self._rules.in_response.max_repeats
        if len(choice.tool_calls) <= most + 1:
            return None
        if (counter := self._counters.get(index)) is None:
            counter = self._counters[index] = CallCounter(most, self._rules.exempt_tools)
        if not counter.look(choice.tool_calls):
            return None
        return self._cut_calls(index, "tool_calls")

    def _cut_calls(self, choice: int, finish_reason: str) -> Cut:
        self._cut = choice
        return Cut(REPEATED_CALLS, finish_reason)

    def _verdict(self, finding: Excess, kind: Kind, reply: Reply, choice: int) -> Verdict:
        if finding.rule == "calls":
            return self._cut_calls(choice, "stop")
        self._note_saved(reply)
        if finding.rule == "reasoning":
            return truncated("reasoning")
        if self._exchange.second_opinion_on is not None:
            return _loop(finding)  # the second opinion failed: the first reply is delivered
        self.remarks.incidents.append(Incident("loop_break", (DETECTOR, "circuit_break")))
        note = f"circuit_break;detector={DETECTOR}"
        if self._rules.on_break == "stop":
            self._cut, self._kept = choice, sys.maxsize  # reasoning or arguments: all text stays
            if kind == "text":
                self._kept = finding.start + len(finding.lap.strip() and finding.lap)
            self.remarks.reply_notes["Loop"] = note
            return Cut("loop_detected", "stop")
        self.remarks.notes["Loop"] = note
        return _loop(finding)

    # At its end

    def _end(self, index: int, choice: ChoiceReply) -> None:
        """End an unfinished choice."""
        marked = self._marked.get(index)
        if index != self._cut:
            choice.finish_reason = "length"  # the choice is incomplete
        elif self._kept is None and not choice.tool_calls and (marked is None or marked.cut_at < 0):
            choice.finish_reason = "length"  # the last call in its text may be incomplete
            text = choice.text
            self._prose, choice.text = prose_before(text, self._tools), closed(text, self._tools)
        choice.tool_calls = choice.tool_calls[:-1]  # the last call may be incomplete

    def _note_truncated(self, reply: Reply, tool: str, choice: int) -> None:
        remarks = self.remarks
        remarks.reply_notes["Truncated"] = REPEATED_CALLS
        if "Loop" not in self._exchange.notes and "Loop" not in remarks.notes:
            remarks.reply_notes["Loop"] = f"warning;detector={REPEATED_CALLS}"
        detail = {"tool": tool[:MAX_NAME]}
        remarks.incidents.append(Incident("truncated", (REPEATED_CALLS,), detail))
        if choice == self._cut and self._kept is None:
            self._note_saved(reply)

    def _note_saved(self, reply: Reply) -> None:
        """Record how many tokens the model could still have written, if the request has a limit."""
        if self._limits:
            saved = max(min(self._limits) - reply.written() // BYTES_PER_OUTPUT_TOKEN, 0)
            self.remarks.incidents.append(Incident("tokens_saved", (), {"tokens": saved}))


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
        # A lap may begin anywhere, but its sorted characters are always the same.
        pattern=f"{DETECTOR}:{digest(''.join(sorted(excess.lap))):x}",
    )
