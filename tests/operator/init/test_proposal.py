"""Which tiers are proposed for which models, and that what is written loads as meant."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.operator.init.model_groups import Deployment, Groups, ModelGroup
from mlx_stack_proxy.operator.init.proposal import Proposal, health_url, propose, text_of
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import from_mapping

LITELLM = "http://127.0.0.1:4000"


def here(name: str, model: str = "openai/m", port: int = 8000, **more: Any) -> ModelGroup:
    return ModelGroup(name, (Deployment(model, f"http://localhost:{port}/v1"),), **more)


def cloud(name: str, model: str = "openrouter/a/claude", **more: Any) -> ModelGroup:
    return ModelGroup(name, (Deployment(model),), **more)


def groups(*found: ModelGroup) -> Groups:
    return {group.name: group for group in found}


def proposed(*found: ModelGroup) -> Proposal:
    return propose(groups(*found))


def names(proposal: Proposal) -> dict[str, str]:
    return {tier.name: tier.group.name for tier in proposal.tiers}


def loaded(proposal: Proposal, text: str = "") -> Settings:
    return from_mapping(yaml.safe_load(text or text_of(proposal, {}, ["here"])))


def test_groups_of_our_names_are_our_tiers_in_our_order() -> None:
    found = proposed(
        cloud("premium"), here("standard", port=1), here("longctx", port=2), here("fast", port=3)
    )
    assert list(names(found)) == ["fast", "standard", "longctx", "premium"]
    settings = loaded(found)
    assert settings.reliability.escalation.chain == ("fast", "standard", "longctx", "premium")
    aliases = {"claude-opus-*": "standard", "claude-sonnet-*": "standard", "claude-haiku-*": "fast"}
    assert settings == from_mapping({"reliability": {"escalation": {"aliases": aliases}}})
    assert [tier.keys for tier in found.tiers] == [{}, {}, {}, {}]


WIDE = here("wide", "openai/w-4b", 1, window=131_072)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (  # by their size
            [
                here("big", "openai/Qwen3-30B-A3B", 1),
                here("tiny", "openai/qwen3-0.6b", 2),
                here("mid", "openai/qwen3-8b", 3),
                cloud("claude"),
            ],
            {"fast": "tiny", "standard": "mid", "big": "big", "premium": "claude"},
        ),
        (  # what has no size is the largest and keeps its place
            [here("x", port=1), here("y", port=2), here("small", "openai/a-3b", 3)],
            {"fast": "small", "standard": "x", "y": "y"},
        ),
        (  # the free names are given to the rest
            [here("fast", port=1), here("qwen-30b", port=2), here("qwen-70b", port=3)],
            {"fast": "fast", "standard": "qwen-30b", "qwen-70b": "qwen-70b"},
        ),
        (  # the largest window is for long prompts
            [WIDE, here("b", "openai/b-8b", 2), here("c", "openai/c-14b", 3)],
            {"fast": "b", "standard": "c", "longctx": "wide"},
        ),
        ([WIDE], {"fast": "wide"}),  # a chain begins with something
        (
            [WIDE, here("same", "openai/s-8b", 2, window=131_072)],
            {"fast": "wide", "standard": "same"},
        ),
        (  # names that become the same stay apart
            [*(here(n, f"openai/{n}", port) for port, n in enumerate("ab:;", 1)), here("auto")],
            {"fast": "a", "standard": "b", "tier": ":", "tier-2": ";", "auto-2": "auto"},
        ),
    ],
)
def test_which_tier_each_becomes(found: list[ModelGroup], expected: dict[str, str]) -> None:
    proposal = proposed(*found)
    assert names(proposal) == expected
    tiers = loaded(proposal).tiers
    assert {name: tier.model for name, tier in tiers.items()} == expected
    clouds = {name for name, tier in tiers.items() if not tier.local}
    assert clouds == {"premium"} & expected.keys()


def test_a_window_is_written_where_it_is_not_the_tiers_default() -> None:
    found = proposed(
        here("fast", port=1, window=32_768),
        here("standard", port=2, window=65_536),
        here("longctx", port=3, window=131_072),
        cloud("premium", window=200_000),
    )
    assert [tier.keys.get("context_window") for tier in found.tiers] == [
        None,
        65_536,
        None,
        200_000,
    ]
    assert loaded(found).tiers["premium"].context_window == 200_000


def test_one_of_the_cloud_is_a_tier_the_others_are_said() -> None:
    found = proposed(
        here("fast"), cloud("gpt", "openai/gpt-4o"), cloud("claude"), cloud("o3", "x/y")
    )
    assert names(found) == {"fast": "fast", "premium": "gpt"}
    assert "Also in the cloud, not tiers: claude, o3. Clients can name them." in found.remarks


def test_what_is_no_tier_is_said() -> None:
    found = proposed(
        here("fast"),
        here("again"),
        ModelGroup("emb", mode="embedding"),
        ModelGroup("openai/*", (Deployment("openai/*"),)),
    )
    assert names(found) == {"fast": "fast"}
    assert [remark.partition(" ")[0] for remark in found.remarks] == ["again", "emb", "openai/*"]


BOTH_SIDES = ModelGroup("standard", (*here("x").deployments, *cloud("y").deployments))
NEAR = ModelGroup("fast", (Deployment("openai/x", "http://192.168.1.7:8000/v1"),))
NOWHERE = [ModelGroup("fast"), ModelGroup("qwen-8b"), ModelGroup("premium")]


@pytest.mark.parametrize(
    ("found", "local", "said"),
    [
        # Where nothing tells a place, other names than ours are not local.
        (
            NOWHERE,
            {"fast": True, "standard": False, "premium": False},
            "Tiers fast, standard, premium: its location is unknown.",
        ),
        ([here("fast", port=1), here("premium", port=2)], {"fast": True, "premium": True}, ""),
        ([BOTH_SIDES], {"standard": False}, "No model on this machine was found"),
        ([NEAR], {"fast": True}, "Tier fast: on another machine of your network"),
        ([cloud("gpt")], {"premium": False}, "No model on this machine was found"),
    ],
)
def test_which_tiers_are_local_and_what_is_said(
    found: list[ModelGroup], local: dict[str, bool], said: str
) -> None:
    proposal = proposed(*found)
    settings = loaded(proposal)
    assert {name: tier.local for name, tier in settings.tiers.items()} == local
    assert settings.reliability.escalation.chain == tuple(local)
    assert " ".join(proposal.remarks).startswith(said)


@pytest.mark.parametrize(
    ("group", "url", "with_litellm_elsewhere"),
    [
        (here("fast", port=8001), "http://localhost:8001/health", ""),
        (
            ModelGroup("net", (Deployment("openai/x", "https://u:p@box.local:8000/v1/"),)),
            "https://box.local:8000/health",
            "https://box.local:8000/health",
        ),
        (ModelGroup("two", (*here("x").deployments, *here("x", port=2).deployments)), "", ""),
        (ModelGroup("d", (Deployment("openai/x", "http://host.docker.internal:8/v1"),)), "", ""),
        (ModelGroup("ollama", (Deployment("ollama_chat/x"),)), "", ""),
        (cloud("premium"), "", ""),
    ],
)
def test_health_urls_are_of_single_servers_that_can_be_reached(
    group: ModelGroup, url: str, with_litellm_elsewhere: str
) -> None:
    assert health_url(group, LITELLM) == url
    assert health_url(group, "http://192.168.1.5:4000") == with_litellm_elsewhere


def test_a_health_url_that_answers_is_written() -> None:
    answering = here("fast", port=8001, health_url="http://localhost:8001/health")
    tiers = loaded(proposed(answering, here("standard", port=8002))).tiers
    assert tiers["fast"].health_url == "http://localhost:8001/health"
    assert tiers["standard"].health_url is None


def test_what_is_behind_a_comment_is_valid_once_it_is_none() -> None:
    proposal = proposed(here("fast"), cloud("premium", "openrouter/anthropic/claude-x"))
    text = text_of(proposal, {"base_url": "http://h:4000"}, ["LiteLLM", "a file"])
    assert loaded(proposal, text).reliability.escalation.cloud_fallback is None
    whole = loaded(proposal, uncommented(text))
    fallback = whole.reliability.escalation.cloud_fallback
    assert fallback is not None and fallback.model == "anthropic/claude-x"
    assert whole.server.api_keys == ("*",)
    assert whole.upstream.base_url == "http://h:4000"


def uncommented(text: str) -> str:
    """Prose has one blank behind its `#`; keys none, and those below them two or more."""
    return re.sub(r"^(\s*)#(?=[a-z_]+:|  )", r"\1", text, flags=re.MULTILINE)


NAMES = ["fast", "premium", "auto", "x-8b", "../x y", "-", "a" * 80, "x\n  y: 1", "yes", "1"]


@given(
    st.lists(
        st.builds(
            ModelGroup,
            st.one_of(st.sampled_from(NAMES), st.text(min_size=1)),
            st.lists(
                st.builds(
                    Deployment,
                    st.one_of(st.text(), st.just("openai/evil\n\x07model: {")),
                    st.sampled_from(
                        [None, "http://localhost:8/v1", "http://[::1", "//x y:z@", "\n"]
                    ),
                ),
                max_size=2,
            ).map(tuple),
            st.one_of(st.none(), st.integers(1, 10**7)),
            st.sampled_from([None, "chat"]),
            st.booleans(),
        ),
        max_size=6,
    )
)
def test_whatever_is_found_is_written_so_that_it_loads(found: list[ModelGroup]) -> None:
    proposal = proposed(*found)
    if proposal.tiers:
        tiers = loaded(proposal).tiers
        assert list(tiers) == [tier.name for tier in proposal.tiers]
        assert [t.model for t in tiers.values()] == [t.group.name for t in proposal.tiers]
        assert len(set(names(proposal).values())) == len(proposal.tiers)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([here("one")], ("fast", "fast", "fast")),
        ([here("m", "o/m-7b", 1), here("n", "o/n-30b", 2)], ("fast", "standard", "standard")),
        ([here("m"), cloud("far")], ("fast", "fast", "fast")),
        ([cloud("far")], ()),
        ([here("m"), cloud("claude-sonnet-4")], ()),
    ],
)
def test_claude_codes_names_lead_to_tiers_of_this_machine(
    found: list[ModelGroup], expected: tuple[str, ...]
) -> None:
    aliases = loaded(proposed(*found)).reliability.escalation.aliases
    names = ("claude-haiku-*", "claude-sonnet-*", "claude-opus-*")
    assert tuple(aliases[name] for name in names if name in aliases) == expected
