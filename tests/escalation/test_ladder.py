"""Which tier a request starts on, and which could take it after."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mlx_stack_proxy.engine import tier_view
from mlx_stack_proxy.engine.exchange import Exchange
from mlx_stack_proxy.engine.request import Controls, Route
from mlx_stack_proxy.engine.steps import Start
from mlx_stack_proxy.engine.tier_view import TierView
from mlx_stack_proxy.escalation import ladder
from mlx_stack_proxy.memory_pressure.pressure import NO_PRESSURE, Level, Pressure
from mlx_stack_proxy.memory_pressure.stage import MemoryPressure
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping
from mlx_stack_proxy.token_budget.stage import downgraded
from tests.engine.exchanges import client_request, exchange

Json = dict[str, Any]
CHAIN = ("fast", "standard", "longctx")
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def settings(escalation: Json | None = None, **tiers: Json) -> Settings:
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


def test_a_model_that_passes_through_is_its_own_tier() -> None:
    whole = exchange(tiers=())
    assert start(whole).tier == whole.request.route.model


def without(*names: str) -> TierView:
    return TierView().without(names)


CLOUD = {"standard": {"local": False}}
NOBODY = {tier: {"tools": False} for tier in CHAIN}
ONLY_STANDARD = {"fast": {"tools": False}, "longctx": {"tools": False}}
DEGRADED = TierView({"fast": 9.0, "standard": 5.0, "longctx": 7.0})
WINDOW, DOWN, SPENT = "context_overflow", "tier_degraded", "budget_exceeded"
# What is asked, what is known of the tiers, how they are set; the tier it starts on, and why there.
STARTS: list[tuple[Exchange, Json, Json, str, str]] = [
    (asking(), {}, {}, "fast", ""),
    (asking(), {"sticky": "standard"}, {}, "standard", ""),
    (asking(), {"sticky": "gone"}, {}, "fast", ""),
    (asking(tier="fast"), {"sticky": "standard"}, {}, "fast", ""),  # a header names one
    # A window that is too small is gone past; where none is large enough the largest is tried.
    (asking(200_000), {}, {}, "longctx", WINDOW),
    (asking(200_000), {"sticky": "longctx"}, {}, "longctx", ""),
    (asking(20_000), {"view": TierView(windows={"fast": 4096})}, {}, "standard", WINDOW),
    (asking(2_000_000), {}, {}, "longctx", WINDOW),
    # So is a tier that is degraded, but never all: then the one that has cooled longest.
    (asking(), {"view": TierView({"fast": 9.0})}, {}, "standard", DOWN),
    (asking(), {"view": DEGRADED}, {}, "standard", ""),
    # A session's own tier is up: back to that rather than to where nothing answers.
    (
        asking(),
        {"view": TierView({"standard": 9.0, "longctx": 9.0}), "sticky": "standard"},
        {},
        "fast",
        "",
    ),
    # And one whose budget is used up, but not for the cloud.
    (asking(), {"view": without("fast")}, {}, "standard", SPENT),
    (asking(tier="fast"), {"view": without("fast")}, {}, "standard", SPENT),
    (asking(), {"view": without("fast", "standard")}, {}, "longctx", SPENT),
    (asking(), {"view": without("standard")}, {}, "fast", ""),
    (asking(), {"view": without("standard"), "sticky": "standard"}, {}, "longctx", SPENT),
    (asking(), {"view": without("fast")}, CLOUD, "longctx", SPENT),
    (asking(), {"view": without("fast", "longctx")}, CLOUD, "fast", ""),
    (asking(), {"view": without(*CHAIN)}, {}, "fast", ""),
    (asking(), {"view": TierView({"standard": 9.0}).without(["fast"])}, {}, "longctx", DOWN),
    (asking(), {"view": DEGRADED.without(["standard"])}, {}, "longctx", ""),
    # Where no tier has the abilities, it is no question of windows.
    (asking(tools=TOOLS), {}, NOBODY, "fast", ""),
    # Too long for the one that has them: that one's error says it best.
    (asking(200_000, tools=TOOLS), {}, ONLY_STANDARD, "standard", WINDOW),
]


@pytest.mark.parametrize(("whole", "known", "tiers", "tier", "reason"), STARTS)
def test_where_it_starts(whole: Exchange, known: Json, tiers: Json, tier: str, reason: str) -> None:
    assert start(whole, **known, **tiers) == Start(tier, reason)


@pytest.mark.parametrize(
    ("ability", "body"),
    [
        ("tools", {"tools": TOOLS}),
        ("images", {"messages": [IMAGE]}),
        ("response_format", {"response_format": {"type": "json_object"}}),
    ],
)
def test_a_tier_that_cannot_is_gone_past(ability: str, body: Json) -> None:
    learnt = TierView(lacks={"fast": frozenset({ability})})
    assert start(asking(**body), fast={ability: False}) == Start("standard")
    assert start(asking(**body), learnt) == Start("standard")
    assert start(asking(**body), learnt, fast={ability: True}) == Start("fast")
    assert start(asking(), learnt, fast={ability: False}) == Start("fast")


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
    assert tier_view.needs(client_request(tools=TOOLS, tool_choice="none")) == frozenset()


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
    names: Json = {name: {} for name in CHAIN}
    given = from_mapping({"tiers": {**names, "premium": {"local": False}}})
    return downgraded(whole, given, view or TierView())


def test_a_downgrade_takes_the_next_cheapest_where_the_first_cannot() -> None:
    fast, standard = (Start(tier, "budget_exceeded", stays=True) for tier in ("fast", "standard"))
    assert down("fast", "standard") == fast
    assert down("fast", "standard", view=TierView({"fast": 9.0})) == standard
    assert down("fast", "standard", view=without("fast")) == standard
    learnt = TierView(lacks={"fast": frozenset({"tools"})})
    assert down("fast", "standard", view=learnt, tools=TOOLS) == standard
    assert down("fast", view=TierView({"fast": 9.0})) is None
    assert down("longctx") == Start("longctx", stays=True)
    assert down() is None


def test_a_downgrade_stays_on_this_machine() -> None:
    assert down("premium") is None
    assert down("premium", premium_may=True) == Start("premium", "budget_exceeded", stays=True)


def test_a_downgrade_is_no_escalation_and_is_not_turned_off_with_it() -> None:
    route = Route(("standard",), cheaper=("fast",))
    whole = exchange(controls=Controls(escalation=False), route=route)
    assert downgraded(whole, settings(), TierView()) == Start("fast", "budget_exceeded", stays=True)
    named = exchange(controls=Controls(tier="standard"), route=route)
    assert downgraded(named, settings(), TierView()) is None


# Under memory pressure

LASTING = Pressure(Level.WARNING, "system", since=0.0, sustained=True)
BEGINNING = Pressure(Level.CRITICAL, "system", since=0.0)
CLOUD_CHAIN = ("fast", "premium", "longctx", "second_cloud")
LONG = 20_000  # bytes, some 5,700 tokens


def relieved(
    whole: Exchange,
    view: TierView | None = None,
    *,
    begin: str = "fast",
    pressure: Pressure = LASTING,
    escalation: Json | None = None,
    memory: Json | None = None,
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
    known = replace(view or TierView(), memory_is_short=pressure.sustained)
    start = MemoryPressure(found).admit(whole, Start(begin), known)
    return start if start != Start(begin) else None


def complex_request(
    size: int = LONG,
    *,
    controls: Controls | None = None,
    route: Route | None = None,
    **body: Any,
) -> Exchange:
    messages = [{"role": "user", "content": "a " * (size // 2)}]
    request = client_request(size=size, **{"messages": messages, "tools": TOOLS, **body})
    return exchange(request, tiers=CLOUD_CHAIN, controls=controls, route=route)


AWAY = Start("premium", "memory_pressure")


SECOND = Start("second_cloud", "memory_pressure")
AT_1000 = {"complex": {"min_prompt_tokens": 1000}}


@pytest.mark.parametrize(
    ("asked", "how", "expected"),
    [
        ({}, {}, AWAY),
        # Only when the pressure lasts.
        ({}, {"pressure": NO_PRESSURE}, None),
        ({}, {"pressure": BEGINNING}, None),
        # What is complex: it has tools, and is long by its tokens.
        ({"tools": []}, {}, None),
        ({"size": 5000}, {}, None),  # 1,400 tokens
        ({"size": 5000}, {"memory": AT_1000}, AWAY),
        ({"tools": []}, {"memory": {"complex": {"tools": False}}}, AWAY),
        ({}, {"memory": {"escalate_complex": False}}, None),
        ({"messages": [IMAGE]}, {}, None),  # a picture counts as one, not by its URL
        # Forward only, to the first that can.
        ({}, {"begin": "longctx"}, SECOND),
        ({}, {"premium": {"tools": False}}, SECOND),
        ({}, {"premium": {"context_window": 4096}}, SECOND),
        ({}, {"view": TierView({"premium": 9.0})}, SECOND),
        ({}, {"view": TierView(closed=frozenset({"premium"}))}, SECOND),
        ({}, {"view": TierView({"premium": 9.0, "second_cloud": 9.0})}, None),
        ({}, {"begin": "premium"}, None),  # it is not here
        # What the client and the settings say is stronger.
        ({"controls": Controls(tier="fast")}, {}, None),
        ({"controls": Controls(escalation=False)}, {}, None),
        ({}, {"escalation": {"enabled": False}}, None),
        ({"route": Route(("fast", "longctx"))}, {}, None),  # no consent to the cloud
        ({"route": Route((), "embedder")}, {"begin": "embedder"}, None),
    ],
)
def test_a_complex_request_starts_off_this_machine(
    asked: Json, how: Json, expected: Start | None
) -> None:
    assert relieved(complex_request(**asked), **how) == expected


NEEDS: dict[str, Json] = {
    "tools": {"tools": TOOLS},
    "images": {"messages": [IMAGE]},
    "response_format": {"response_format": {"type": "json_object"}},
}


@pytest.mark.parametrize("given", [*itertools.product([True, False, "auto"], repeat=3)])
def test_what_a_tier_is_able_to(given: tuple[Any, ...]) -> None:
    """What is set counts; what its errors said only where that is left open."""
    known = dict(zip(tier_view.ABILITIES, given, strict=True))
    rules = settings(fast=known)
    for learnt in powerset(tier_view.ABILITIES):
        view = TierView(lacks={"fast": frozenset(learnt)} if learnt else {})
        for needed in powerset(tier_view.ABILITIES):
            asked = client_request(**{k: v for n in needed for k, v in NEEDS[n].items()})
            assert tier_view.needs(asked) == set(needed)
            able = all(known[n] is True or (known[n] and n not in learnt) for n in needed)
            assert tier_view.able("fast", asked, rules, view) is able


def powerset(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for size in range(len(names) + 1):
        yield from itertools.combinations(names, size)
