"""Time limits on an attempt's silence and length, with times that the test passes in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlx_stack_proxy.engine.deadlines import AFTER_FINISH_SECONDS, Deadlines
from mlx_stack_proxy.engine.verdicts import LeftOpen, UpstreamFailed
from mlx_stack_proxy.settings import TierSettings

TIER = TierSettings(
    model="m",
    first_token_timeout=30,
    idle_timeout=10,
    tool_silence_timeout=20,
    total_timeout=100,
)


def said(deadlines: Deadlines, now: float) -> str | None:
    found = deadlines.check(now)
    if found is None:
        return None
    assert isinstance(found, UpstreamFailed)
    assert found.reason == "timeout"
    assert found.status is None and not found.unreachable and not found.client_fault
    return found.message


def test_nothing_at_all() -> None:
    deadlines = Deadlines(TIER, tools=False, began=1000.0)
    assert said(deadlines, 1029.9) is None
    assert said(deadlines, 1030.0) == "nothing came within 30 s"


def test_silence_after_the_first_content() -> None:
    deadlines = Deadlines(TIER, tools=False, began=1000.0)
    deadlines.heard(1005.0, begun=True)
    assert said(deadlines, 1014.9) is None
    assert said(deadlines, 1015.0) == "nothing more came for 10 s"


def test_bytes_without_content_are_a_sign_of_life_and_no_beginning() -> None:
    deadlines = Deadlines(TIER, tools=False, began=1000.0)
    deadlines.heard(1025.0, begun=False)  # a keep-alive comment
    assert said(deadlines, 1054.0) is None
    assert said(deadlines, 1055.0) == "nothing came within 30 s"


def test_the_whole_reply_has_an_end() -> None:
    deadlines = Deadlines(TIER, tools=False, began=1000.0)
    for second in range(1001, 1100):
        deadlines.heard(float(second), begun=True)
        assert said(deadlines, float(second)) is None
    assert said(deadlines, 1100.0) == "no end of the reply within 100 s"


@pytest.mark.parametrize(("last", "final"), [(1081.0, True), (1080.0, False)])
def test_who_wrote_to_the_end_would_write_as_long_again(last: float, final: bool) -> None:
    deadlines = Deadlines(ASKED, tools=False, began=1000.0)
    deadlines.heard(last, begun=False)
    found = deadlines.check(1100.0)
    assert isinstance(found, UpstreamFailed) and found.final is final


@pytest.mark.parametrize(("tools", "idle"), [(False, 1011.0), (True, 1021.0)])
def test_with_tools_the_larger_limit_counts(tools: bool, idle: float) -> None:
    deadlines = Deadlines(TIER, tools=tools, began=1000.0)
    deadlines.heard(1001.0, begun=True)
    assert said(deadlines, idle - 0.1) is None
    assert said(deadlines, idle) is not None


def test_a_model_that_is_no_tier_has_the_usual_limits() -> None:
    usual = TierSettings(model="any")
    deadlines = Deadlines(None, tools=False, began=0.0)
    assert said(deadlines, usual.first_token_timeout - 0.1) is None
    assert said(deadlines, usual.first_token_timeout) is not None
    deadlines.heard(1.0, begun=True)
    assert said(deadlines, 0.9 + usual.idle_timeout) is None
    assert said(deadlines, 1.0 + usual.idle_timeout) is not None


def test_a_finished_reply_waits_for_its_end_a_moment_only() -> None:
    deadlines = Deadlines(TIER, tools=False, began=1000.0)
    deadlines.heard(1005.0, begun=True, finished=True)
    assert deadlines.check(1005.0 + AFTER_FINISH_SECONDS - 0.1) is None
    assert deadlines.check(1005.0 + AFTER_FINISH_SECONDS) == LeftOpen()


def test_an_answer_that_comes_whole_has_until_the_end() -> None:
    deadlines = Deadlines(TIER, tools=False, began=1000.0, streams=False)
    assert said(deadlines, 1099.0) is None
    assert said(deadlines, 1100.0) == "no end of the reply within 100 s"


ASKED = replace(TIER, health_url="http://127.0.0.1:9/health")


def test_silence_is_settled_by_asking() -> None:
    limits = TierSettings(model="m", health_url="http://127.0.0.1:9/health", total_timeout=100)
    deadlines = Deadlines(limits, tools=False, began=1000.0)
    assert not deadlines.begin_asking(1019.9)
    assert deadlines.begin_asking(1020.0)
    assert not deadlines.begin_asking(1020.0)  # one question at a time
    deadlines.answered(1021.0, server=True)
    assert not deadlines.begin_asking(1040.9)
    assert deadlines.check(1099.0) is None  # long past the limits of silence
    assert said(deadlines, 1100.0) == "no end of the reply within 100 s"


def test_three_questions_without_an_answer_are_a_timeout() -> None:
    deadlines = Deadlines(ASKED, tools=False, began=1000.0)
    deadlines.heard(1005.0, begun=True)
    assert not deadlines.begin_asking(1014.9)  # the silence limit, where it is shorter than 20 s
    for now in (1015.0, 1018.0, 1021.0):
        assert said(deadlines, now) is None
        assert deadlines.begin_asking(now)
        deadlines.answered(now + 3, server=False)
    assert not deadlines.begin_asking(1024.0)
    assert said(deadlines, 1024.0) == "nothing came for 19 s, and the server does not answer"


def test_bytes_end_the_questions() -> None:
    deadlines = Deadlines(ASKED, tools=False, began=1000.0)
    for now in (1020.0, 1023.0):
        assert deadlines.begin_asking(now)
        deadlines.answered(now + 3, server=False)
    deadlines.heard(1027.0, begun=True)
    assert not deadlines.begin_asking(1036.9)
    assert deadlines.begin_asking(1037.0)


def test_litellm_that_does_not_answer_is_no_fault_of_the_tier() -> None:
    deadlines = Deadlines(ASKED, tools=False, began=1000.0)
    for now in (1020.0, 1023.0, 1026.0):
        assert deadlines.begin_asking(now)
        deadlines.answered(now + 3, server=True, litellm=False)
    found = deadlines.check(1029.0)
    assert isinstance(found, UpstreamFailed) and found.blameless and found.final
    assert said(deadlines, 1029.0) == "nothing came for 29 s, and LiteLLM does not answer"


def test_a_finished_reply_is_no_timeout_when_its_whole_time_is_over() -> None:
    deadlines = Deadlines(TIER, tools=False, began=1000.0)
    deadlines.heard(1099.0, begun=True, finished=True)
    assert deadlines.check(1100.0) == LeftOpen()


def test_a_server_that_answers_may_have_a_model_that_hangs() -> None:
    deadlines = Deadlines(ASKED, tools=False, began=1000.0, silent_until=1050.0)
    assert deadlines.begin_asking(1020.0)
    deadlines.answered(1021.0, server=True)
    assert deadlines.hangs(1049.0) is None  # beyond the limit of silence, and not yet time
    message = "nothing came for 50 s, though the server answers"
    assert deadlines.hangs(1050.0) == UpstreamFailed("timeout", message, silent=True)
    assert said(deadlines, 1099.0) is None
    assert said(deadlines, 1100.0) == "no end of the reply within 100 s"


def test_who_may_not_answer_is_asked_before_anything_is_guessed() -> None:
    deadlines = Deadlines(ASKED, tools=False, began=1000.0, silent_until=1050.0)
    assert deadlines.begin_asking(1048.0)
    deadlines.answered(1049.0, server=True, litellm=False)
    assert deadlines.hangs(1050.0) is None
    assert deadlines.begin_asking(1050.0)
    deadlines.answered(1051.0, server=True)
    assert deadlines.hangs(1051.0) is not None


def test_only_a_silence_beyond_the_limits_means_that_it_hangs() -> None:
    deadlines = Deadlines(ASKED, tools=False, began=1000.0, silent_until=1050.0)
    deadlines.heard(1045.0, begun=True)
    assert deadlines.hangs(1050.0) is None
    assert deadlines.hangs(1054.9) is None
    assert deadlines.hangs(1055.0) is not None
    deadlines.heard(1056.0, begun=True, finished=True)
    assert deadlines.hangs(1095.0) is None
    without = Deadlines(TIER, tools=False, began=1000.0, silent_until=1001.0)
    assert without.hangs(1050.0) is None  # its silence has limits of its own
