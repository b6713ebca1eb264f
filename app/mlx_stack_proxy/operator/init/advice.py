"""What in LiteLLM's own configuration works against a proxy that retries and escalates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .model_groups import mapping, mappings

LITELLM_RETRIES = 2  # its router's number where none is set
_KEY_FROM = "os.environ/"
_RETRIES = ("num_retries", "max_retries")
_FALLBACKS = (
    "fallbacks",
    "default_fallbacks",
    "context_window_fallbacks",
    "content_policy_fallbacks",
)


def on_litellm(config: Any) -> list[str]:
    """One sentence or two for each thing; ``config``: LiteLLM's file as parsed."""
    whole = mapping(config)
    return [*_on_retries(whole), *_on_fallbacks(whole), *_on_the_rest(whole)]


def key_variable(config: Any) -> str | None:
    """The environment variable from which LiteLLM takes its master key, if it names one."""
    key = mapping(mapping(config).get("general_settings")).get("master_key")
    if isinstance(key, str) and key.startswith(_KEY_FROM):
        return key.removeprefix(_KEY_FROM)
    return None


def literal_key(config: Any) -> str | None:
    """The master key, where it stands in LiteLLM's file itself."""
    key = mapping(mapping(config).get("general_settings")).get("master_key")
    return key if isinstance(key, str) and key and not key.startswith(_KEY_FROM) else None


def _on_retries(whole: Mapping[str, Any]) -> Iterator[str]:
    set_to_some = []
    for section in ("router_settings", "litellm_settings"):
        number = _number(mapping(whole.get(section)).get("num_retries"))
        if number:
            set_to_some.append(f"{section}.num_retries: {number}")
    for entry in mappings(whole.get("model_list")):
        params = mapping(entry.get("litellm_params"))
        for key in _RETRIES:
            if number := _number(params.get(key)):
                set_to_some.append(f"{key}: {number} of model {entry.get('model_name')}")
    if set_to_some:
        yield (
            f"{'; '.join(set_to_some)}: attempts multiply with the proxy's own, which knows what "
            "was wrong with the last one. Set to 0."
        )
    router = mapping(whole.get("router_settings"))
    general = mapping(whole.get("litellm_settings"))
    if router.get("num_retries") is None and general.get("num_retries") is None:
        yield (
            f"router_settings.num_retries is not set, which means {LITELLM_RETRIES}: attempts "
            "multiply with the proxy's own. Set to 0."
        )


def _on_fallbacks(whole: Mapping[str, Any]) -> Iterator[str]:
    if mapping(whole.get("general_settings")).get("fallbacks"):
        yield (
            "general_settings.fallbacks does nothing: LiteLLM reads fallbacks under "
            "litellm_settings. Delete it; the proxy's tiers do what was meant."
        )
    for section in ("litellm_settings", "router_settings"):
        found = [key for key in _FALLBACKS if mapping(whole.get(section)).get(key)]
        if found:
            names = ", ".join(f"{section}.{key}" for key in found)
            yield (
                f"{names}: moves a request to another model behind the proxy's back, which then "
                "blames the wrong tier. Delete it; the proxy's tiers do that."
            )


def _on_the_rest(whole: Mapping[str, Any]) -> Iterator[str]:
    if mapping(whole.get("router_settings")).get("disable_cooldowns") is not True:
        yield (
            "router_settings.disable_cooldowns is not true: after a single 404 from a tier's only "
            "server LiteLLM answers 429 for a while without asking it. Set to true."
        )


def _number(value: Any) -> int:
    """A count, also where it is written as a string; 0 for anything else."""
    try:
        return 0 if isinstance(value, bool) else int(value)
    except (TypeError, ValueError):
        return 0
