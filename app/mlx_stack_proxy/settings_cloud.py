"""The settings of ``reliability.escalation.cloud_fallback``, and the tier that they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import model_validator

from .section import section
from .setting_types import AtLeastOne, BaseUrl

# The tier that ends the chain if no tier of the chain is in the cloud.
CLOUD_TIER = "cloud_fallback"
CLOUD_WINDOW = 131_072  # tokens of that tier: no LiteLLM says how many its model has
PROVIDERS = {"openrouter": "https://openrouter.ai/api/v1"}


@section
class CloudFallbackSettings:
    provider: str = "openrouter"
    model: str
    api_key_env: str = "OPENROUTER_API_KEY"
    base_url: BaseUrl | None = None
    max_tokens_per_hour: AtLeastOne = 200_000
    enabled: bool = True

    @model_validator(mode="after")
    def _has_an_address(self) -> CloudFallbackSettings:
        if self.base_url is None and self.provider.lower() not in PROVIDERS:
            raise ValueError(
                f"provider {self.provider!r} needs its base_url, to which the key goes"
            )
        return self

    @property
    def url(self) -> str:
        """The API's address: the provider's own if none is given."""
        return self.base_url or PROVIDERS[self.provider.lower()]


def end_in_cloud(values: dict[str, Any]) -> None:
    """Make ``cloud_fallback`` the chain's last tier, if the chain has none in the cloud.

    ``values``: the settings before they are checked, with ``tiers`` and the chain; they are changed
    in place. What is no mapping or list is left to the check.
    """
    tiers, section = values["tiers"], values.get("reliability")
    escalation = section.get("escalation") if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping) or not isinstance(escalation, Mapping):
        return
    fallback, chain = escalation.get("cloud_fallback"), escalation.get("chain")
    if not isinstance(fallback, Mapping) or not isinstance(chain, (list, tuple)):
        return
    configured = [tiers.get(name) for name in chain if isinstance(name, str)]
    if any(isinstance(tier, Mapping) and _is_off(tier, "local") for tier in configured):
        return
    model = fallback.get("model")
    if _is_off(fallback, "enabled") or not isinstance(model, str) or CLOUD_TIER in tiers:
        return
    tier = {"model": model, "local": False, "context_window": CLOUD_WINDOW}
    values["tiers"] = {**tiers, CLOUD_TIER: tier}
    escalation = {**escalation, "chain": [*chain, CLOUD_TIER]}
    values["reliability"] = {**section, "escalation": escalation}


def _is_off(section: Mapping[str, Any], key: str) -> bool:
    """Whether a switch is off; the environment gives it as a word."""
    return str(section.get(key, True)).lower() in ("false", "off", "no", "n", "f", "0")
