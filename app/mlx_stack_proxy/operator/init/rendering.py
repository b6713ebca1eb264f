"""Write a proposal as the text of a ``config.yaml`` that people will edit further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...printable import printable, wrapped
from ..local_stack.configs import CALLBACK
from ..settings_shown import as_yaml
from .proposal import Proposal, ProposedTier

_WIDTH = 96
_EXPLAINED = {
    "context_window": "prompt and reply together, in tokens",
    "reasoning": "it thinks before it answers, and needs room for that",
    "health_url": "asked when the model is silent",
}
_LOCAL = {True: "on this machine", False: "not on this machine: only by name, or with consent"}
_CLIENT_KEYS = """\
# Clients send LiteLLM's key, or none at all; to let in whatever key they send:
#server: {api_keys: ["*"]}
"""
_SERVER = """\
# Where LiteLLM listens, for `mlx-stack-proxy status` and the like.
server: {{port: {}}}
"""
LITELLM_LINES = ("litellm_settings:", f"  callbacks: [{CALLBACK}]")
_ESCALATION = "reliability:\n  escalation:\n"
_ALIASES = """\
# Claude Code's names for models. An alias is stronger than a model that LiteLLM lists.
"""
_CONSENT = """\
# To let requests go to the cloud when the local tiers fail:
#    cloud_fallback:
#      model: MODEL     # asked directly where LiteLLM doesn't list NAME
#      max_tokens_per_hour: 200000
"""


def text_of(
    proposal: Proposal,
    upstream: Mapping[str, Any],
    sources: Sequence[str],
    inside: int | None = None,
) -> str:
    """Return the file's text.

    ``upstream``: the keys of that section that differ from the defaults. ``sources``: where the
    proposal comes from, for the first line. ``inside``: LiteLLM's port, if the reliability layer
    is to run inside LiteLLM.
    """
    command = "init" if inside is None else "init --inside"
    parts = [
        _prose(
            f"Written by `mlx-stack-proxy {command}` from {' and '.join(sources)}. What isn't here "
            "has its default: `mlx-stack-proxy check --settings` shows all that is in force, and "
            "`mlx-stack-proxy config schema` explains it to an editor."
        )
    ]
    if inside is not None:
        lines = "".join(f"#    {line}\n" for line in LITELLM_LINES)
        parts += [f"# What LiteLLM's own file needs:\n{lines}", _SERVER.format(inside)]
    elif upstream:
        parts.append("upstream:\n" + "".join(_line(2, k, v) for k, v in upstream.items()))
    if inside is None:
        parts.append(_CLIENT_KEYS)
    tiers = "".join(_tier(tier) for tier in proposal.tiers)
    parts.append(f"# LiteLLM's model groups, from the weakest to the strongest.\ntiers:\n{tiers}")
    return "\n".join([*parts, *_escalation(proposal)])


def _escalation(proposal: Proposal) -> list[str]:
    """Return the ``escalation`` section: the aliases, and a commented-out ``cloud_fallback``."""
    clouds = [tier for tier in proposal.tiers if tier.group.place == "cloud"]
    section = ""
    if proposal.aliases:
        lines = "".join(_line(6, name, tier) for name, tier in proposal.aliases.items())
        section = f"{_ALIASES}{_ESCALATION}    aliases:\n{lines}"
    if clouds:
        model = clouds[0].group.deployments[0].model
        model = as_yaml(model.partition("/")[2] or model)
        consent = _CONSENT.replace("MODEL", model).replace("NAME", clouds[0].name)
        head = "" if section else "".join(f"#{line}\n" for line in _ESCALATION.splitlines())
        why, _, keys = consent.partition("\n")
        section += f"{why}\n{head}{keys}"
    return [section] if section else []


def _tier(tier: ProposedTier) -> str:
    lines = [_prose(printable(tier.note), "  # ")]
    lines.append(f"  {as_yaml(tier.name)}:\n")
    for key, value in tier.keys.items():
        lines.append(_line(4, key, value, _LOCAL[value] if key == "local" else _EXPLAINED.get(key)))
    return "".join(lines)


def _line(indent: int, key: str, value: Any, comment: str | None = None) -> str:
    text = f"{' ' * indent}{key}: {as_yaml(value)}"
    return (f"{text:<36}  # {comment}" if comment else text) + "\n"


def _prose(text: str, prefix: str = "# ") -> str:
    return "".join(f"{line}\n" for line in wrapped(text, _WIDTH, prefix, prefix))
