"""Find settings in LiteLLM's own file that work against a proxy that retries and escalates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .model_groups import mapping, mappings

_KEY_FROM = "os.environ/"
_FALLBACKS = (
    "fallbacks",
    "default_fallbacks",
    "context_window_fallbacks",
    "content_policy_fallbacks",
)
_MULTIPLY = "{}: attempts multiply with the proxy's own. Set it to 0."
_UNSET = (  # 2 is the default of LiteLLM's router
    "router_settings.num_retries is not set, which means 2: attempts multiply with the proxy's "
    "own. Set to 0."
)
_USELESS = (
    "general_settings.fallbacks does nothing: LiteLLM reads fallbacks under litellm_settings. "
    "Delete it; the proxy's tiers do what was meant."
)
_MOVES = (
    "{}: moves a request to another model unnoticed, so the proxy blames the wrong "
    "tier. Delete it; the proxy's tiers do that."
)
_COOLDOWNS = (
    "router_settings.disable_cooldowns is not true: after a single 404 from a tier's only server "
    "LiteLLM answers 429 for a while without asking it. Set to true."
)


def on_litellm(config: Any) -> Iterator[str]:
    """Yield a sentence or two for each harmful setting. ``config``: LiteLLM's file as parsed."""
    whole = mapping(config)
    names = ("router_settings", "litellm_settings")
    router, general = sections = [mapping(whole.get(name)) for name in names]
    retries = [
        f"{name}.num_retries: {number}"
        for name, section in zip(names, sections, strict=True)
        if (number := _number(section.get("num_retries")))
    ]
    retries += [
        f"{key}: {number} of model {entry.get('model_name')}"
        for entry in mappings(whole.get("model_list"))
        for key in ("num_retries", "max_retries")
        if (number := _number(mapping(entry.get("litellm_params")).get(key)))
    ]
    if retries:
        yield _MULTIPLY.format("; ".join(retries))
    if router.get("num_retries") is None and general.get("num_retries") is None:
        yield _UNSET
    if mapping(whole.get("general_settings")).get("fallbacks"):
        yield _USELESS
    for name, section in zip(names, sections, strict=True):
        if fallbacks := [f"{name}.{key}" for key in _FALLBACKS if section.get(key)]:
            yield _MOVES.format(", ".join(fallbacks))
    if router.get("disable_cooldowns") is not True:
        yield _COOLDOWNS


def _number(value: Any) -> int:
    """Return a count, even one written as a string; 0 for anything else."""
    try:
        return 0 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return 0


def master_key(config: Any) -> tuple[str | None, str | None]:
    """Return the environment variable that holds LiteLLM's key, or the key that its file holds.

    Exactly one of the two is set; both are None if ``config`` has no key.
    """
    key = mapping(mapping(config).get("general_settings")).get("master_key")
    if not isinstance(key, str) or not key:
        return None, None
    variable = key.removeprefix(_KEY_FROM)
    return (variable, None) if variable != key else (None, key)
