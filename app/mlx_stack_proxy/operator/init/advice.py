"""Find settings in LiteLLM's own file that work against a proxy that retries and escalates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .model_groups import mapping, mappings

_FALLBACKS = (
    "fallbacks",
    "default_fallbacks",
    "context_window_fallbacks",
    "content_policy_fallbacks",
)


def on_litellm(config: Any) -> Iterator[str]:
    """Yield a sentence or two for each harmful setting. ``config``: LiteLLM's file as parsed."""
    whole = mapping(config)
    sections = {n: mapping(whole.get(n)) for n in ("router_settings", "litellm_settings")}
    given = {f"{name}.num_retries": one.get("num_retries") for name, one in sections.items()}
    retries = {f"{key}: {n}": n for key, n in given.items()}
    for entry in mappings(whole.get("model_list")):
        params = mapping(entry.get("litellm_params"))
        for key in ("num_retries", "max_retries"):
            retries[f"{key}: {params.get(key)} of model {entry.get('model_name')}"] = params.get(
                key
            )
    # A file may give a number as a string.
    wrong = [what for what, n in retries.items() if str(n).isdecimal() and int(str(n)) > 0]
    if wrong:
        yield f"{'; '.join(wrong)}: attempts multiply with the proxy's own. Set it to 0."
    if not any(n is not None for n in given.values()):  # 2 is the default of LiteLLM's router
        yield (
            "router_settings.num_retries is not set, which means 2: attempts multiply with the "
            "proxy's own. Set to 0."
        )
    if mapping(whole.get("general_settings")).get("fallbacks"):
        yield (
            "general_settings.fallbacks does nothing: LiteLLM reads fallbacks under "
            "litellm_settings. Delete it; the proxy's tiers replace it."
        )
    for name, section in sections.items():
        if fallbacks := ", ".join(f"{name}.{key}" for key in _FALLBACKS if section.get(key)):
            yield (
                f"{fallbacks}: silently moves a request to another model, so the proxy blames the "
                "wrong tier. Delete it; the proxy's tiers replace it."
            )
    if sections["router_settings"].get("disable_cooldowns") is not True:
        yield (
            "router_settings.disable_cooldowns is not true: after a single 404 from a tier's only "
            "server LiteLLM answers 429 for a while without calling it. Set it to true."
        )
