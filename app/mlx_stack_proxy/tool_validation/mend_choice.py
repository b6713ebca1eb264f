"""Mends one choice of a reply: reads calls in its text, then checks and repairs each call."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..engine.outcome import Guided
from ..engine.verdicts import CallFailure
from ..wire.call import Call
from ..wire.reply import MAX_CALLS, ChoiceReply
from ..wire.thoughts import after_thoughts, inside_thoughts
from . import explain, guided
from .check import Checked, Options, check_call, check_response_format, is_wanted
from .formats.json_calls import DOUBLED
from .reply_parts import Mended, calls_as_text, drop_half_call
from .text_calls import Rescued, rescue, rescue_cut, rescue_thought
from .tool_choice import NOTHING, ToolChoice, breach
from .tools import NO_TOOLS, ToolSet
from .unread import broken_call


def call_id() -> str:
    """Return a random id for a call that the model wrote without one."""
    return "call_" + secrets.token_hex(12)


@dataclass(slots=True)
class ChoiceMender:
    """What the request and the settings say of how a choice is mended."""

    tools: Callable[[], ToolSet]  # compiled only if a call or a text asks for them
    offered: bool  # the request has tools
    choice: ToolChoice
    options: Options
    cleans: bool  # calls in texts are read, or formats' marks at least taken out
    checks_format: bool
    response_format: Mapping[str, Any] | None
    parallel: bool  # a reply may have several calls
    needs_ids: bool  # a `function_call` has none
    guided: Guided = ""

    @property
    def rescues(self) -> bool:
        """Whether calls written as text become real calls."""
        return self.offered and self.cleans and not self.choice.none

    @property
    def callable(self) -> ToolSet:
        """The tools whose calls are searched in texts."""
        return self.tools() if self.rescues else NO_TOOLS

    def mended(self, index: int, choice: ChoiceReply) -> Mended:
        mended = Mended(choice.text, list(choice.tool_calls), choice.finish_reason)
        if not self.offered and self.options.validate_tool_names:
            calls_as_text(mended)
        if mended.calls:
            if mended.is_cut:
                drop_half_call(mended.calls)
        elif self.guided and mended.text:
            self._read_guided(index, mended)
        elif self.cleans and not is_wanted(mended.text, self.response_format, self.options):
            self._rescue(index, mended, choice.reasoning)
        if mended.calls:
            self._check_calls(index, mended)
            if mended.failures and choice.tool_calls and self.rescues and not mended.is_cut:
                mended = self._with_calls_of_text(index, choice, mended)
        self._check_tool_choice(index, mended)
        if not mended.calls and not mended.failures:
            self._check_format(index, mended)
        return mended

    def _read_guided(self, index: int, mended: Mended) -> None:
        """Take a reply to our schema apart: a text, or calls."""
        obeyed, answer = guided.read_reply(mended.text)
        self.guided = "obeyed" if obeyed else "disregarded"
        if answer is not None:
            mended.text = answer
        elif self.rescues:
            self._rescue(index, mended)
        if obeyed and (mended.calls or answer is not None):
            mended.rescued = []
            mended.repairs.append(guided.WORD)

    def _rescue(self, index: int, mended: Mended, reasoning: str = "") -> None:
        options = self.options
        read = rescue_cut if mended.is_cut else rescue
        rescued = read(mended.text, self.callable, options.off)
        if self.rescues and options.validate_tool_names:
            mended.failures += self._unknown_calls(index, mended, rescued)
            mended.unknown = rescued.unoffered
        doubled = DOUBLED.search(mended.text)
        mended.text = rescued.content
        has_text = bool(mended.text.strip())
        thought = inside_thoughts(mended.text) if has_text else reasoning
        if not rescued.calls and thought and not mended.is_cut:
            rescued = rescue_thought(thought, self.callable, options.off)
            if rescued.calls:
                mended.thought = rescued.calls[0].name
                mended.text = rescued.content if has_text else mended.text
        if not rescued.calls:
            return
        mended.calls = [Call(call.name, call.arguments, call_id()) for call in rescued.calls]
        mended.rescued = [call.format for call in rescued.calls]
        if doubled:
            mended.repairs.append("doubled_braces")
        if not mended.is_cut:
            mended.finish_reason = "tool_calls"

    def _unknown_calls(self, index: int, mended: Mended, rescued: Rescued) -> Iterator[CallFailure]:
        """Yield a failure for each call in the text of a tool that the request doesn't offer.

        If prose surrounds such calls and no other was found, note a doubt instead.
        """
        names, offered = rescued.unknown, self.tools().names
        if names and not rescued.calls:
            everything = ToolSet(dict.fromkeys((*offered, *names)))
            if rescue(mended.text, everything).content.strip():
                mended.unoffered = names[0]  # a doubt: the prose may only speak of a call
                return
        for name in names:
            error = explain.unknown_tool(name, offered)
            yield CallFailure(name, "unknown_tool", error, index)

    def _with_calls_of_text(self, index: int, choice: ChoiceReply, failed: Mended) -> Mended:
        """Return the choice with the text's calls in place of the failed ones, if these are valid.

        Some servers write a call with empty arguments, and leave the real one in the text.
        """
        in_text = rescue(failed.text, self.callable, self.options.off)
        spare = list(in_text.calls)
        mended = Mended(in_text.content, list(choice.tool_calls), choice.finish_reason)
        for position in dict.fromkeys(failure.position for failure in failed.failures):
            call = mended.calls[position] if position >= 0 else None
            name = self.tools().tool_named(call.name) if call else None
            real = next((one for one in spare if one.name == name), None)
            if call is None or real is None:
                return failed
            spare.remove(real)
            mended.calls[position] = Call(real.name, real.arguments, call.id)
            mended.rescued.append(real.format)
        self._check_calls(index, mended)
        return failed if mended.failures else mended

    def _check_calls(self, index: int, mended: Mended) -> None:
        if len(mended.calls) > MAX_CALLS:
            error = f"more than {MAX_CALLS} calls in one response"
            mended.failures.append(CallFailure("", "too_many_calls", error, index))
            return
        if not self.parallel and len(mended.calls) > 1:
            mended.calls, mended.rescued = mended.calls[:1], mended.rescued[:1]
            mended.repairs.append("parallel_calls")
        seen: set[str] = set()
        for position, call in enumerate(mended.calls):
            checked = check_call(call.name, call.arguments, self.tools(), self.options)
            if call.was_object:
                mended.repairs.append("arguments_not_text")
            if call.odd:
                mended.repairs.append("call_pieces")
            _take(checked, index, position, mended)
            identity = call.id
            if (not identity and self.needs_ids) or (identity and identity in seen):
                kind = "duplicate_id" if identity else "missing_id"
                if self.options.repair:
                    mended.repairs.append(kind)
                    identity = call_id()
                elif identity:
                    error = f'two calls have the same id "{identity[:64]}"'
                    mended.failures.append(CallFailure(call.name, kind, error, index, position))
            seen.add(identity)
            mended.calls[position] = Call(checked.name, checked.arguments, identity)
        if mended.finish_reason == "function_call" and self.needs_ids:
            mended.finish_reason = "tool_calls"  # clients that offer `tools` expect this reason

    def _check_tool_choice(self, index: int, mended: Mended) -> None:
        """Note a failure if the reply disobeys ``tool_choice`` or lost the call it was to be.

        Next to a text, a call that the reply only claims is a doubt: the text may be the answer.
        """
        names = [call.name for call in mended.calls]
        # A reply that was cut may have gone on to call; a failed one is reported already.
        excused = bool(mended.failures) or mended.is_cut
        lost = not names and self.options.validate_json and self._is_lost_call(mended)
        choice = self.choice if self.offered and self.options.validate_tool_names else NOTHING
        failure = breach(choice, names, lost=lost, excused=excused)
        if failure is not None:
            mended.failures.append(replace(failure, choice=index))
        elif mended.speaks_of_calls and not names and mended.text.strip():
            demanded = self.options.validate_json and not self.choice.none
            mended.claims_call = demanded and not excused
            mended.finish_reason = "stop"

    def _is_lost_call(self, mended: Mended) -> bool:
        """Whether a choice without calls is nothing but the claim of one, or one that is broken."""
        if mended.speaks_of_calls and not after_thoughts(mended.text).strip():
            return True
        return self.rescues and broken_call(mended.text, self.tools())

    def _check_format(self, index: int, mended: Mended) -> None:
        if not (self.response_format and self.checks_format and mended.text) or mended.is_cut:
            return
        checked = check_response_format(mended.text, self.response_format, self.options)
        mended.text = checked.arguments
        _take(checked, index, -1, mended)


def _take(checked: Checked, index: int, position: int, mended: Mended) -> None:
    """Add a check's repairs and failures to its choice; ``position`` is -1 for the text."""
    mended.repairs += checked.repairs
    mended.unchecked += checked.unchecked
    mended.failures += (
        replace(failure, choice=index, position=position) for failure in checked.failures
    )
