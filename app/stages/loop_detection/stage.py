"""The stage: a hint before a reply that may go on in a circle, a verdict on one that does.

Across turns it reads the history from the request's messages, asks the detectors, and judges the
reply as the newest turn. Within a reply a :class:`ReplyWatch` sees every event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ...core.events import Event
from ...core.exchange import Exchange, Request
from ...core.pipeline import StageState
from ...core.reply import Reply
from ...core.verdicts import LoopDetected, Verdict
from ...settings import LoopDetectionSettings, Settings


class ReplyWatch(Protocol):
    """What watches one reply while it comes."""

    def on_event(self, event: Event) -> Verdict | None: ...

    def mend(self, reply: Reply) -> None: ...


# Makes the watch of one attempt; None: this attempt needs none.
MakeWatch = Callable[[Exchange, LoopDetectionSettings], ReplyWatch | None]


def no_watch(exchange: Exchange, rules: LoopDetectionSettings) -> ReplyWatch | None:
    return None


class LoopDetection:
    """The configuration, and what is remembered of sessions."""

    name = "loop_detection"
    bypass = "loop"

    def __init__(self, settings: Settings, make_watch: MakeWatch = no_watch) -> None:
        self.rules = settings.reliability.loop_detection
        self._make_watch = make_watch

    def open(self, exchange: Exchange) -> StageState:
        watch = self._make_watch(exchange, self.rules)
        if watch is None:
            return _State(self, exchange)
        return _WatchingState(self, exchange, watch)


class _State(StageState):
    def __init__(self, stage: LoopDetection, exchange: Exchange) -> None:
        self._stage = stage
        self._exchange = exchange

    def hold_whole(self) -> bool:
        return False

    def on_request(self, request: Request) -> None:
        return None

    def judge(self, reply: Reply) -> LoopDetected | None:
        return None


class _WatchingState(_State):
    """The same, with an eye on every event: a state without one costs nothing a chunk."""

    def __init__(self, stage: LoopDetection, exchange: Exchange, watch: ReplyWatch) -> None:
        super().__init__(stage, exchange)
        self._watch = watch

    def on_event(self, event: Event) -> Verdict | None:
        return self._watch.on_event(event)

    def mend(self, reply: Reply) -> None:
        self._watch.mend(reply)
