"""Which form a retry has: guided, in words, without, or warmer."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mlx_stack_proxy.driver.guiding import always_guided, may_guide
from mlx_stack_proxy.driver.next_step import next_step
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.outcome import Outcome, Remarks
from mlx_stack_proxy.engine.request import Controls
from mlx_stack_proxy.engine.steps import Deliver, DeliverEarlier, Move, Retry, Step
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.engine.verdicts import Failure, InvalidToolCall, Verdict
from mlx_stack_proxy.escalation.learned import FORGET_SECONDS, LearnedLimits
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.wire.reply import ChoiceReply, Reply
from tests.driver.stepping import CORRECTED, DOUBTED_LOOP, EMPTY, INVALID, INVALID_REASON, LOOP
from tests.engine.exchanges import client_request, exchange
from tests.tool_validation.calls import SEARCH

OBEYS, REFUSES = TierView(guided={"fast": True}), TierView(guided={"fast": False})
UNREAD = InvalidToolCall((replace(INVALID.failures[0], kind="unread_call"),), doubt=True)
REFUSED = Failure("refused", "no", status=400, fault="client")
GUIDED = Retry(INVALID_REASON, 1, guided=True)
PROBE = Retry(INVALID_REASON, 1, correct=True, guided=True)


def settings(mode: str = "auto", **tier: Any) -> Settings:
    fast = {"model": "fast", "guided": mode, **tier}
    return from_mapping({"tiers": {"fast": fast, "standard": {"model": "standard"}}})


def story(*parts: Verdict | Step | str, tiers: tuple[str, ...] = ("fast",)) -> Exchange:
    """An exchange with tools. A text before a verdict is what that attempt's model wrote."""
    whole = exchange(client_request(tools=[SEARCH]), tiers=tiers)
    reply: Reply | None = None
    for part in parts:
        if isinstance(part, str):
            reply = Reply()
            reply.choices[0] = ChoiceReply()
            reply.choices[0].text = part
        elif isinstance(part, (Retry, Move)):
            whole.steps.append(part)
        else:
            remarks = Remarks(guided="asked" if whole.guided else "")
            verdict: Any = part
            whole.outcomes.append(Outcome(whole.tier, verdict, remarks=remarks, reply=reply))
            reply = None
    return whole


def follows(*parts: Verdict | Step | str, view: TierView = OBEYS, **tier: Any) -> Step:
    return next_step(story(*parts), settings(**tier), view, now=1.0)


SECOND = Retry(INVALID_REASON, 2, correct=True, guided=True)
FORMS: list[tuple[tuple[Verdict | Step | str, ...], TierView, Step]] = [
    # A tier that is known to obey gets no words at first; one that isn't gets both.
    ((INVALID,), OBEYS, GUIDED),
    ((INVALID,), TierView(), PROBE),
    ((INVALID,), REFUSES, CORRECTED),
    (("a", INVALID, GUIDED, "b", INVALID), OBEYS, SECOND),
    # The same again: without words, then warmer.
    (("a", INVALID, CORRECTED, "a", INVALID), REFUSES, Retry(INVALID_REASON, 2)),
    (
        ("a", INVALID, CORRECTED, "a", INVALID, Retry(INVALID_REASON, 2), "a", INVALID),
        REFUSES,
        Retry(INVALID_REASON, 3, last=True, warmer=True),
    ),
    (("a", INVALID, CORRECTED, "b", INVALID), REFUSES, Retry(INVALID_REASON, 2, correct=True)),
    # A doubt whether a text holds a call takes a schema, a doubt about a call words.
    ((UNREAD,), OBEYS, GUIDED),
    ((UNREAD,), REFUSES, CORRECTED),
    ((replace(INVALID, doubt=True, failures=(replace(INVALID.failures[0], position=0),)),), OBEYS,
     CORRECTED),
    # … also after another retry, where a schema was not tried yet.
    ((EMPTY, Retry("empty_response", 1, last=True), UNREAD), OBEYS, GUIDED),
    ((EMPTY, Retry("empty_response", 1, last=True), UNREAD), REFUSES, Deliver()),
    # A refusal costs no retry: the same one is made as without a schema.
    ((INVALID, PROBE, REFUSED), REFUSES, CORRECTED),
    ((UNREAD, GUIDED, Failure("server_error", "no", status=500)), REFUSES, CORRECTED),
]  # fmt: skip


@pytest.mark.parametrize(("parts", "view", "expected"), FORMS)
def test_the_form_of_a_retry(
    parts: tuple[Verdict | Step | str, ...], view: TierView, expected: Step
) -> None:
    assert follows(*parts, view=view) == expected


def test_a_call_that_a_doubted_text_became_goes_out_though_it_repeats() -> None:
    assert follows(UNREAD, GUIDED, DOUBTED_LOOP) == Deliver()
    assert follows(UNREAD, GUIDED, LOOP) == DeliverEarlier(0)
    about_call = replace(UNREAD, failures=(replace(UNREAD.failures[0], position=0),))
    assert follows(about_call, CORRECTED, DOUBTED_LOOP) == DeliverEarlier(0)


def test_a_text_that_may_be_a_call_is_put_to_the_next_tier_with_a_schema() -> None:
    whole = story(replace(UNREAD, ask_next=True), tiers=("fast", "standard"))
    found = next_step(whole, settings(), TierView(), now=1.0)
    assert found == Move("standard", INVALID_REASON, guided=True)


@pytest.mark.parametrize(
    ("tier", "view", "may"),
    [
        ({}, TierView(), True),
        ({"mode": "never"}, OBEYS, False),
        ({"reasoning": True}, OBEYS, False),
        ({"reasoning": True, "mode": "retry"}, TierView(), True),
        ({"mode": "always"}, REFUSES, False),
        ({"response_format": False}, OBEYS, False),
        ({"mode": "retry"}, TierView(lacks={"fast": frozenset({"response_format"})}), False),
    ],
)
def test_which_tiers_are_guided(tier: dict[str, Any], view: TierView, may: bool) -> None:
    assert may_guide(story(), settings(**tier), view, "fast") is may


def test_what_else_excludes_it() -> None:
    whole = story()
    bypassing = exchange(whole.request, controls=Controls(bypass=frozenset({"validation"})))
    assert not may_guide(bypassing, settings(), OBEYS, "fast")
    texts = from_mapping({"reliability": {"tool_validation": {"rescue_text_calls": False}}})
    assert not may_guide(whole, texts, OBEYS, "fast")
    assert not may_guide(exchange(), settings(), OBEYS, "fast"), "no tools"
    assert not may_guide(whole, settings(), OBEYS, "some model that passes through")


def test_always_is_from_the_first_request_on() -> None:
    assert always_guided(story(), settings("always"), TierView(), "fast")
    assert not always_guided(story(), settings("retry"), OBEYS, "fast")


def test_what_tiers_teach() -> None:
    learned = LearnedLimits()
    learned.take_guided("fast", "obeyed", 1_000.0)
    learned.take_guided("standard", "refused", 1_000.0)
    learned.take_guided("longctx", "asked", 1_000.0)
    assert learned.guided(1_001.0) == {"fast": True, "standard": False}
    later = 1_001.0 + FORGET_SECONDS
    assert learned.guided(later) == {"fast": True}
    learned.take_guided("fast", "disregarded", later)
    assert learned.guided(later + 1) == {"fast": False}
