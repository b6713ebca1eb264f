"""The stage of the pipeline that checks, repairs and doubts the calls of a reply.

While the reply arrives, ``text_hold`` holds text that may be a call. At the reply's end, ``mend``
turns calls written as text into real calls, drops a call that a length limit cut in half, and
checks and repairs each call. Then ``judge`` refuses the reply if a call can't be delivered, and
doubts a valid reply if a call has an odd value, or if the text may hold a call that no format
reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..engine.exchange import Exchange
from ..engine.gate import TextHold
from ..engine.outcome import Incident
from ..engine.pipeline import Stage, StageState
from ..engine.request import UpstreamRequest
from ..engine.verdicts import CallFailure, InvalidToolCall
from ..settings import Settings
from ..wire.call import Call
from ..wire.reply import ChoiceReply, Reply
from . import guided
from .check import Options, raw_schema
from .client_history import is_readable, readable
from .conversation import Conversation
from .doubts import MAX_LEAVES, MIN_LEAVES, ValidCall, call_doubts, leaves
from .formats.base import json_object
from .mend_choice import ChoiceMender
from .reply_parts import Mended, as_message, bad_calls
from .schemas import is_quick
from .text_calls import Holdback
from .tool_choice import CLAIMED
from .unread import UNREAD, made_up_result, unread, unread_around_calls, unread_call

LONG = 10_000  # bytes of a request whose transcript takes up to 10 milliseconds to search
MISCOPIED = "miscopied_id"
# What no model writes on purpose: if the second reply has it too, the next tier is asked.
SLIPS = (MISCOPIED, "leaked_markup", "unframed_text")
UNOFFERED = "unknown_tool"
# For these doubts the next tier is asked: the same tier would probably repeat its mistake.
ASK_NEXT = (MISCOPIED, UNREAD)


class ToolValidation(Stage):
    """The stage with its settings; ``open`` makes the state for one exchange.

    ``off``: names of formats, repairs and doubts to switch off, to measure what each contributes.
    """

    name = "tool_validation"
    bypass = "validation"

    def __init__(self, settings: Settings, off: frozenset[str] = frozenset()) -> None:
        self.rules = rules = settings.reliability.tool_validation
        self.settings = settings
        self.options = Options(
            validate_json=rules.validate_json,
            validate_schema=rules.validate_schema,
            validate_tool_names=rules.validate_tool_names,
            repair=rules.repair == "safe",
            off=off,
        )

    def open(self, exchange: Exchange) -> StageState:
        return _ValidationState(self, exchange)


class _ValidationState(StageState):
    def __init__(self, stage: ToolValidation, exchange: Exchange) -> None:
        self._tiers, self._rules, self._off = stage.settings.tiers, stage.rules, stage.options.off
        self._exchange = exchange
        self._mender = ChoiceMender(stage.rules, stage.options, exchange.request)
        self._mended: dict[int, Mended] = {}
        self._failures: list[CallFailure] = []  # of all choices

    def on_request(self, request: UpstreamRequest) -> None:
        exchange, mender = self._exchange, self._mender
        if not is_readable(exchange.request.blocks):
            request.body["messages"], count = readable(request.body["messages"])
            self._note("tool_call_repaired", ("unparsed_history",), count=count)
        if exchange.guided:
            tier, failed = self._tiers.get(request.tier), exchange.model_failure
            failures = failed.failures if isinstance(failed, InvalidToolCall) else ()
            meant, strict = [failure.tool for failure in failures], tier is None or tier.local
            form = guided.response_format(exchange.request.body, mender.tools, meant, strict=strict)
            request.body["response_format"] = form
            mender.guided = self.remarks.guided = "asked"

    def text_hold(self) -> TextHold | None:
        rescues = self._rules.rescue_text_calls
        return Holdback(self._mender.callable, self._off) if rescues else None

    def is_slow(self, reply: Reply) -> bool:
        """Whether a schema for the reply compiles slowly, or a doubt searches long.

        The event loop compiles small schemas itself; a large one, or one with patterns or
        references, would block it for up to 50 ms.
        """
        mender, tools = self._mender, self._mender.tools
        wanted = raw_schema(mender.response_format)
        if wanted is not None and not is_quick(wanted, whole_object=False):
            return True
        called: set[str] = set()  # the tools that the reply calls, or may call in its text
        for choice in reply.choices.values() if mender.offered else ():
            if choice.tool_calls:
                called.update(tools.tool_named(call.name) or "" for call in choice.tool_calls)
            elif self._rules.rescue_text_calls:
                said = choice.text if choice.text.strip() else choice.reasoning
                called.update(name for name in tools.names if name in said)
        called.discard("")
        searches = self._rules.validate_plausibility and self._exchange.request.size > LONG
        return bool(called) and (searches or not all(map(tools.is_quick, called)))

    def mend(self, reply: Reply) -> None:
        mender = self._mender
        self._mended = {
            index: mender.mended(index, choice) for index, choice in reply.choices.items()
        }
        self._failures = [one for mended in self._mended.values() for one in mended.failures]
        if mender.guided:
            self.remarks.guided = mender.guided
        for mended in self._mended.values():
            if mended.calls:
                self.remarks.calls += [call.name for call in mended.calls]
            for _ in range(mended.unchecked):
                self._note("tool_call_unchecked", ())
        if self._failures:
            return  # one bad choice fails the attempt: judge and report the original reply
        repairs: list[str] = []
        for index, mended in self._mended.items():
            repairs += self._apply(reply, index, mended)
        if repairs:
            self.remarks.reply_notes["Repairs"] = ",".join(dict.fromkeys(repairs))

    def judge(self, reply: Reply) -> InvalidToolCall | None:
        doubt = not self._failures
        failures = self._failures or self._doubts(reply)
        if not failures:
            return None
        for kind, detail in bad_calls(failures):
            self._note("tool_call_invalid", (kind,), **detail, **({"doubt": True} if doubt else {}))
        ask_next = doubt and failures[0].kind in ASK_NEXT
        response = as_message(reply, failures[0].choice)
        return InvalidToolCall(tuple(failures), doubt, ask_next, response)

    def _doubts(self, reply: Reply) -> list[CallFailure]:
        """Return the doubts about a valid reply; only one second opinion is asked for."""
        first, choice = self._exchange.second_opinion_on, reply.choices.get(0)
        if choice is None or len(reply.choices) > 1:
            return []
        doubt, plausibility = self._mended[0].doubt, self._rules.validate_plausibility
        if first is not None:
            if plausibility and doubt is not None and doubt.kind == UNOFFERED:
                self.remarks.call_as_text = True
            return self._unresolved(first, choice) if isinstance(first, InvalidToolCall) else []
        if doubt is CLAIMED:
            return [CLAIMED]
        if not plausibility:
            return []
        doubt = self._unread_doubt(choice, self._mended[0])
        if doubt is not None and doubt.kind not in self._off:
            return [doubt]
        return self._doubted_calls(choice.tool_calls)

    def _unresolved(self, first: InvalidToolCall, choice: ChoiceReply) -> list[CallFailure]:
        """Return why the second opinion can't replace the first reply; [] if it can.

        The second reply must not have the same mistake. If the doubt was about an id, or if the
        client already has the first reply's text, it must have a call.
        """
        kind = first.failures[0].kind
        if not choice.tool_calls:
            must_call = kind == MISCOPIED or self._exchange.text_committed
            return list(first.failures) if must_call else []
        doubted = self._doubted_calls(choice.tool_calls) if kind in SLIPS else []
        return [failure for failure in doubted if failure.kind == kind]

    def _doubted_calls(self, calls: Sequence[Call]) -> list[CallFailure]:
        if not calls:
            return []
        request, tools = self._exchange.request, self._mender.tools
        said = Conversation(request.body["messages"], request.tools)
        most = max(MAX_LEAVES // len(calls), MIN_LEAVES)
        doubts: list[CallFailure] = []
        for position, call in enumerate(calls):
            arguments = json_object(call.arguments)
            if arguments and call.name in tools:
                schema = tools.compiled(call.name)
                found = leaves(arguments, schema.schema, most)
                valid = ValidCall(call.name, arguments, schema, said, found)
                doubts += (
                    CallFailure(call.name, kind, error, 0, position)
                    for kind, error in call_doubts(valid, self._off)
                )
        # A doubt about an id counts only if there is no other, and alone: it goes to the next tier.
        return [doubt for doubt in doubts if doubt.kind != MISCOPIED] or doubts[:1]

    def _unread_doubt(self, choice: ChoiceReply, mended: Mended) -> CallFailure | None:
        """Doubt a text that may hold a call which no format reads, alone or around others."""
        mender, tools, doubt = self._mender, self._mender.tools, mended.doubt
        if choice.tool_calls:
            if not mended.rescued or choice.finish_reason != "tool_calls":
                return None
            name = None if doubt else unread_around_calls(choice.text, tools)
            return unread(name) if name else doubt
        wished = mender.response_format or mender.guided == "obeyed"
        if choice.finish_reason != "stop" or not mender.rescues or wished:
            return None
        if doubt is not None and doubt.kind == UNOFFERED:
            return doubt
        if tools and (made_up := made_up_result(choice.text)):
            return made_up
        name = unread_call(choice.text, tools)
        return unread(name) if name else doubt

    def _apply(self, reply: Reply, index: int, mended: Mended) -> list[str]:
        """Write a choice's new contents into the reply; return the words for its repairs."""
        choice = reply.choices[index]
        came = choice.text, choice.tool_calls, choice.finish_reason
        if came == (mended.text, mended.calls, mended.finish_reason):
            return []
        choice.text, choice.tool_calls = mended.text, mended.calls
        choice.finish_reason = mended.finish_reason
        reply.mended.add(index)
        for kind in dict.fromkeys(mended.repairs):
            self._note("tool_call_repaired", (kind,))
        for format_name in mended.rescued:
            self._note("tool_call_rescued", (format_name,))
        return [*mended.repairs, *(["rescued"] if mended.rescued else [])]

    def _note(self, kind: str, labels: tuple[str, ...], **detail: Any) -> None:
        self.remarks.incidents.append(Incident(kind, labels, detail))
