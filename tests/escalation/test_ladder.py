"""Which tier a request starts on, and which could take it after."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.request import Controls, Route
from mlx_stack_proxy.engine.steps import Start
from mlx_stack_proxy.escalation import ladder
from mlx_stack_proxy.escalation.ladder import TierView
from mlx_stack_proxy.memory_pressure.pressure import NO_PRESSURE, Level, Pressure
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping
from tests.engine.exchanges import client_request, exchange

CHAIN = ("fast", "standard", "longctx")
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def settings(escalation: dict[str, Any] | None = None, **tiers: dict[str, Any]) -> Settings:
    given = {name: tiers.get(name, {}) for name in CHAIN}
    return from_mapping({"tiers": given, "reliability": {"escalation": escalation or {}}})


def asking(size: int = 100, tier: str | None = None, **body: Any) -> Exchange:
    if size > 100:  # a text of that many bytes
        body["messages"] = [{"role": "user", "content": "a " * (size // 2)}]
    request = client_request(size=size, **body)
    return exchange(request, tiers=CHAIN, controls=Controls(tier=tier))


def start(
    whole: Exchange, view: TierView | None = None, sticky: str | None = None, **tiers: Any
) -> Start:
    return ladder.start(whole, settings(**tiers), view or TierView(), sticky)


def test_the_first_of_the_route() -> None:
    assert start(asking()) == Start("fast")


def test_a_model_that_passes_through_is_its_own_tier() -> None:
    whole = exchange(tiers=())
    assert start(whole).tier == whole.route.model


def test_a_sticky_tier_comes_first_unless_a_header_names_one() -> None:
    assert start(asking(), sticky="standard") == Start("standard")
    assert start(asking(), sticky="gone") == Start("fast")
    assert start(asking(tier="fast"), sticky="standard") == Start("fast")


def test_a_window_that_is_too_small_is_gone_past() -> None:
    assert start(asking(200_000)) == Start("longctx", "context_overflow")
    assert start(asking(200_000), sticky="longctx") == Start("longctx")
    assert start(asking(20_000), TierView(windows={"fast": 4096})) == Start(
        "standard", "context_overflow"
    )


def test_where_nothing_fits_the_largest_is_tried() -> None:
    assert start(asking(2_000_000)) == Start("longctx", "context_overflow")


@pytest.mark.parametrize(
    ("ability", "body"),
    [
        ("tools", {"tools": TOOLS}),
        ("images", {"messages": [IMAGE]}),
        ("response_format", {"response_format": {"type": "json_object"}}),
    ],
)
def test_a_tier_that_cannot_is_gone_past(ability: str, body: dict[str, Any]) -> None:
    learnt = TierView(lacks={"fast": frozenset({ability})})
    assert start(asking(**body), fast={ability: False}) == Start("standard")
    assert start(asking(**body), learnt) == Start("standard")
    assert start(asking(**body), learnt, fast={ability: True}) == Start("fast")
    assert start(asking(), learnt, fast={ability: False}) == Start("fast")


def test_a_degraded_tier_is_gone_past_but_never_all() -> None:
    assert start(asking(), TierView({"fast": 9.0})) == Start("standard", "tier_degraded")
    everything = TierView({"fast": 9.0, "standard": 5.0, "longctx": 7.0})
    assert start(asking(), everything).tier == "standard"  # it has cooled longest


def test_without_escalation_what_was_asked_for_is_tried() -> None:
    view = TierView({"fast": 9.0})
    off = exchange(tiers=CHAIN, controls=Controls(escalation=False))
    assert start(off, view, "standard") == Start("fast")
    disabled = ladder.start(asking(), settings({"enabled": False}), view, "standard")
    assert disabled == Start("fast")


def test_what_follows_is_forward_only_and_could_take_it() -> None:
    whole = asking(tools=TOOLS)
    given = settings(standard={"tools": False})
    assert ladder.following(whole, given, TierView()) == ["longctx"]
    whole.start = Start("longctx")
    assert ladder.following(whole, given, TierView()) == []
    whole.start = Start("elsewhere")
    assert ladder.following(whole, given, TierView()) == []
    whole.start = Start("fast", "budget_exceeded", stays=True)  # its session's budget is used up
    assert ladder.following(whole, given, TierView()) == []


def test_tools_that_may_not_be_called_are_no_need() -> None:
    assert ladder.needs(client_request(tools=TOOLS, tool_choice="none")) == frozenset()


def test_a_sticky_tier_that_is_down_is_no_trap() -> None:
    """The session's own tier is up: back to that rather than to where nothing answers."""
    view = TierView({"standard": 9.0, "longctx": 9.0})
    assert start(asking(), view, sticky="standard") == Start("fast")


# Budgets


def without(*names: str) -> TierView:
    return TierView().without(names)


def test_a_tier_whose_budget_is_used_up_is_gone_past() -> None:
    assert start(asking(), without("fast")) == Start("standard", "budget_exceeded")
    assert start(asking(tier="fast"), without("fast")) == Start("standard", "budget_exceeded")
    assert start(asking(), without("fast", "standard")) == Start("longctx", "budget_exceeded")
    assert start(asking(), without("standard")) == Start("fast")
    stuck = start(asking(), without("standard"), sticky="standard")
    assert stuck == Start("longctx", "budget_exceeded")


def test_but_not_into_the_cloud_and_not_all_of_them() -> None:
    cloud = {"standard": {"local": False}}
    assert start(asking(), without("fast"), **cloud) == Start("longctx", "budget_exceeded")
    assert start(asking(), without("fast", "longctx"), **cloud) == Start("fast")
    assert start(asking(), without(*CHAIN)) == Start("fast")


def test_a_tier_without_budget_comes_before_one_that_is_degraded() -> None:
    view = TierView({"standard": 9.0}).without(["fast"])
    assert start(asking(), view) == Start("longctx", "tier_degraded")
    everything = TierView({"fast": 9.0, "standard": 5.0, "longctx": 7.0})
    assert start(asking(), everything.without(["standard"])).tier == "longctx"


def test_nothing_follows_that_has_no_budget() -> None:
    assert ladder.following(asking(), settings(), without("standard")) == ["longctx"]
    assert ladder.following(asking(), settings(), without("standard", "longctx")) == []


def down(
    *cheaper: str,
    view: TierView | None = None,
    premium_may: bool = False,
    **more: Any,
) -> Start | None:
    tiers = ("longctx", "premium") if premium_may else ("longctx",)
    whole = exchange(client_request(**more), route=Route(tiers, cheaper=cheaper))
    names: dict[str, Any] = {name: {} for name in CHAIN}
    given = from_mapping({"tiers": {**names, "premium": {"local": False}}})
    return ladder.downgraded(whole, given, view or TierView())


def test_a_downgrade_takes_the_next_cheapest_where_the_first_cannot() -> None:
    fast, standard = (Start(tier, "budget_exceeded") for tier in ("fast", "standard"))
    assert down("fast", "standard") == fast
    assert down("fast", "standard", view=TierView({"fast": 9.0})) == standard
    assert down("fast", "standard", view=without("fast")) == standard
    learnt = TierView(lacks={"fast": frozenset({"tools"})})
    assert down("fast", "standard", view=learnt, tools=TOOLS) == standard
    assert down("fast", view=TierView({"fast": 9.0})) is None
    assert down("longctx") == Start("longctx")
    assert down() is None


def test_a_downgrade_stays_on_this_machine() -> None:
    assert down("premium") is None
    assert down("premium", premium_may=True) == Start("premium", "budget_exceeded")


def test_a_downgrade_is_no_escalation_and_is_not_turned_off_with_it() -> None:
    route = Route(("standard",), cheaper=("fast",))
    whole = exchange(controls=Controls(escalation=False), route=route)
    assert ladder.downgraded(whole, settings(), TierView()) == Start("fast", "budget_exceeded")
    named = exchange(controls=Controls(tier="standard"), route=route)
    assert ladder.downgraded(named, settings(), TierView()) is None


def test_where_no_tier_has_the_abilities_it_is_no_question_of_windows() -> None:
    nobody = {tier: {"tools": False} for tier in CHAIN}
    assert start(asking(tools=TOOLS), **nobody) == Start("fast")
    # Too long for the one that has them: that one's error says it best.
    only = {"fast": {"tools": False}, "longctx": {"tools": False}}
    assert start(asking(200_000, tools=TOOLS), **only) == Start("standard", "context_overflow")


# Under memory pressure

LASTING = Pressure(Level.WARNING, "system", since=0.0, sustained=True)
BEGINNING = Pressure(Level.CRITICAL, "system", since=0.0)
CLOUD_CHAIN = ("fast", "premium", "longctx", "second_cloud")
LONG = 20_000  # bytes, some 5,700 tokens


def relieved(
    whole: Exchange | None = None,
    view: TierView | None = None,
    *,
    begin: str = "fast",
    pressure: Pressure = LASTING,
    escalation: dict[str, Any] | None = None,
    memory: dict[str, Any] | None = None,
    **tiers: Any,
) -> Start | None:
    given = {name: tiers.get(name, {}) for name in CLOUD_CHAIN}
    for name in ("premium", "second_cloud"):
        given[name] = {"local": False, **given[name]}
    found = from_mapping(
        {
            "tiers": given,
            "reliability": {
                "escalation": {"chain": list(CLOUD_CHAIN), **(escalation or {})},
                "memory_pressure": memory or {},
            },
        }
    )
    whole = whole or complex_request()
    return ladder.relieved(
        whole, found, view or TierView(), Start(begin), sustained=pressure.sustained
    )


def complex_request(
    size: int = LONG,
    *,
    controls: Controls | None = None,
    route: Route | None = None,
    **body: Any,
) -> Exchange:
    messages = [{"role": "user", "content": "a " * (size // 2)}]
    request = client_request(size=size, messages=messages, **{"tools": TOOLS, **body})
    return exchange(request, tiers=CLOUD_CHAIN, controls=controls, route=route)


AWAY = Start("premium", "memory_pressure")


def test_a_complex_request_starts_off_this_machine() -> None:
    assert relieved() == AWAY


@pytest.mark.parametrize("pressure", [NO_PRESSURE, BEGINNING])
def test_only_when_the_pressure_lasts(pressure: Pressure) -> None:
    assert relieved(pressure=pressure) is None


def test_what_is_complex() -> None:
    assert relieved(complex_request(tools=[])) is None, "no tools"
    assert relieved(complex_request(5000)) is None, "1,400 tokens"
    small = {"complex": {"min_prompt_tokens": 1000}}
    assert relieved(complex_request(5000), memory=small) == AWAY
    assert relieved(complex_request(tools=[]), memory={"complex": {"tools": False}}) == AWAY
    assert relieved(memory={"escalate_complex": False}) is None


def test_long_by_its_bytes_but_not_by_its_tokens() -> None:
    """A picture counts by the picture, not by the length of its URL."""
    whole = exchange(client_request(size=LONG, messages=[IMAGE], tools=TOOLS), tiers=CLOUD_CHAIN)
    assert relieved(whole) is None


def test_forward_only_to_the_first_that_can() -> None:
    second = Start("second_cloud", "memory_pressure")
    assert relieved(begin="longctx") == second
    assert relieved(premium={"tools": False}) == second
    assert relieved(premium={"context_window": 4096}) == second
    assert relieved(view=TierView({"premium": 9.0})) == second
    assert relieved(view=TierView(closed=frozenset({"premium"}))) == second
    assert relieved(view=TierView({"premium": 9.0, "second_cloud": 9.0})) is None


def test_a_start_that_is_not_here_needs_no_relief() -> None:
    assert relieved(begin="premium") is None


def test_what_the_client_says_is_stronger() -> None:
    assert relieved(complex_request(controls=Controls(tier="fast"))) is None
    assert relieved(complex_request(controls=Controls(escalation=False))) is None
    assert relieved(escalation={"enabled": False}) is None


def test_without_consent_there_is_no_such_tier() -> None:
    whole = complex_request(route=Route(("fast", "longctx")))
    assert relieved(whole) is None


def test_a_model_that_passes_through_stays_its_own() -> None:
    whole = complex_request(route=Route((), "embedder"))
    assert relieved(whole, begin="embedder") is None


NEEDS: dict[str, dict[str, Any]] = {
    "tools": {"tools": TOOLS},
    "images": {"messages": [IMAGE]},
    "response_format": {"response_format": {"type": "json_object"}},
}


@pytest.mark.parametrize("given", [*itertools.product([True, False, "auto"], repeat=3)])
def test_what_a_tier_is_able_to(given: tuple[Any, ...]) -> None:
    """What is set counts; what its errors said only where that is left open."""
    known = dict(zip(ladder.ABILITIES, given, strict=True))
    rules = settings(fast=known)
    for learnt in powerset(ladder.ABILITIES):
        view = TierView(lacks={"fast": frozenset(learnt)} if learnt else {})
        for needed in powerset(ladder.ABILITIES):
            asked = client_request(**{k: v for n in needed for k, v in NEEDS[n].items()})
            assert ladder.needs(asked) == set(needed)
            able = all(known[n] is True or (known[n] and n not in learnt) for n in needed)
            assert ladder.able("fast", asked, rules, view) is able


def powerset(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in range(len(names) + 1):
        yield from itertools.combinations(names, size)
