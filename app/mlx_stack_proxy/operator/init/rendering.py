"""Write a proposal as the text of a ``config.yaml`` that people will edit further."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...printable import printable, wrapped
from ..local_stack.configs import CALLBACK
from ..settings_shown import as_yaml
from .proposal import Proposal

LITELLM_LINES = ("litellm_settings:", f"  callbacks: [{CALLBACK}]")
_WIDTH = 96
_COMMENTS = {
    "context_window": "prompt and reply together, in tokens",
    "reasoning": "it thinks before it answers, and needs room for that",
    "health_url": "asked when the model is silent",
    ("local", True): "on this machine",
    ("local", False): "not on this machine: only by name, or with consent",
}
_CLIENT_KEYS = """\
# Clients send LiteLLM's key, or none at all; to let in whatever key they send:
#server: {api_keys: ["*"]}
"""
_INSIDE = f"""\
# What LiteLLM's own file needs:
#    {LITELLM_LINES[0]}
#    {LITELLM_LINES[1]}

# Where LiteLLM listens, for `mlx-stack-proxy status` and the like.
server: {{{{port: {{}}}}}}
"""
_ALIASES = """\
# Claude Code's names for models. An alias is stronger than a model that LiteLLM lists.
reliability:
  escalation:
    aliases:
"""
_CONSENT = """\
# To let requests go to the cloud when the local tiers fail:
{}#    cloud_fallback:
#      model: {}     # asked directly where LiteLLM doesn't list {}
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
    head = _prose(
        f"Written by `mlx-stack-proxy init{'' if inside is None else ' --inside'}` from "
        f"{' and '.join(sources)}. Every other key has its default: `mlx-stack-proxy check "
        "--settings` shows all values, and editors read `mlx-stack-proxy config schema`."
    )
    if inside is None:
        parts = ["upstream:\n" + _lines(2, upstream)] if upstream else []
        parts.append(_CLIENT_KEYS)
    else:
        parts = [_INSIDE.format(inside)]
    tiers = "".join(
        f"{_prose(printable(tier.note), '  # ')}  {as_yaml(tier.name)}:\n{_lines(4, tier.keys)}"
        for tier in proposal.tiers
    )
    parts.append(f"# LiteLLM's model groups, from the weakest to the strongest.\ntiers:\n{tiers}")
    section = _ALIASES + _lines(6, proposal.aliases) if proposal.aliases else ""
    if cloud := next((tier for tier in proposal.tiers if tier.group.place == "cloud"), None):
        model = cloud.group.deployments[0].model
        above = "" if section else "#reliability:\n#  escalation:\n"
        section += _CONSENT.format(above, as_yaml(model.partition("/")[2] or model), cloud.name)
    return "\n".join([head, *parts, *([section] if section else [])])


def _lines(indent: int, keys: Mapping[str, Any]) -> str:
    """Return a line for each key, with a comment where the key has one."""
    lines = []
    for key, value in keys.items():
        text = f"{' ' * indent}{as_yaml(key)}: {as_yaml(value)}"
        comment = _COMMENTS.get((key, value)) or _COMMENTS.get(key)
        lines.append(f"{text:<36}  # {comment}\n" if comment else f"{text}\n")
    return "".join(lines)


def _prose(text: str, prefix: str = "# ") -> str:
    return "".join(f"{line}\n" for line in wrapped(text, _WIDTH, prefix, prefix))
