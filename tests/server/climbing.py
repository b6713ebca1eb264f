"""Upstreams whose tiers answer differently, and the settings for it."""

from __future__ import annotations

from typing import Any

from tests.faults.catalogue import good
from tests.support.replies import litellm_error
from tests.support.scripted_server import Call, Reply, ScriptedServer, WhenWhole

ESCALATION = "reliability.escalation"
CHAIN = ("fast", "standard", "longctx")
# What LiteLLM says of a model server that is gone.
DEAD = litellm_error(500, "litellm.InternalServerError: Connection error.")


def by_model(**replies: Reply) -> WhenWhole:
    """Each model's reply; the others are well."""

    def choose(call: Call) -> Reply:
        body = call.json()
        return replies.get(body["model"]) or good(bool(body.get("tools")))

    return WhenWhole(choose)


def asked(upstream: ScriptedServer) -> list[str]:
    """The models of all calls so far."""
    return [call.json()["model"] for call in upstream.calls]


def settings(*, retries: int = 0, **escalation: Any) -> dict[str, Any]:
    """Three local tiers, of which the last has the largest window."""
    return {
        "tiers": {
            "fast": {"model": "fast", "context_window": 8192},
            "standard": {"model": "standard", "context_window": 16_384},
            "longctx": {"model": "longctx", "context_window": 131_072},
        },
        ESCALATION: {
            "chain": list(CHAIN),
            "max_retries_before_escalate": retries,
            "degrade": {"failures": 1000},
            **escalation,
        },
    }
