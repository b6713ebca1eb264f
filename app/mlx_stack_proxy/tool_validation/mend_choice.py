"""Mends one choice of a reply: finds calls in its text, then checks and repairs each call."""

from __future__ import annotations

import secrets

from msgspec.structs import replace

from ..engine.outcome import Guided
from ..engine.request import Request
from ..engine.verdicts import CallFailure
from ..settings import ToolValidationSettings
from ..wire.call import Call
from ..wire.reply import MAX_CALLS, ChoiceReply
from ..wire.thoughts import after_thoughts, inside_thoughts
from . import explain, guided
from .check import Checked, Options, check_call, check_response_format, is_wanted
from .formats.json_calls import DOUBLED
from .reply_parts import Mended, calls_as_text, drop_half_call
from .text_calls import Rescued, is_prose, rescue, rescue_cut, rescue_thought
from .tool_choice import CLAIMED, NOTHING, breach, read_choice
from .tools import NO_TOOLS, ToolSet, tool_set
from .unread import broken_call, unread


def call_id() -> str:
    """Return a random id for a call without one."""
    return "call_" + secrets.token_hex(12)


class ChoiceMender:
    """Mends choices by the request and the settings."""

    def __init__(self, rules: ToolValidationSettings, options: Options, request: Request) -> None:
        self._rules, self._options, self._request = rules, options, request
        self.offered = bool(request.tools)
        self.tools = tool_set(request.tools) if self.offered else NO_TOOLS
        self._choice = read_choice(request.body.get("tool_choice")) if self.offered else NOTHING
        # Whether calls written as text become real calls, and the tools that they may call.
        self.rescues = self.offered and rules.rescue_text_calls and not self._choice.none
        self.callable = self.tools if self.rescues else NO_TOOLS
        self.response_format = request.body.get("response_format")
        self.guided: Guided = ""

    def mended(self, index: int, choice: ChoiceReply) -> Mended:
        """Return the new contents of a choice; ``index``: its position, for the failures."""
        mended = Mended(choice.text, list(choice.tool_calls), choice.finish_reason)
        if not self.offered and self._options.validate_tool_names:
            calls_as_text(mended)
        if mended.calls:
            if mended.is_cut:
                drop_half_call(mended.calls)
        elif self.guided and mended.text:
            self._read_guided(mended)
        elif self._may_hold_calls(mended, choice.reasoning):
            self._rescue(mended, choice.reasoning)
        if mended.calls:
            self._check_calls(mended)
            if mended.failures and choice.tool_calls and self.rescues and not mended.is_cut:
                mended = self._with_calls_of_text(choice, mended)
        self._check_tool_choice(mended)
        wanted = self.response_format if self._rules.response_format else None
        if wanted and mended.text and not (mended.is_cut or mended.calls or mended.failures):
            checked = check_response_format(mended.text, wanted, self._options)
            mended.text = checked.arguments
            _take(mended, checked, -1)
        mended.failures = [replace(failure, choice=index) for failure in mended.failures]
        return mended

    def _may_hold_calls(self, mended: Mended, reasoning: str) -> bool:
        """Whether to search a text, or mere reasoning, for calls or formats' marks."""
        thinks_only = reasoning and not mended.text.strip()
        if self._rules.rescue_text_calls and (
            thinks_only or not is_prose(mended.text, self.callable)
        ):
            return not is_wanted(mended.text, self.response_format, self._options)
        return False

    def _read_guided(self, mended: Mended) -> None:
        """Convert a reply to our schema into a text or calls."""
        obeyed, answer = guided.read_reply(mended.text)
        self.guided = "obeyed" if obeyed else "disregarded"
        if answer is not None:
            mended.text = answer
        elif self.rescues:
            self._rescue(mended)
        if obeyed and (mended.calls or answer is not None):
            mended.rescued = []
            mended.repairs.append(guided.WORD)

    def _rescue(self, mended: Mended, reasoning: str = "") -> None:
        options, text = self._options, mended.text
        rescued = (rescue_cut if mended.is_cut else rescue)(text, self.callable, options.off)
        if self.rescues and options.validate_tool_names:
            self._note_unknown(mended, rescued)
        mended.text = rescued.content
        has_text = bool(mended.text.strip())
        thought = inside_thoughts(mended.text) if has_text else reasoning
        if not rescued.calls and thought and not mended.is_cut:
            rescued = rescue_thought(thought, self.callable, options.off)
            if rescued.calls:
                mended.doubt = unread(rescued.calls[0].name)
                mended.text = rescued.content if has_text else mended.text
        if not rescued.calls:
            return
        mended.calls = [Call(call.name, call.arguments, call_id()) for call in rescued.calls]
        mended.rescued = [call.format for call in rescued.calls]
        if DOUBLED.search(text):
            mended.repairs.append("doubled_braces")
        if not mended.is_cut:
            mended.finish_reason = "tool_calls"

    def _note_unknown(self, mended: Mended, rescued: Rescued) -> None:
        """Record a failure for each call in the text of a tool that the request doesn't offer.

        It is a doubt instead if the calls have no mark, or if prose surrounds them and no other
        call was found, because the prose may only mention a call.
        """
        names, offered = rescued.unknown, self.tools.names
        unknown = [
            CallFailure(name, "unknown_tool", explain.unknown_tool(name, offered))
            for name in (*names, rescued.unoffered)
        ]
        if rescued.unoffered:
            mended.doubt = unknown[-1]
        if names and not rescued.calls:
            everything = ToolSet(dict.fromkeys((*offered, *names)))
            if rescue(mended.text, everything).content.strip():
                mended.doubt = mended.doubt or unread(names[0])
                return
        mended.failures += unknown[:-1]

    def _with_calls_of_text(self, choice: ChoiceReply, failed: Mended) -> Mended:
        """Return the choice with the text's calls instead of the failed ones, if these are valid.

        Some servers write a call with empty arguments, and leave the real one in the text.
        """
        in_text = rescue(failed.text, self.callable, self._options.off)
        spare = list(in_text.calls)
        mended = Mended(in_text.content, list(choice.tool_calls), choice.finish_reason)
        for position in dict.fromkeys(failure.position for failure in failed.failures):
            call = mended.calls[position] if position >= 0 else None
            name = self.tools.tool_named(call.name) if call else None
            real = next((one for one in spare if one.name == name), None)
            if call is None or real is None:
                return failed
            spare.remove(real)
            mended.calls[position] = Call(real.name, real.arguments, call.id)
            mended.rescued.append(real.format)
        self._check_calls(mended)
        return failed if mended.failures else mended

    def _check_calls(self, mended: Mended) -> None:
        calls, needs_ids = mended.calls, not self._request.legacy_functions  # a function_call's
        if len(calls) > MAX_CALLS:
            error = f"more than {MAX_CALLS} calls in one response"
            mended.failures.append(CallFailure("", "too_many_calls", error))
            return
        if len(calls) > 1 and self._request.body.get("parallel_tool_calls") is False:
            del calls[1:], mended.rescued[1:]
            mended.repairs.append("parallel_calls")
        seen: set[str] = set()
        for position, call in enumerate(calls):
            if call.was_object:
                mended.repairs.append("arguments_not_text")
            if call.odd:
                mended.repairs.append("call_pieces")
            checked = check_call(call.name, call.arguments, self.tools, self._options)
            _take(mended, checked, position)
            identity = call.id
            if identity in seen if identity else needs_ids:
                kind = "duplicate_id" if identity else "missing_id"
                if self._options.repair:
                    mended.repairs.append(kind)
                    identity = call_id()
                elif identity:
                    error = f'two calls have the same id "{identity[:64]}"'
                    failure = CallFailure(call.name, kind, error, position=position)
                    mended.failures.append(failure)
            seen.add(identity)
            calls[position] = Call(checked.name, checked.arguments, identity)
        if mended.finish_reason == "function_call" and needs_ids:
            mended.finish_reason = "tool_calls"  # clients that offer `tools` expect this reason

    def _check_tool_choice(self, mended: Mended) -> None:
        """Record a failure if the reply disobeys ``tool_choice`` or lost the call it was to be.

        Next to a text, a call that the reply only claims is a doubt: the text may be the answer.
        """
        names, options = [call.name for call in mended.calls], self._options
        # A cut reply might have gone on to call; a failed one is already reported.
        excused = bool(mended.failures) or mended.is_cut
        lost = False
        if not names and options.validate_json:  # nothing but a call's claim, or a broken call?
            claimed = mended.speaks_of_calls and not after_thoughts(mended.text).strip()
            lost = claimed or (self.rescues and broken_call(mended.text, self.tools))
        choice = self._choice if options.validate_tool_names else NOTHING
        failure = breach(choice, names, lost=lost, excused=excused)
        if failure is not None:
            mended.failures.append(failure)
        elif mended.speaks_of_calls and not names and mended.text.strip():
            if options.validate_json and not self._choice.none and not excused:
                mended.doubt = CLAIMED
            mended.finish_reason = "stop"


def _take(mended: Mended, checked: Checked, position: int) -> None:
    """Add a check's repairs and failures to its choice; ``position`` is -1 for the text."""
    mended.repairs += checked.repairs
    mended.unchecked += checked.unchecked
    mended.failures += (replace(failure, position=position) for failure in checked.failures)
