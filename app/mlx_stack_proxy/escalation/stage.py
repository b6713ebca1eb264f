"""Detects replies that no server meant to give: empty, to a cut prompt, or with a made-up end.

If a model server dies, LiteLLM ends its stream with an invented ``finish_reason: "stop"`` and
``[DONE]``. Often the reply has no text. If it has some, only the usage reveals the death, because
LiteLLM then counts itself: that usage has no ``cached_tokens``, and ``completion_tokens_details``
unless the stream held more than text; or it arrives too late. Good replies of a server that never
sends a usage look the same, so the sign counts only for local tiers whose server has sent its own
usage in a stream.
"""

from __future__ import annotations

from ..engine.exchange import Exchange
from ..engine.outcome import Incident
from ..engine.pipeline import Stage, StageState
from ..engine.steps import Start
from ..engine.tier_view import TierView
from ..engine.verdicts import Failure, empty
from ..settings import Settings
from ..wire import thoughts
from ..wire.delta import Usage
from ..wire.reply import ChoiceReply, Reply
from . import ladder
from .cut_prompts import CutPrompts

# A reply without the server's own usage is suspect only if at least MIN_OWN streams of the tier had
# one, and OWN_FOR_EACH_RUN for each run of replies without one. One is not enough: vLLM reports
# `cached_tokens` only if some were cached, so its usage for a new prompt looks like LiteLLM's
# count; and a hook of LiteLLM's sends none.
MIN_OWN = 10
OWN_FOR_EACH_RUN = 10
# A server's death ends the replies of all its clients, which makes a run. A longer run than this
# means that the server no longer sends a usage.
LONGEST_RUN = 32
_CUT = ("length", "max_tokens", "content_filter")


class Escalation(Stage):
    """Chooses the tier to start on; detects empty replies and made-up ends."""

    name = "escalation"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._models = {name: tier.model for name, tier in settings.tiers.items() if tier.local}
        self._seen = {name: _Usages() for name in self._models}
        self.cut_prompts = CutPrompts()

    def admit(self, exchange: Exchange, start: Start, view: TierView) -> Start:
        return ladder.start(exchange, self._settings, view, view.sticky)

    def continue_from(self, predecessor: Stage) -> None:
        """Keep what was seen of each tier whose model is still the same."""
        assert isinstance(predecessor, Escalation)
        same = self._models.items() & predecessor._models.items()
        self._seen |= {name: predecessor._seen[name] for name, _ in same}
        self.cut_prompts = predecessor.cut_prompts

    def open(self, exchange: Exchange) -> StageState:
        return _EscalationState(self, exchange)

    def record_end(self, tier: str, reply: Reply) -> bool:
        """Record the end of a reply, once per reply. Return whether LiteLLM invented the end."""
        # LiteLLM may take seconds to count, and after the finish_reason the usage isn't awaited.
        seen = self._seen.get(tier)
        return seen is not None and not (reply.cut or reply.whole) and seen.record(reply.usage)


class _Usages:
    """Records who counted the tokens of a tier's replies: the server itself, or LiteLLM."""

    def __init__(self) -> None:
        # _own_usages: replies that the server counted. _runs: runs of replies that LiteLLM counted.
        # _run_length: such replies in the current run; 0: no run. _own_in_run: replies that the
        # server counted since that run began. _unnamed: own usages without cached tokens.
        self._own_usages = self._runs = self._run_length = self._own_in_run = self._unnamed = 0

    def record(self, usage: Usage | None) -> bool:
        """Record a reply's usage. Return whether it shows that the server has died."""
        if usage is not None and self._is_own(usage):
            self._own_usages += 1
            self._unnamed += not usage.names_cached
            self._own_in_run += 1
            # When a server dies, bad replies outnumber the good ones; otherwise the run is over.
            if self._own_in_run >= self._run_length:
                self._run_length = self._own_in_run = 0
            return False
        self._run_length += 1
        if self._run_length == 1:
            self._runs += 1
        if self._run_length > LONGEST_RUN:
            self._own_usages = self._runs = self._unnamed = 0
        return self._own_usages >= MIN_OWN and self._own_usages >= self._runs * OWN_FOR_EACH_RUN

    def _is_own(self, usage: Usage) -> bool:
        """Whether the server counted; one that always reports cached tokens reports them again."""
        if usage.counted_by_litellm:
            return False
        return usage.names_cached or self._unnamed > 0 or self._own_usages < MIN_OWN


class _EscalationState(StageState):
    def __init__(self, stage: Escalation, exchange: Exchange) -> None:
        self._stage = stage
        self._exchange = exchange

    def judge(self, reply: Reply) -> Failure | None:
        made_up = self._stage.record_end(self._exchange.tier, reply)
        # The reply may begin with a stop sequence of the client's, and is then rightly empty.
        if not self._exchange.request.body.get("stop"):
            for choice in reply.choices.values():
                if _is_empty(choice):
                    ended = not made_up and self._has_ended(choice, reply)
                    return empty("ended" if ended else "empty_response")
        if made_up and not any(choice.tool_calls for choice in reply.choices.values()):
            return Failure("server_error", "the model server died within its reply")
        return self._cut_prompt(reply)

    def _cut_prompt(self, reply: Reply) -> Failure | None:
        """Return the overflow of a prompt that the server cut, if the client has no text."""
        request, tier = self._exchange.request, self._exchange.tier
        read = self._stage.cut_prompts.record(tier, request, reply.usage)
        if not read:
            return None
        sent = request.prompt_tokens
        detail = {"tokens": read, "estimate": sent}
        self.remarks.incidents.append(Incident("prompt_cut", (), detail))
        if reply.flowed:
            return None
        message = f"the server read {read} tokens of a prompt of about {sent}, and cut the rest"
        return Failure(
            "context_overflow", message, status=200, window=read, in_field="window", inferred=True
        )

    def _has_ended(self, choice: ChoiceReply, reply: Reply) -> bool:
        """Whether the server itself ended the turn, with its own usage, after a tool's result."""
        roles = (
            message.get("role") for message in reversed(self._exchange.request.body["messages"])
        )
        newest = next((role for role in roles if role in ("tool", "assistant")), "")
        own = reply.usage is not None and not reply.usage.counted_by_litellm
        return own and choice.finish_reason == "stop" and newest == "tool"


def _is_empty(choice: ChoiceReply) -> bool:
    """Whether a choice has no content, or only reasoning in its text."""
    if choice.finish_reason in _CUT or choice.tool_calls or choice.refusal or choice.has_other:
        return False
    text = choice.text.strip()
    return not text or thoughts.are_all(text)
