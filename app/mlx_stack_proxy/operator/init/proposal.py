"""Decide which tiers to make of the model groups that were found. No I/O.

Groups with the names of our default tiers become those tiers. Of the others, the group with a large
window becomes the tier for long prompts; the smallest models become ``fast`` and ``standard`` where
these are free; the rest get tiers of their own names after those. One group in the cloud becomes
the last tier. :func:`text_of` writes all that as a ``config.yaml`` that people will edit further.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from ...escalation.tiers import AUTO
from ...printable import printable, wrapped
from ...setting_types import keys_of
from ...settings import DEFAULT_TIERS, TierSettings, is_loopback
from ..local_stack.children import CALLBACK
from ..settings_shown import as_yaml
from .model_groups import Groups, ModelGroup, address_of, host_of

LONG_WINDOW = 100_000  # tokens that a model's window must have for the tier for long prompts
_FAST, _STANDARD, _LONG, _CLOUD = DEFAULT_TIERS
_SMALL_WINDOW: int = keys_of(TierSettings)["context_window"].default
LITELLM_LINES = ("litellm_settings:", f"  callbacks: [{CALLBACK}]")
_WIDTH = 96
_COMMENTS = {
    "context_window": "prompt and reply together, in tokens",
    "reasoning": "it reasons before it answers, and needs tokens for that",
    "health_url": "checked when the model is silent",
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
_ON_PLACES = {
    "network": "on another machine of your network, which counts as local here. `local: false` "
    "if it is not.",
    "cloud": "in the cloud. Requests go there only if a client names it, or with your consent: "
    "`cloud_fallback`, commented out in the file.",
    "unknown": "its location is unknown. `local: true` if on this machine, else `local: false`.",
}


class ProposedTier(Struct, frozen=True):
    """A tier of the proposal, and the model group that serves it."""

    name: str
    group: ModelGroup
    keys: dict[str, Any]  # for ``config.yaml``: the keys that differ from the tier's defaults
    note: str  # the group's models and their servers, in words


class Proposal(Struct, frozen=True):
    """The tiers to write, and what to tell the user about them."""

    tiers: tuple[ProposedTier, ...]  # the chain, weakest first
    remarks: tuple[str, ...]  # what was left out or guessed, and why: sentences for the user
    aliases: Mapping[str, str] = {}  # Claude Code's model names to tiers


def propose(groups: Groups) -> Proposal:
    remarks: list[str] = []
    tiers = [_tier(*named) for named in _named(list(_usable(groups.values(), remarks)), remarks)]
    if tiers and all(tier.group.place == "cloud" for tier in tiers):
        remarks.append("No model on this machine was found; the proxy is made for local models.")
    for place, remark in _ON_PLACES.items():
        names = [tier.name for tier in tiers if tier.group.place == place]
        if names:
            remarks.append(f"Tier{'s' if names[1:] else ''} {', '.join(names)}: {remark}")
    return Proposal(tuple(tiers), tuple(remarks), _aliases(tiers, groups))


def _aliases(tiers: list[ProposedTier], groups: Groups) -> dict[str, str]:
    """Give Claude Code's model names to the tiers of this machine and its network, by strength.

    There are no aliases if LiteLLM has models of such names: an alias would hide them. No alias
    leads to the cloud, since a client that sends such a name didn't ask for that.
    """
    near = [tier.name for tier in tiers if tier.group.place in ("here", "network")]
    if not near or any(name.startswith("claude-") or "*" in name for name in groups):
        return {}
    strongest = [name for name in near if name != _LONG] or near
    return {
        "claude-opus-*": strongest[-1],
        "claude-sonnet-*": _STANDARD if _STANDARD in near else strongest[-1],
        "claude-haiku-*": strongest[0],
    }


def health_url(group: ModelGroup, litellm: str) -> str:
    """Return the health URL of the group's server; "" if there are several or it can't be asked.

    A group's loopback address is on LiteLLM's machine, so that it counts only if LiteLLM runs on
    this machine, too. ``litellm``: LiteLLM's base URL.
    """
    if len(group.deployments) != 1 or group.place not in ("here", "network"):
        return ""
    base = group.deployments[0].api_base or ""
    reachable = group.place == "network" or all(map(is_loopback, map(host_of, (base, litellm))))
    address = address_of(base)
    return f"{urlsplit(base).scheme}://{address}/health" if address and reachable else ""


def _usable(groups: Iterable[ModelGroup], remarks: list[str]) -> Iterator[ModelGroup]:
    """Yield the groups that can be tiers; say in ``remarks`` why the others can't."""
    seen: dict[Any, str] = {}
    for group in groups:
        twin = seen.get(group.deployments) if group.deployments else None
        if "*" in group.name:
            remarks.append(f"{group.name} is a wildcard: no tier.")
        elif not group.chats:
            remarks.append(f"{group.name} is not a chat model: no tier, it passes through.")
        elif twin is not None:
            remarks.append(f"{group.name} is the same model on the same server as {twin}: no tier.")
        else:
            seen[group.deployments] = group.name
            yield group


def _named(groups: list[ModelGroup], remarks: list[str]) -> list[tuple[str, ModelGroup]]:
    """Return the groups that become tiers with the tiers' names, in the order of the chain."""
    tiers = {group.name: group for group in groups if group.name in DEFAULT_TIERS}
    unnamed = [group for group in groups if group.name not in DEFAULT_TIERS]
    clouds = [group for group in unnamed if group.place == "cloud"]
    near = [group for group in unnamed if group.place != "cloud"]
    near.sort(key=lambda group: group.billions or float("inf"))
    # For long prompts: a window that is large, and larger than all others.
    all_near = [*near, *(group for name, group in tiers.items() if name != _CLOUD)]
    *_, second, first = 0, 0, *sorted(group.window or _SMALL_WINDOW for group in all_near)
    widest = max(near, key=lambda group: group.window or 0, default=None)
    stands_out = second and first > second and first >= LONG_WINDOW
    if _LONG not in tiers and stands_out and widest is not None and widest.window == first:
        tiers[_LONG] = widest
        near.remove(widest)
    for name, free in ((_FAST, near), (_STANDARD, near), (_CLOUD, clouds)):
        if name not in tiers and free:
            tiers[name] = free.pop(0)
    if clouds:
        names_there = ", ".join(group.name for group in clouds)
        remarks.append(f"Also in the cloud, not tiers: {names_there}. Clients can name them.")
    own: dict[str, ModelGroup] = {}
    for group in near:  # an allowed name that is free and as close to the group's as possible
        name = re.sub(r"[^A-Za-z0-9_.-]", "-", group.name).lstrip("_.-")[:60] or "tier"
        names = chain([name], (f"{name}-{number}" for number in count(2)))
        own[next(one for one in names if one not in {AUTO, *DEFAULT_TIERS, *own})] = group
    order = [_FAST, _STANDARD, *own, _LONG, _CLOUD]
    return [(name, {**own, **tiers}[name]) for name in order if name in own or name in tiers]


def _tier(name: str, group: ModelGroup) -> ProposedTier:
    default = {"model": name, "context_window": _SMALL_WINDOW, "local": True}
    default |= DEFAULT_TIERS.get(name, {})
    settings: dict[str, Any] = {"model": group.name, "local": group.place in ("here", "network")}
    if group.place == "unknown" and not group.deployments:
        # Nothing is known of it: a default tier is local if LiteLLM's model has the tier's name;
        # any other counts as the cloud's, because wrongly keeping requests back does no harm.
        settings["local"] = name == group.name and name in (_FAST, _STANDARD, _LONG)
    if group.window is not None:
        settings["context_window"] = group.window
    keys = {key: value for key, value in settings.items() if value != default[key]}
    keys |= {"reasoning": True} if group.reasoning else {}
    keys |= {"health_url": group.health_url} if group.health_url else {}
    servers = [(one.model, address_of(one.api_base)) for one in group.deployments]
    places = dict.fromkeys(f"{model} at {at}" if at else model for model, at in servers)
    return ProposedTier(name, group, keys, "; ".join(places) or "a model that LiteLLM lists")


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
