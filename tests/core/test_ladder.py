"""Which tier a request starts on, and which could take it after."""

from __future__ import annotations

from typing import Any

import pytest

from app.core import ladder
from app.core.exchange import Controls, Exchange
from app.core.ladder import Start, TierView
from app.settings import Settings
from app.settings_source import from_mapping
from tests.core.exchanges import client_request, exchange

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
    whole.tier = "longctx"
    assert ladder.following(whole, given, TierView()) == []
    whole.tier = "elsewhere"
    assert ladder.following(whole, given, TierView()) == []


def test_what_a_request_needs() -> None:
    assert ladder.needs(client_request()) == frozenset()
    assert ladder.needs(client_request(tools=TOOLS)) == {"tools"}
    assert ladder.needs(client_request(tools=TOOLS, tool_choice="none")) == frozenset()
    assert ladder.needs(client_request(messages=[IMAGE])) == {"images"}


def test_a_sticky_tier_that_is_down_is_no_trap() -> None:
    """The session's own tier is up: back to that rather than to where nothing answers."""
    view = TierView({"standard": 9.0, "longctx": 9.0})
    assert start(asking(), view, sticky="standard") == Start("fast")


def test_a_downgrade_stays_on_this_machine() -> None:
    whole = from_mapping(
        {
            "tiers": {"fast": {}, "premium": {"local": False}},
            "reliability": {"token_budget": {"policy": "escalate", "downgrade_tier": "premium"}},
        }
    )
    assert ladder.downgraded(exchange(tiers=("fast",)), whole, TierView()) is None
    allowed = exchange(tiers=("fast", "premium"))
    assert ladder.downgraded(allowed, whole, TierView()) == Start("premium", "budget_exceeded")
