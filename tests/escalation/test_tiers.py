"""Where an exchange starts, and where it may go from there."""

from __future__ import annotations

from typing import Any

import pytest

from mlx_stack_proxy.engine.request import Route
from mlx_stack_proxy.escalation.tiers import (
    NoSuchTier,
    is_listed,
    named_by_client,
    named_tier,
    route,
)
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping

LISTED = frozenset({"fast", "standard", "longctx", "premium", "other-model"})
LOCAL = ("fast", "standard", "longctx")
CONSENT = {"cloud_fallback": {"model": "cloud/model"}}


def settings(**escalation: Any) -> Settings:
    return from_mapping({"reliability": {"escalation": escalation}})


def routed(
    model: str = "",
    *,
    header: str | None = None,
    cloud: bool = True,
    listed: Any = LISTED,
    whole: Settings | None = None,
) -> Route:
    return route(model, header, cloud, listed, whole or settings())


def refused(*args: Any, **more: Any) -> NoSuchTier:
    with pytest.raises(NoSuchTier) as caught:
        routed(*args, **more)
    return caught.value


ALIASES = settings(aliases={"gpt-4o-mini": "standard"})


@pytest.mark.parametrize(
    ("model", "tiers"),
    [
        ("fast", LOCAL),
        ("standard", LOCAL[1:]),
        ("longctx", LOCAL[2:]),
        ("auto", LOCAL),
        ("", LOCAL),
        ("gpt-4o-mini", LOCAL[1:]),
        ("premium", ("premium",)),  # a client may always name it
    ],
)
def test_a_name_an_alias_and_auto(model: str, tiers: tuple[str, ...]) -> None:
    assert routed(model, whole=ALIASES) == Route(tiers)
    assert routed("other-model", header=model or "auto", whole=ALIASES) == Route(tiers)


@pytest.mark.parametrize("name", ["nope", "other-model", "Fast", "x" * 5000])
def test_an_unknown_tier_in_the_header(name: str) -> None:
    error = refused("fast", header=name)
    assert error.param == "X-MLX-Stack-Tier"
    assert str(error).endswith("known: auto, fast, standard, longctx, premium")
    assert len(str(error)) < 200


@pytest.mark.parametrize("listed", [LISTED, frozenset({"other-*"})])
def test_a_model_that_only_litellm_knows_passes_through(listed: frozenset[str]) -> None:
    assert routed("other-model", listed=listed) == Route((), "other-model")


@pytest.mark.parametrize("listed", [LISTED, None, frozenset[str]()])
def test_a_model_that_nobody_knows_gets_the_chain(listed: frozenset[str] | None) -> None:
    found = routed("gpt-9", listed=listed)
    assert found.unknown_model
    assert found.tiers[0] == "fast"
    assert found.model == ""


def chained(*chain: str, **escalation: Any) -> Settings:
    return settings(chain=list(chain), **escalation)


SHARED = from_mapping(
    {
        "tiers": {
            "odd": {"model": "qwen"},
            "fast": {"model": "qwen"},
            "standard": {"model": "llama"},
        },
        "reliability": {"escalation": {"chain": ["fast", "standard"]}},
    }
)
NAMES = frozenset({"qwen", "llama"})
PASSED = settings(unknown_models="passthrough")


@pytest.mark.parametrize(
    ("model", "asked", "expected"),
    [
        # The header is stronger than the model.
        ("fast", {"header": "longctx"}, Route(("longctx",))),
        ("other-model", {"header": "standard"}, Route(LOCAL[1:])),
        # Unknown models may pass through.
        ("gpt-9", {"whole": PASSED}, Route((), "gpt-9")),
        ("auto", {"whole": PASSED}, Route(LOCAL)),
        # The model behind a tier means that tier; of two with one model, the one in the chain.
        ("llama", {"listed": NAMES, "whole": SHARED}, Route(("standard",))),
        ("qwen", {"listed": NAMES, "whole": SHARED}, Route(("fast", "standard"))),
        # A tier outside the chain stands alone.
        ("longctx", {"whole": chained("fast", "standard")}, Route(("longctx",))),
        ("fast", {"whole": chained("fast", "standard")}, Route(("fast", "standard"))),
        # The order is the chain's, and goes forward only.
        ("auto", {"whole": chained(*LOCAL[1:], "fast")}, Route((*LOCAL[1:], "fast"))),
        ("longctx", {"whole": chained(*LOCAL[1:], "fast")}, Route(("longctx", "fast"))),
        # Tiers whose model LiteLLM doesn't list are dropped, but for one that gets its answer.
        ("auto", {"listed": LISTED - {"standard"}}, Route(("fast", "longctx"))),
        ("standard", {"listed": LISTED - {"standard"}}, Route(("longctx",))),
        ("auto", {"listed": None}, Route(LOCAL)),
        ("standard", {"listed": frozenset()}, Route(("standard",))),
        # The cloud is entered only with consent.
        ("auto", {"whole": settings(**CONSENT)}, Route((*LOCAL, "premium"))),
        (
            "auto",
            {"whole": settings(cloud_fallback={"model": "m", "enabled": False})},
            Route(LOCAL),
        ),
        # Without the cloud its tiers are passed over, to local ones behind them.
        ("auto", {"whole": chained("premium", "fast", **CONSENT)}, Route(("premium", "fast"))),
        (
            "auto",
            {"cloud": False, "whole": chained("premium", "fast", **CONSENT)},
            Route(("fast",)),
        ),
    ],
)
def test_routes(model: str, asked: dict[str, Any], expected: Route) -> None:
    assert routed(model, **asked) == expected


@pytest.mark.parametrize(
    ("model", "listed", "known"),
    [
        ("a", {"a"}, True),
        ("a", {"b"}, False),
        ("openai/gpt-4o", {"openai/*"}, True),
        ("mistral/m", {"openai/*"}, False),
        ("anything", {"*"}, True),
        ("a?", {"ab"}, False),
        ("A", {"a*"}, False),
    ],
)
def test_what_is_listed(model: str, listed: set[str], known: bool) -> None:
    assert is_listed(model, listed) is known


@pytest.mark.parametrize(
    ("cloud", "allowed"), [(False, True), (True, False), (False, False)], ids=str
)
def test_cloud_off(cloud: bool, allowed: bool) -> None:
    """By the client's header or the configuration; either is enough."""
    whole = settings(cloud=allowed, **CONSENT)
    assert routed("auto", cloud=cloud, whole=whole) == Route(LOCAL)
    assert refused("auto", header="premium", cloud=cloud, whole=whole).param == "X-MLX-Stack-Tier"
    assert refused("premium", cloud=cloud, whole=whole).param == "model"
    # A model that is no tier could be anywhere.
    assert refused("other-model", cloud=cloud, whole=whole).param == "model"


def cheaper(model: str, *, policy: str = "escalate", down: str = "fast", **more: Any) -> Any:
    budget = {"policy": policy, "downgrade_tier": down}
    whole = from_mapping({"reliability": {"token_budget": budget}})
    return routed(model, whole=whole, **more).cheaper


def test_where_a_session_without_budget_goes() -> None:
    assert cheaper("longctx") == ("fast", "standard")
    assert cheaper("standard") == ("fast",)
    assert cheaper("fast") == ("fast",)
    assert cheaper("fast", down="standard") == ("standard",)
    assert cheaper("longctx", policy="hard_stop") == ()
    assert cheaper("longctx", listed=LISTED - {"fast"}) == ("standard",)
    assert cheaper("longctx", listed=None) == ("fast", "standard")
    assert cheaper("standard", listed=LISTED - {"fast"}) == ()


def test_named_tier() -> None:
    whole = settings(aliases={"gpt": "longctx"})
    assert [named_tier(name, whole) for name in ("gpt", "auto", "", "fast", "x")] == [
        "longctx",
        "fast",
        "fast",
        "fast",
        None,
    ]


@pytest.mark.parametrize(
    ("model", "header", "named"),
    [
        ("premium", None, "premium"),
        ("gpt-4o-mini", None, "standard"),
        ("auto", None, None),
        ("", None, None),
        ("a-model-nobody-knows", None, None),
        ("fast", "premium", "premium"),
        ("premium", "auto", None),
    ],
)
def test_what_a_client_names_itself(model: str, header: str | None, named: str | None) -> None:
    assert named_by_client(model, header, ALIASES) == named


def test_a_tiers_model_is_a_name_of_it() -> None:
    whole = from_mapping({"tiers": {"fast": {"model": "qwen"}}})
    assert named_by_client("qwen", None, whole) == "fast"
