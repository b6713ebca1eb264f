"""Time limits on an attempt's silence and length, with times that the test passes in."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mlx_stack_proxy.engine.deadlines import AFTER_FINISH_SECONDS, Deadlines
from mlx_stack_proxy.engine.verdicts import LEFT_OPEN, Failure
from mlx_stack_proxy.settings import TierSettings

TIER = TierSettings(
    model="m",
    first_token_timeout=30,
    idle_timeout=10,
    tool_silence_timeout=20,
    total_timeout=100,
)


ASKED = replace(TIER, health_url="http://127.0.0.1:9/health")


class Timed(Deadlines):
    """The deadlines of a call whose reply the test makes grow by :meth:`hear`."""

    def __init__(self, tier: TierSettings | None, *, tools: bool = False, **times: Any) -> None:
        reply: Any = SimpleNamespace(choices={}, pieces=0, usage=None)
        attempt: Any = SimpleNamespace(reply=reply, finished=False)
        super().__init__(tier, attempt, tools=tools, **times)

    def hear(self, now: float, *, finished: bool = False, counted: bool = False) -> None:
        """A piece of content comes, or else the finish_reason and the usage."""
        reply: Any = self.attempt.reply
        reply.choices[0], reply.usage = None, counted or None
        reply.pieces += not finished
        self.attempt.finished = finished  # type: ignore[misc]
        self.note_bytes(now)


def said(deadlines: Deadlines, now: float) -> str | None:
    found = deadlines.check(now)
    if found is None:
        return None
    assert isinstance(found, Failure)
    assert found.reason == "timeout"
    assert found.status is None and found.kind == found.reason
    return found.message


NOTHING, NO_END = "nothing came within 30 s", "no end of the reply within 100 s"
SILENT = "nothing more came for 10 s"
# When bytes came, and whether a reply had begun with them; then the moment of the verdict.
COURSES: dict[str, tuple[dict[str, bool], list[tuple[float, bool]], float, str]] = {
    "nothing at all": ({}, [], 1030.0, NOTHING),
    "silence after the first content": ({}, [(1005.0, True)], 1015.0, SILENT),
    "bytes without content end no silence": ({}, [(1025.0, False)], 1030.0, NOTHING),
    "the whole has an end": ({}, [(at, True) for at in range(1001, 1100)], 1100.0, NO_END),
    "with tools the larger limit counts": (
        {"tools": True},
        [(1001.0, True)],
        1021.0,
        "nothing more came for 20 s",
    ),
    "what comes whole has until the end": ({"streams": False}, [], 1100.0, NO_END),
}


@pytest.mark.parametrize("name", COURSES)
def test_time_limits(name: str) -> None:
    how, heard, ends, message = COURSES[name]
    deadlines = Timed(TIER, **how, began=1000.0)
    for now, begun in heard:
        assert said(deadlines, now) is None
        if begun:
            deadlines.hear(now)
        else:
            deadlines.note_bytes(now)
    assert said(deadlines, ends - 0.1) is None
    assert said(deadlines, ends) == message


@pytest.mark.parametrize(("last", "final"), [(1091.0, True), (1090.0, False)])
def test_who_wrote_to_the_end_would_write_as_long_again(last: float, final: bool) -> None:
    deadlines = Timed(ASKED, began=1000.0)
    deadlines.hear(last)
    found = deadlines.check(1100.0)
    assert isinstance(found, Failure) and found.final is final


def test_a_model_that_is_no_tier_has_the_usual_limits() -> None:
    usual = TierSettings(model="any")
    deadlines = Timed(None, began=0.0)
    assert said(deadlines, usual.first_token_timeout - 0.1) is None
    assert said(deadlines, usual.first_token_timeout) is not None
    deadlines.hear(1.0)
    assert said(deadlines, 0.9 + usual.idle_timeout) is None
    assert said(deadlines, 1.0 + usual.idle_timeout) is not None


def test_a_finished_reply_waits_for_its_end_a_moment_only() -> None:
    deadlines = Timed(TIER, began=1000.0)
    deadlines.hear(1005.0, finished=True)
    assert deadlines.check(1005.0 + AFTER_FINISH_SECONDS - 0.1) is None
    assert deadlines.check(1005.0 + AFTER_FINISH_SECONDS) == LEFT_OPEN
    deadlines.hear(1005.5, finished=True, counted=True)
    assert deadlines.check(1005.9) is None
    assert deadlines.check(1006.0) == LEFT_OPEN, "only `[DONE]` is due"
    late = Timed(TIER, began=1000.0)
    late.hear(1099.0, finished=True)
    assert late.check(1100.0) == LEFT_OPEN, "no timeout when its whole time is over"


def test_silence_is_settled_by_asking() -> None:
    deadlines = Timed(ASKED, began=1000.0)
    assert not deadlines.begin_asking(1019.9)
    assert deadlines.begin_asking(1020.0)
    assert not deadlines.begin_asking(1020.0)  # one question at a time
    deadlines.answered(1021.0, server=True)
    assert not deadlines.begin_asking(1040.9)
    assert deadlines.check(1099.0) is None  # long past the limits of silence
    assert said(deadlines, 1100.0) == "no end of the reply within 100 s"


def test_three_questions_without_an_answer_are_a_timeout() -> None:
    deadlines = Timed(ASKED, began=1000.0)
    deadlines.hear(1005.0)
    assert not deadlines.begin_asking(1014.9)  # the silence limit, where it is shorter than 20 s
    for now in (1015.0, 1018.0, 1021.0):
        assert said(deadlines, now) is None
        assert deadlines.begin_asking(now)
        deadlines.answered(now + 3, server=False)
    assert not deadlines.begin_asking(1024.0)
    assert said(deadlines, 1024.0) == "nothing came for 19 s, and the server does not answer"


def test_bytes_end_the_questions() -> None:
    deadlines = Timed(ASKED, began=1000.0)
    for now in (1020.0, 1023.0):
        assert deadlines.begin_asking(now)
        deadlines.answered(now + 3, server=False)
    deadlines.hear(1027.0)
    assert not deadlines.begin_asking(1036.9)
    assert deadlines.begin_asking(1037.0)


def test_litellm_that_does_not_answer_is_no_fault_of_the_tier() -> None:
    deadlines = Timed(ASKED, began=1000.0)
    for now in (1020.0, 1023.0, 1026.0):
        assert deadlines.begin_asking(now)
        deadlines.answered(now + 3, server=True, litellm=False)
    found = deadlines.check(1029.0)
    assert isinstance(found, Failure) and found.fault == "nobody" and found.final
    assert said(deadlines, 1029.0) == "nothing came for 29 s, and LiteLLM does not answer"


def test_a_server_that_answers_may_have_a_model_that_hangs() -> None:
    deadlines = Timed(ASKED, began=1000.0, silent_until=1050.0)
    assert deadlines.begin_asking(1020.0)
    deadlines.answered(1021.0, server=True)
    assert deadlines.hangs(1049.0) is None  # beyond the limit of silence, and not yet time
    message = "nothing came for 50 s, though the server answers"
    assert deadlines.hangs(1050.0) == Failure("silent", message)
    assert said(deadlines, 1099.0) is None
    assert said(deadlines, 1100.0) == "no end of the reply within 100 s"


def test_who_may_not_answer_is_asked_before_anything_is_guessed() -> None:
    deadlines = Timed(ASKED, began=1000.0, silent_until=1050.0)
    assert deadlines.begin_asking(1048.0)
    deadlines.answered(1049.0, server=True, litellm=False)
    assert deadlines.hangs(1050.0) is None
    assert deadlines.begin_asking(1050.0)
    deadlines.answered(1051.0, server=True)
    assert deadlines.hangs(1051.0) is not None


def test_only_a_silence_beyond_the_limits_means_that_it_hangs() -> None:
    deadlines = Timed(ASKED, began=1000.0, silent_until=1050.0)
    deadlines.hear(1045.0)
    assert deadlines.hangs(1050.0) is None
    assert deadlines.hangs(1054.9) is None
    assert deadlines.hangs(1055.0) is not None
    deadlines.hear(1056.0, finished=True)
    assert deadlines.hangs(1095.0) is None
    without = Timed(TIER, began=1000.0, silent_until=1001.0)
    assert without.hangs(1050.0) is None  # its silence has limits of its own
