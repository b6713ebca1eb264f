"""Replies that no server meant to give: empty ones, and ends that LiteLLM made up.

A stream whose model server dies reaches us with an invented ``finish_reason: "stop"`` and
``[DONE]``. Often it has no text. Where it has some, its one tell is the usage, which LiteLLM then
counts itself: it has ``completion_tokens_details`` and no ``cached_tokens``, or comes too late to
be waited for. A server that sends no usage of its own looks the same in every good reply, so the
tell counts only for local tiers that have shown that they do.
"""

from __future__ import annotations

from ..engine.exchange import Exchange
from ..engine.pipeline import StageState
from ..engine.verdicts import EmptyResponse, UpstreamFailed
from ..settings import Settings
from ..wire import thoughts
from ..wire.reply import ChoiceReply, Reply

# Replies with a usage of the server's own before one without it says anything; how many of them
# for each run of replies without; and the run that is too long for a server's death, which ends
# the replies of all its clients at once: such a server sends no usage any more.
MIN_OWN = 10
OWN_FOR_EACH_RUN = 10
LONGEST_RUN = 32
_CUT = ("length", "max_tokens", "content_filter")


class BrokenReplies:
    """Finds empty replies and made-up ends; one for all exchanges."""

    name = "escalation"
    bypass = ""

    def __init__(self, settings: Settings) -> None:
        self._local = {name for name, tier in settings.tiers.items() if tier.local}
        self._seen = {name: _Usages() for name in self._local}

    def open(self, exchange: Exchange) -> StageState:
        return _State(self, exchange)

    def record_end(self, tier: str, reply: Reply) -> bool:
        """Record a reply's end, once; True where LiteLLM made it up."""
        if tier not in self._local or reply.cut:
            return False
        usage = reply.usage
        # None: LiteLLM may take seconds to count, and nobody waits for it after the finish_reason.
        return self._seen[tier].record(usage is None or usage.counted_by_litellm)


class _Usages:
    """Who counted the tokens of a tier's replies. ``runs``: of replies that LiteLLM counted."""

    def __init__(self) -> None:
        self._own = self._runs = self._run = self._between = 0

    def record(self, counted_by_litellm: bool) -> bool:
        if not counted_by_litellm:
            self._own += 1
            self._between += 1
            if self._between >= self._run:  # some of the clients still get a good reply, not most
                self._run = self._between = 0
            return False
        self._run += 1
        if self._run == 1:
            self._runs += 1
        if self._run > LONGEST_RUN:
            self._own = self._runs = 0
        return self._own >= MIN_OWN and self._own >= self._runs * OWN_FOR_EACH_RUN


class _State(StageState):
    def __init__(self, stage: BrokenReplies, exchange: Exchange) -> None:
        self._stage = stage
        self._exchange = exchange

    def judge(self, reply: Reply) -> EmptyResponse | UpstreamFailed | None:
        made_up = self._stage.record_end(self._exchange.tier, reply)
        # With a stop sequence of the client's, nothing may well be all that comes before it.
        if not self._exchange.request.body.get("stop"):
            for choice in reply.choices.values():
                if _is_empty(choice, reply.flowed):
                    return EmptyResponse()
        if made_up and not reply.has_calls:
            return UpstreamFailed("server_error", "the model server died within its reply")
        return None


def _is_empty(choice: ChoiceReply, flowed: int) -> bool:
    """``flowed``: characters of the text that the client has; a thought among them is out."""
    if choice.finish_reason in _CUT or choice.tool_calls or choice.refusal or choice.has_other:
        return False
    text = choice.text.strip()
    return not text or (not flowed and thoughts.are_all(text))
