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


def test_the_header_is_stronger_than_the_model() -> None:
    assert routed("fast", header="longctx") == Route(("longctx",))
    assert routed("other-model", header="standard") == Route(LOCAL[1:])


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


def test_unknown_models_may_pass_through() -> None:
    whole = settings(unknown_models="passthrough")
    assert routed("gpt-9", whole=whole) == Route((), "gpt-9")
    assert routed("auto", whole=whole) == Route(LOCAL)


def test_the_model_behind_a_tier_means_that_tier() -> None:
    whole = from_mapping(
        {
            "tiers": {
                "odd": {"model": "qwen"},
                "fast": {"model": "qwen"},
                "standard": {"model": "llama"},
            },
            "reliability": {"escalation": {"chain": ["fast", "standard"]}},
        }
    )
    listed = frozenset({"qwen", "llama"})
    assert routed("llama", listed=listed, whole=whole) == Route(("standard",))
    # Of two with one model, the one in the chain.
    assert routed("qwen", listed=listed, whole=whole) == Route(("fast", "standard"))


def test_a_tier_outside_the_chain_stands_alone() -> None:
    whole = settings(chain=["fast", "standard"])
    assert routed("longctx", whole=whole) == Route(("longctx",))
    assert routed("fast", whole=whole) == Route(("fast", "standard"))


def test_the_order_is_the_chains_and_goes_forward_only() -> None:
    whole = settings(chain=["standard", "longctx", "fast"])
    assert routed("auto", whole=whole) == Route(("standard", "longctx", "fast"))
    assert routed("longctx", whole=whole) == Route(("longctx", "fast"))


# What LiteLLM doesn't have


def test_tiers_whose_model_is_not_listed_are_dropped() -> None:
    listed = LISTED - {"standard"}
    assert routed("auto", listed=listed) == Route(("fast", "longctx"))
    assert routed("standard", listed=listed) == Route(("longctx",))
    assert routed("auto", listed=None) == Route(LOCAL)


def test_where_none_is_listed_the_first_stays_for_litellms_own_answer() -> None:
    assert routed("standard", listed=frozenset()) == Route(("standard",))


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


# The cloud


def test_the_cloud_is_entered_only_with_consent() -> None:
    assert routed("auto", whole=settings(**CONSENT)) == Route((*LOCAL, "premium"))
    taken_back = settings(cloud_fallback={"model": "m", "enabled": False})
    assert routed("auto", whole=taken_back) == Route(LOCAL)


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


def test_cloud_off_passes_over_a_cloud_model_to_local_tiers_behind_it() -> None:
    whole = settings(chain=["premium", "fast"], **CONSENT)
    assert routed("auto", whole=whole) == Route(("premium", "fast"))
    assert routed("auto", cloud=False, whole=whole) == Route(("fast",))


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
