"""The pipeline: the order of stages, the severest verdict, and a stage that raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.pipeline import Pipeline, Stage, StageState, first_tier
from mlx_stack_proxy.engine.request import Controls, UpstreamRequest
from mlx_stack_proxy.engine.steps import Start
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.engine.verdicts import (
    Cut,
    InvalidToolCall,
    LoopDetected,
    Verdict,
    empty,
    rejected,
    severest,
    truncated,
)
from mlx_stack_proxy.errors import ProxyError
from mlx_stack_proxy.wire.delta import Delta
from mlx_stack_proxy.wire.reply import Reply
from tests.engine.exchanges import Faults, exchange

DELTA = Delta(b"")
LOOP = LoopDetected("repetition", 3, "a loop")
EMPTY = empty()
REFUSED = rejected(ProxyError(429, "budget_exceeded", "no more"))


class Recorder(StageState):
    """Writes down what it is asked, and answers as it was told."""

    def __init__(self, stage: Scripted) -> None:
        self.stage = stage

    def on_request(self, request: UpstreamRequest) -> None:
        self._act("on_request", request)

    def watch(self, reply: Reply, delta: Delta) -> Verdict | None:
        return self._act("watch", delta)

    def mend(self, reply: Reply) -> None:
        self._act("mend", reply)

    def judge(self, reply: Reply) -> Verdict | None:
        return self._act("judge", reply)

    def _act(self, hook: str, about: Any) -> Verdict | None:
        self.stage.seen.append((self.stage.name, hook))
        act = self.stage.acts.get(hook)
        return act(about) if act else None


class Scripted:
    bypass = ""

    def __init__(
        self,
        name: str,
        seen: list[tuple[str, str]] | None = None,
        **acts: Callable[[Any], Verdict | None],
    ) -> None:
        self.name = name
        self.seen = seen if seen is not None else []
        self.acts = acts

    def open(self, exchange: Exchange) -> StageState:
        self.seen.append((self.name, "open"))
        if "open" in self.acts:
            self.acts["open"](exchange)
        return Recorder(self)


class OnlyAsks:
    """A stage that leaves the stream alone."""

    name = "only-asks"
    bypass = "asking"

    def open(self, exchange: Exchange) -> StageState:
        return StageState()


def broken(_: Any) -> Verdict | None:
    raise RuntimeError("a bug")


def piped(*stages: Any, faults: Faults | None = None) -> Pipeline:
    return Pipeline(stages, exchange(), faults if faults is not None else Faults())


def request() -> UpstreamRequest:
    return UpstreamRequest("fast", {"messages": [], "max_tokens": 5})


def test_stages_are_asked_in_order_and_all_mend_before_any_judges() -> None:
    seen: list[tuple[str, str]] = []
    pipeline = piped(Scripted("one", seen), Scripted("two", seen))
    pipeline.on_request(request())
    pipeline.watch(Reply(), DELTA)
    pipeline.end(Reply())
    hooks = ["open", "on_request", "watch", "mend", "judge"]
    assert seen == [(name, hook) for hook in hooks for name in ("one", "two")]


def test_the_first_verdict_on_a_delta_ends_it_at_once() -> None:
    seen: list[tuple[str, str]] = []
    stages = [Scripted("one", seen, watch=lambda _: LOOP), Scripted("two", seen)]
    assert piped(*stages).watch(Reply(), DELTA) is LOOP
    assert ("two", "watch") not in seen


def test_at_the_end_all_judge_and_the_severest_counts() -> None:
    seen: list[tuple[str, str]] = []
    one = Scripted("one", seen, judge=lambda _: EMPTY)
    two = Scripted("two", seen, judge=lambda _: LOOP)
    assert piped(one, two).end(Reply()) is LOOP
    assert ("two", "judge") in seen


SEVERITY: list[Verdict] = [
    REFUSED,
    LOOP,
    InvalidToolCall(()),
    truncated("unseen"),
    EMPTY,
    Cut("repeated_tool_calls", "tool_calls"),
]


@pytest.mark.parametrize("upper", range(len(SEVERITY)))
def test_severity(upper: int) -> None:
    for lower in range(upper, len(SEVERITY)):
        assert severest([SEVERITY[lower], SEVERITY[upper]]) is SEVERITY[upper]
        assert severest([SEVERITY[upper], SEVERITY[lower]]) is SEVERITY[upper]
    assert severest([]) is None


DOUBTS: list[Verdict] = [replace(LOOP, doubt=True), InvalidToolCall((), doubt=True)]


def test_no_doubt_hides_what_is_surely_wrong() -> None:
    """What is doubted may go out as it is."""
    for sure in (InvalidToolCall(()), truncated("unseen"), EMPTY):
        for doubt in DOUBTS:
            assert severest([doubt, sure]) is sure
    assert severest(DOUBTS) is DOUBTS[0]


def test_nobody_s_word_makes_a_loop_right_that_is_wrong_in_another_way_too() -> None:
    confirmed = replace(LOOP, confirmable=True, confirmed=True)
    assert severest([confirmed]) is confirmed
    assert severest([confirmed, DOUBTS[1]]) is confirmed
    assert severest([confirmed, InvalidToolCall(())]) == LOOP


@pytest.mark.parametrize("hook", ["open", "on_request", "watch", "mend", "judge"])
def test_a_stage_that_raises_is_reported_once_and_left_out(hook: str) -> None:
    seen: list[tuple[str, str]] = []
    faults = Faults()
    good = Scripted("good", seen, judge=lambda _: LOOP)
    stages = [Scripted("bad", seen, **{hook: broken}), good]
    pipeline = piped(*stages, faults=faults)
    for _ in range(2):
        pipeline.on_request(request())
        assert pipeline.watch(Reply(), DELTA) is None
    assert pipeline.end(Reply()) is LOOP, "a verdict after a fault still counts"
    assert [(name, str(error)) for name, error in faults] == [("bad", "a bug")]
    hooks = [found for name, found in seen if name == "bad"]
    assert hooks[-1] == hook and hooks.count(hook) == 1
    assert [found for name, found in seen if name == "good"].count("judge") == 1


def test_a_half_made_change_of_the_request_is_undone() -> None:
    def half(asked: UpstreamRequest) -> Verdict | None:
        asked.body["max_tokens"] = 1
        asked.body["new"] = True
        del asked.body["messages"]
        raise RuntimeError

    def whole(asked: UpstreamRequest) -> Verdict | None:
        asked.body["temperature"] = 0
        return None

    asked = request()
    piped(Scripted("half", on_request=half), Scripted("whole", on_request=whole)).on_request(asked)
    assert asked.body == {"messages": [], "max_tokens": 5, "temperature": 0}


def test_a_bypassed_stage_is_not_opened() -> None:
    asked = exchange(controls=Controls(bypass=frozenset({"asking"})))
    assert Pipeline([OnlyAsks()], asked, Faults())._states == []
    assert len(Pipeline([OnlyAsks()], exchange(), Faults())._states) == 1
    # The empty word is no bypass: such a stage can't be left out.
    asked = exchange(controls=Controls(bypass=frozenset({""})))
    assert len(Pipeline([Scripted("always")], asked, Faults())._states) == 1


def test_a_stage_that_ignores_the_stream_costs_it_nothing() -> None:
    assert piped(OnlyAsks())._watching == []
    assert len(piped(OnlyAsks(), Scripted("watches"))._watching) == 1


class Chooser(Stage):
    """Moves the start to a tier, and raises if it is to."""

    bypass = "budget"

    def __init__(self, name: str, tier: str = "") -> None:
        self.name = name
        self._tier = tier
        self.saw = ""

    def admit(self, exchange: Exchange, start: Start, view: TierView) -> Start:
        self.saw = start.tier
        if not self._tier:
            raise ValueError
        return Start(self._tier, self.name)


def test_stages_choose_the_tier_to_start_on_from_the_last_to_the_first() -> None:
    faults: list[str] = []
    first, faulty, last = Chooser("a", "standard"), Chooser("b"), Chooser("c", "longctx")
    known = TierView()
    stages = [first, faulty, last]

    def chosen(whole: Exchange) -> Start:
        return first_tier(stages, whole, known, lambda stage, _: faults.append(stage))

    whole = exchange(tiers=("fast", "standard", "longctx"))
    assert chosen(whole) == Start("standard", "a")
    assert (last.saw, first.saw) == ("fast", "longctx")
    assert faults == ["b"], "a stage that raises is left out"
    bypassed = exchange(tiers=("fast",), controls=Controls(bypass=frozenset({"budget"})))
    assert chosen(bypassed) == Start("fast")
