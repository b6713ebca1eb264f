"""The stage of the pipeline that checks, repairs and doubts the calls of a reply.

While the reply arrives, ``text_hold`` holds text that may be a call. At the reply's end, ``mend``
turns calls written as text into real calls, drops half a call that a length limit cut, and checks
and repairs each call. Then ``judge`` refuses the reply if one call can't be delivered, and doubts a
valid reply if a call has an odd value, or if the text may hold a call that no format reads.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..engine.exchange import Exchange
from ..engine.gate import TextHold
from ..engine.outcome import Incident
from ..engine.pipeline import Stage, StageState
from ..engine.request import UpstreamRequest
from ..engine.verdicts import CallFailure, InvalidToolCall
from ..settings import Settings
from ..wire.reply import MAX_CALLS, ChoiceReply, Reply, ToolCall
from ..wire.thoughts import inside_thoughts
from . import explain, guided
from .check import Checked, Options, check_call, check_response_format, is_wanted
from .client_history import is_readable, readable
from .conversation import Conversation
from .doubts import LEAST_LEAVES, MAX_LEAVES, Valid, call_doubts
from .formats.base import json_object
from .formats.json_calls import DOUBLED
from .miscopied_ids import Ids
from .reply_parts import Mended, as_message, bad_calls, calls_as_text, drop_half_call
from .slow_replies import is_slow
from .text_calls import Holdback, Rescued, rescue, rescue_cut, rescue_thought
from .tool_choice import NOTHING, breach, read_choice
from .tools import ToolSet, tool_set
from .unread import broken_call, unread_beside, unread_call

MISCOPIED = "miscopied_id"
UNREAD = "unread_call"
# What nobody means to write: if the second reply has it too, the next tier is asked.
SLIPS = (MISCOPIED, "leaked_markup", "unframed_text")
UNOFFERED = "unknown_tool"
# For these doubts the next tier is asked: the same tier would most likely repeat its slip.
ASK_NEXT = (MISCOPIED, UNREAD)


def call_id() -> str:
    """Return a random id for a call that the model wrote without one."""
    return "call_" + secrets.token_hex(12)


class ToolValidation(Stage):
    """The stage with its settings; ``open`` makes the state for one exchange.

    ``off``: names of formats, repairs and doubts to switch off, to measure what each contributes.
    """

    name = "tool_validation"
    bypass = "validation"

    def __init__(self, settings: Settings, off: frozenset[str] = frozenset()) -> None:
        rules = settings.reliability.tool_validation
        self.rules = rules
        self.settings = settings
        self.off = off
        self.options = Options(
            validate_json=rules.validate_json,
            validate_schema=rules.validate_schema,
            validate_tool_names=rules.validate_tool_names,
            repair=rules.repair == "safe",
            off=off,
        )

    def open(self, exchange: Exchange) -> StageState:
        return _State(self, exchange)


class _State(StageState):
    def __init__(self, stage: ToolValidation, exchange: Exchange) -> None:
        self._stage = stage
        self._exchange = exchange
        self._body = exchange.request.body
        self._tools = exchange.request.tools
        self._tool_choice = read_choice(self._body.get("tool_choice"))
        self._response_format = self._body.get("response_format")
        # Whether calls written as text become real calls.
        self._rescues = bool(
            self._tools and stage.rules.rescue_text_calls and not self._tool_choice.none
        )
        self._needs_ids = not exchange.request.legacy_functions  # a `function_call` has no id
        self._failures: list[CallFailure] = []  # found by `mend`, reported by `judge`
        self._rescued = False  # calls were found in the text
        self._thought = ""  # the tool whose call was found at the end of a mere thought
        # A tool that the request lacks, if prose surrounds a marked call of it; else "".
        self._unoffered = ""
        # The same, if calls without a mark are all there is.
        self._unknown = ""

    def on_request(self, request: UpstreamRequest) -> None:
        if not is_readable(self._exchange.request.blocks):
            request.body["messages"], count = readable(request.body["messages"])
            self._note("tool_call_repaired", ("unparsed_history",), count=count)
        if self._exchange.guided:
            self._guide(request)

    def _guide(self, request: UpstreamRequest) -> None:
        tier, failed = self._stage.settings.tiers.get(request.tier), self._exchange.model_failure
        meant = [f.tool for f in failed.failures] if isinstance(failed, InvalidToolCall) else ()
        request.body["response_format"] = guided.response_format(
            self._body, self._tool_set, meant, strict=tier is None or tier.local
        )
        self.remarks.guided = "asked"

    def text_hold(self) -> TextHold | None:
        return Holdback(self._tool_set, self._stage.off) if self._rescues else None

    def is_slow(self, reply: Reply) -> bool:
        doubts = self._stage.rules.validate_plausibility and len(reply.choices) == 1
        searched = self._exchange.request.size if doubts else 0
        format_ = self._response_format
        return is_slow(reply, self._tool_set, format_, searched, in_text=self._rescues)

    def mend(self, reply: Reply) -> None:
        mended_choices = {
            index: self._mended(index, choice) for index, choice in reply.choices.items()
        }
        choices = mended_choices.values()
        self.remarks.calls += [call.name for mended in choices for call in mended.calls]
        self._failures = [failure for mended in choices for failure in mended.failures]
        if self._failures:
            return  # one bad choice fails the attempt: judge and report the reply as it came
        for index, mended in mended_choices.items():
            self._apply(reply, index, mended)

    def judge(self, reply: Reply) -> InvalidToolCall | None:
        failures, doubt = self._failures, False
        if not failures:
            failures, doubt = self._doubts(reply), True
        vars(self).pop("_said", None)  # it holds the transcript once more
        if not failures:
            return None
        for kind, detail in bad_calls(failures):
            self._note("tool_call_invalid", (kind,), **detail, **({"doubt": True} if doubt else {}))
        ask_next = doubt and failures[0].kind in ASK_NEXT
        response = as_message(reply, failures[0].choice)
        return InvalidToolCall(tuple(failures), doubt, ask_next, response)

    def _doubts(self, reply: Reply) -> list[CallFailure]:
        """Return the doubts about a valid reply; a second opinion is asked for only once."""
        exchange, choice = self._exchange, reply.choices.get(0)
        if choice is None or len(reply.choices) > 1 or not self._stage.rules.validate_plausibility:
            return []
        if exchange.second_opinion_on is not None:
            self.remarks.call_as_text = bool(self._unknown)
            return self._no_answer(choice)
        if choice.tool_calls:
            return self._unread_beside(choice) or self._doubted_calls(choice.tool_calls)
        return self._unread(choice)

    def _no_answer(self, choice: ChoiceReply) -> list[CallFailure]:
        """Return why the second opinion can't replace the first reply; [] if it can.

        The second reply may not have the same slip. If the doubt was about an id, or if the first
        reply's text is at the client already, it must have a call.
        """
        doubt = self._exchange.second_opinion_on
        if not isinstance(doubt, InvalidToolCall):
            return []
        kind = doubt.failures[0].kind
        if choice.tool_calls and kind in SLIPS:
            doubted = self._doubted_calls(choice.tool_calls)
            return [failure for failure in doubted if failure.kind == kind]
        about_id = kind == MISCOPIED
        silent = not choice.tool_calls and (about_id or self._exchange.text_is_out)
        return list(doubt.failures) if silent else []

    @cached_property
    def _said(self) -> tuple[Conversation, Ids]:
        conversation = Conversation(self._body["messages"])
        return conversation, Ids(conversation, self._tools)

    def _doubted_calls(self, calls: Sequence[ToolCall]) -> list[CallFailure]:
        most = max(MAX_LEAVES // max(1, len(calls)), LEAST_LEAVES)
        doubts: list[CallFailure] = []
        for position, call in enumerate(calls):
            arguments = json_object(call.arguments)
            if arguments and call.name in self._tool_set:
                schema = self._tool_set.compiled(call.name)
                valid = Valid(call.name, arguments, schema, *self._said, most)
                doubts += (
                    CallFailure(call.name, kind, error, 0, position)
                    for kind, error in call_doubts(valid, self._stage.off)
                )
        # A doubt about an id counts only if there is no other, and alone: it goes to the next tier.
        return [doubt for doubt in doubts if doubt.kind != MISCOPIED] or doubts[:1]

    def _unread(self, choice: ChoiceReply) -> list[CallFailure]:
        """Doubt a text that may hold a call which no format reads."""
        wished = self._response_format or self.remarks.guided == "obeyed"
        if choice.finish_reason != "stop" or not self._rescues or wished:
            return []
        if self._unknown and UNOFFERED not in self._stage.off:
            error = explain.unknown_tool(self._unknown, self._tool_set.names)
            return [CallFailure(self._unknown, UNOFFERED, error)]
        if UNREAD in self._stage.off:
            return []
        return _unread(unread_call(choice.text, self._tool_set) or self._unoffered)

    def _unread_beside(self, choice: ChoiceReply) -> list[CallFailure]:
        """Doubt calls found in a text that may hold one more, or that is nothing but a thought."""
        if not self._rescued or choice.finish_reason != "tool_calls" or UNREAD in self._stage.off:
            return []
        return _unread(self._thought or unread_beside(choice.text, self._tool_set))

    # Mending one choice

    def _mended(self, index: int, choice: ChoiceReply) -> Mended:
        mended = Mended(choice.text, list(choice.tool_calls), choice.finish_reason)
        if not self._tools and self._stage.options.validate_tool_names:
            calls_as_text(mended)
        if mended.calls:
            if mended.is_cut:
                drop_half_call(mended.calls)
        elif self.remarks.guided and mended.text:
            self._read_guided(index, mended)
        elif self._rescues and not is_wanted(
            mended.text, self._response_format, self._stage.options
        ):
            self._rescue(index, mended, choice.reasoning)
        if mended.calls:
            self._check_calls(index, mended)
        self._check_tool_choice(index, mended)
        if not mended.calls and not mended.failures:
            self._check_format(index, mended)
        return mended

    def _read_guided(self, index: int, mended: Mended) -> None:
        """Take a reply to our schema apart: a text, or calls."""
        obeyed = guided.is_obeyed(mended.text)
        self.remarks.guided = "obeyed" if obeyed else "disregarded"
        answer = guided.answer_in(mended.text) if obeyed else None
        if answer is not None:
            mended.text = answer
        elif self._rescues:
            self._rescue(index, mended)
        if obeyed and (mended.calls or answer is not None):
            mended.rescued = []
            mended.repairs.append(guided.WORD)

    def _rescue(self, index: int, mended: Mended, reasoning: str = "") -> None:
        rescued = (rescue_cut if mended.is_cut else rescue)(
            mended.text, self._tool_set, self._stage.off
        )
        mended.failures += self._unknown_calls(index, mended.text, rescued)
        self._unknown = rescued.unoffered if self._stage.options.validate_tool_names else ""
        doubled = DOUBLED.search(mended.text)
        mended.text = rescued.content
        thought = inside_thoughts(mended.text) if mended.text.strip() else reasoning
        if not rescued.calls and thought and not mended.is_cut:
            rescued = rescue_thought(thought, self._tool_set, self._stage.off)
            self._thought = rescued.calls[0].name if rescued.calls else ""
        if not rescued.calls:
            return
        self._rescued = True
        mended.calls = [ToolCall(call_id(), call.name, call.arguments) for call in rescued.calls]
        mended.rescued = [call.format for call in rescued.calls]
        if doubled:
            mended.repairs.append("doubled_braces")
        if not mended.is_cut:
            mended.finish_reason = "tool_calls"

    def _unknown_calls(self, index: int, text: str, rescued: Rescued) -> Iterable[CallFailure]:
        """Yield a failure for each call in the text of a tool that the request doesn't offer.

        If prose surrounds such calls and no other was found, note a doubt instead.
        """
        names = rescued.unknown
        if not names or not self._stage.options.validate_tool_names:
            return
        offered = self._tool_set.names
        if not rescued.calls:
            everything = ToolSet(dict.fromkeys((*offered, *names)))
            if rescue(text, everything).content.strip():
                self._unoffered = names[0]  # a doubt: the prose may only speak of a call
                return
        for name in names:
            error = explain.unknown_tool(name, offered)
            yield CallFailure(name, "unknown_tool", error, index)

    def _check_calls(self, index: int, mended: Mended) -> None:
        if len(mended.calls) > MAX_CALLS:
            error = f"more than {MAX_CALLS} calls in one response"
            mended.failures.append(CallFailure("", "too_many_calls", error, index))
            return
        if self._body.get("parallel_tool_calls") is False and len(mended.calls) > 1:
            mended.calls, mended.rescued = mended.calls[:1], mended.rescued[:1]
            mended.repairs.append("parallel_calls")
        tools = self._tool_set
        seen: set[str] = set()
        for position, call in enumerate(mended.calls):
            checked = check_call(call.name, call.arguments, tools, self._stage.options)
            if call.was_object:
                mended.repairs.append("arguments_not_text")
            if call.odd:
                mended.repairs.append("call_pieces")
            self._take(checked, index, position, mended)
            identity = call.id
            if (not identity and self._needs_ids) or (identity and identity in seen):
                kind = "duplicate_id" if identity else "missing_id"
                if self._stage.options.repair:
                    mended.repairs.append(kind)
                    identity = call_id()
                elif identity:
                    error = f'two calls have the same id "{identity[:64]}"'
                    mended.failures.append(CallFailure(call.name, kind, error, index, position))
            seen.add(identity)
            mended.calls[position] = ToolCall(identity, checked.name, checked.arguments)
        if mended.finish_reason == "function_call" and self._needs_ids:
            mended.finish_reason = "tool_calls"  # clients that offer `tools` expect this reason

    def _check_tool_choice(self, index: int, mended: Mended) -> None:
        """Note a failure if the reply disobeys ``tool_choice`` or lost the call it was to be."""
        by_name = self._tools and self._stage.options.validate_tool_names
        names = [call.name for call in mended.calls]
        # A reply that was cut may have gone on to call; a failed one is reported already.
        excused = bool(mended.failures) or mended.is_cut
        lost = not names and self._stage.options.validate_json and self._is_lost_call(mended)
        tool_choice = self._tool_choice if by_name else NOTHING
        failure = breach(tool_choice, names, lost=lost, excused=excused)
        if failure is not None:
            mended.failures.append(replace(failure, choice=index))

    def _is_lost_call(self, mended: Mended) -> bool:
        """Whether a choice without calls claims calls, or its text is a call that can't be read."""
        if mended.speaks_of_calls:
            return True
        return self._rescues and broken_call(mended.text, self._tool_set)

    def _check_format(self, index: int, mended: Mended) -> None:
        response_format = self._response_format
        if (
            not response_format
            or not self._stage.rules.response_format
            or mended.is_cut
            or not mended.text
        ):
            return
        checked = check_response_format(mended.text, response_format, self._stage.options)
        mended.text = checked.arguments
        self._take(checked, index, -1, mended)

    def _take(self, checked: Checked, index: int, position: int, mended: Mended) -> None:
        """Add a check's repairs and failures to its choice; ``position`` is -1 for the text."""
        mended.repairs += checked.repairs
        if checked.unchecked:
            self._note("tool_call_unchecked", ())
        mended.failures += (
            replace(failure, choice=index, position=position) for failure in checked.failures
        )

    def _apply(self, reply: Reply, index: int, mended: Mended) -> None:
        choice = reply.choices[index]
        calls_changed = mended.calls != choice.tool_calls
        if not (
            calls_changed
            or mended.text != choice.text
            or mended.finish_reason != choice.finish_reason
        ):
            return
        choice.text = mended.text
        choice.tool_calls = mended.calls
        choice.finish_reason = mended.finish_reason
        reply.mended.add(index)
        for kind in dict.fromkeys(mended.repairs):
            self._note("tool_call_repaired", (kind,))
        for format_name in mended.rescued:
            self._note("tool_call_rescued", (format_name,))
        names = [*dict.fromkeys(mended.repairs), *(["rescued"] if mended.rescued else [])]
        if names:
            note = self.remarks.reply_notes.get("Repairs", "")
            parts = [*(note.split(",") if note else []), *names]
            self.remarks.reply_notes["Repairs"] = ",".join(dict.fromkeys(parts))

    # What the request says

    @cached_property
    def _tool_set(self) -> ToolSet:
        return tool_set(self._tools)

    def _note(self, kind: str, labels: tuple[str, ...], **detail: Any) -> None:
        self.remarks.incidents.append(Incident(kind, labels, detail))


def _unread(name: str | None) -> list[CallFailure]:
    return [CallFailure(name, UNREAD, explain.unread(name))] if name else []
