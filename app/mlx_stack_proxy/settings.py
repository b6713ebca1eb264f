"""The schema of ``config.yaml`` and of the ``MLX_STACK_*`` environment: every key and its default.

``config.example.yaml`` explains each key, and a test compares its values with the defaults here.
``docs/settings-reasons.yaml`` says why each default is what it is. ``settings_source.py`` reads the
file and the environment. A section's docstring is printed into ``config.schema.json``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from .setting_types import (
    AllowedHost,
    ApiKey,
    AtLeastOne,
    AutoOrSwitch,
    BaseUrl,
    Count,
    MemorySource,
    NotNegative,
    Params,
    PassthroughPath,
    Port,
    Positive,
    RedisUrl,
    Share,
    SwitchWord,
    TierName,
    TimeOfDay,
    WebhookUrl,
    section,
    unknown_name,
    without_v1,
)

ENV_PREFIX = "MLX_STACK_"
ENV_DELIMITER = "__"


@section
class ServerSettings:
    host: str = "127.0.0.1"
    port: Port = 4100
    allowed_hosts: tuple[AllowedHost, ...] = ()
    workers: AtLeastOne = 1
    max_body_bytes: AtLeastOne = 33_554_432
    shutdown_grace_seconds: NotNegative = 30
    api_keys: tuple[ApiKey, ...] = ()
    admin_key: ApiKey | None = None
    passthrough_paths: tuple[PassthroughPath, ...] = ()
    allow_bypass: bool = False

    @property
    def url(self) -> str:
        """The address on this machine: 127.0.0.1 if the proxy listens on all addresses."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


@section
class UpstreamSettings:
    base_url: BaseUrl = "http://127.0.0.1:4000"
    api_key_env: str | None = "LITELLM_MASTER_KEY"
    stream: Literal["always", "as_requested"] = "always"


@section
class StreamSettings:
    mode: Literal["live", "buffered"] = "live"
    keepalive_seconds: NotNegative = 15
    metadata: bool = False


@section
class TierSettings:
    model: str
    context_window: AtLeastOne = 32_768
    max_concurrency: AtLeastOne = 4
    queue_timeout: NotNegative = 60
    first_token_timeout: Positive = 300
    idle_timeout: Positive = 60
    tool_silence_timeout: Positive = 300
    total_timeout: Positive = 900
    health_url: BaseUrl | None = None
    local: bool = True
    reasoning: bool = False
    tools: AutoOrSwitch = "auto"
    images: AutoOrSwitch = "auto"
    response_format: AutoOrSwitch = "auto"
    guided: Literal["auto", "retry", "always", "never"] = "auto"
    params: Params = Field(default={}, kw_only=True)
    hint_placement: Literal["user", "tool_result"] = "user"


PASS_THROUGH = TierSettings(model="")  # the limits for models that belong to no tier


@section
class LoopToolOverride:
    """Other numbers for one tool; what isn't given is as for all."""

    warn_threshold: Annotated[int, Field(ge=2)] | None = None
    duplicate_threshold: Annotated[int, Field(ge=2)] | None = None
    identical_hard: AtLeastOne | None = None


@section
class LoopToolCallSettings:
    identical_hard: AtLeastOne = 5
    overrides: dict[str, LoopToolOverride] = Field(default={}, kw_only=True)


@section
class InResponseSettings:
    max_repeats: AtLeastOne = 2


@section
class GenerationSettings:
    enabled: bool = True
    min_laps: Annotated[int, Field(ge=2)] = 4
    min_chars: AtLeastOne = 400
    max_trailing_whitespace: AtLeastOne = 512
    max_reasoning_tokens: AtLeastOne = 12_288


@section
class JudgeSettings:
    enabled: bool = False
    tier: TierName = "standard"
    after_turns: AtLeastOne = 30
    history: AtLeastOne = 20
    confidence: Share = 0.9


# The detectors of the original documents. Each is off until its section is given.
@section
class IdenticalCallsSettings:
    """The same set of calls, in any order, whatever it brought."""

    warn: AtLeastOne = 3
    hard: Annotated[int, Field(ge=2)] = 5
    window: AtLeastOne = 20
    key: Literal["all", "salient"] = "all"


@section
class NameCycleSettings:
    """Tools' names in a cycle, whatever the arguments."""

    min_length: Annotated[int, Field(ge=2, le=64)] = 2
    max_length: Annotated[int, Field(ge=2, le=64)] = 4
    warn: Annotated[int, Field(ge=2)] = 3
    hard: Annotated[int, Field(ge=2)] = 4


@section
class ToolFrequencyOverride:
    """Other numbers for one tool; what isn't given is as for all."""

    warn: AtLeastOne | None = None
    hard: Annotated[int, Field(ge=2)] | None = None


@section
class ToolFrequencySettings:
    """Calls of one tool in a task."""

    warn: AtLeastOne = 30
    hard: Annotated[int, Field(ge=2)] = 50
    overrides: dict[str, ToolFrequencyOverride] = Field(default={}, kw_only=True)


@section
class SimilarRepliesSettings:
    """Text replies of a session that are nearly the same."""

    similarity: Share = 0.95
    window: Annotated[int, Field(ge=1, le=100)] = 10
    threshold: Annotated[int, Field(ge=2)] = 3


@section
class NoProgressSettings:
    warn: AtLeastOne = 15
    ask: AtLeastOne = 30
    hard: Annotated[int, Field(ge=2)] = 200


# What `preset: specification` gives, where the file gives nothing else.
_SPECIFICATION: dict[str, Any] = {
    **{key: {} for key in ("identical_calls", "name_cycle", "tool_frequency", "similar_replies")},
    "window_size": 50,  # how far detectors look back, for clients without transcripts
    "duplicate_threshold": 4,  # so that five equal calls with equal results break at the fifth, too
    "second_opinion": False,
}


@section
class LoopDetectionSettings:
    enabled: bool = True
    preset: Literal["specification"] | None = None
    window_size: AtLeastOne = 10
    duplicate_threshold: Annotated[int, Field(ge=2)] = 3
    warn_threshold: Annotated[int, Field(ge=2)] = 2
    on_break: Literal["escalate", "error", "stop", "report"] = "escalate"
    exempt_tools: tuple[str, ...] = ("wait", "sleep")
    second_opinion: bool = True
    no_progress: NoProgressSettings = NoProgressSettings()
    identical_calls: IdenticalCallsSettings | None = None
    name_cycle: NameCycleSettings | None = None
    tool_frequency: ToolFrequencySettings | None = None
    similar_replies: SimilarRepliesSettings | None = None
    tool_calls: LoopToolCallSettings = LoopToolCallSettings()
    in_response: InResponseSettings = InResponseSettings()
    generation: GenerationSettings = GenerationSettings()
    judge: JudgeSettings = JudgeSettings()
    max_sessions: AtLeastOne = 10_000
    max_tracked_threads: AtLeastOne | None = None

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any) -> Any:
        given = getattr(data, "kwargs", data)  # pydantic's ArgsKwargs, if it is made by hand
        if not isinstance(given, Mapping) or given.get("preset") != "specification":
            return data
        filled = {**_SPECIFICATION, **{k: v for k, v in given.items() if v is not None}}
        return filled if given is data else type(data)((), filled)


@section
class ToolValidationSettings:
    enabled: bool = True
    max_retries: Count = 3
    retry_with_correction: bool = True
    correction_role: Literal["user", "system"] = "user"
    validate_json: bool = True
    validate_schema: bool = True
    validate_tool_names: bool = True
    validate_plausibility: bool = True
    repair: Annotated[Literal["safe", "off"], SwitchWord] = "safe"
    rescue_text_calls: bool = True
    response_format: bool = True
    on_exhausted: Literal["error", "return_last"] = "error"


@section
class ToolCallTokenSettings:
    apply: Literal["auto", "always", "never", "enforce"] = "auto"
    default_max_tokens: AtLeastOne = 2048
    max_tokens: AtLeastOne = 4096


@section
class TokenLimits:
    per_session: AtLeastOne | None = None
    per_hour: AtLeastOne | None = None
    max_output_tokens: AtLeastOne | None = None


@section
class TokenBudgetSettings:
    enabled: bool = True
    per_session: AtLeastOne = 500_000
    per_hour: AtLeastOne = 2_000_000
    max_output_tokens: AtLeastOne = 16_384
    tool_calls: ToolCallTokenSettings = ToolCallTokenSettings()
    count_cached_prompt: bool = False
    per_key: dict[str, TokenLimits] = Field(default={}, kw_only=True)
    per_tier: dict[str, TokenLimits] = Field(default={}, kw_only=True)
    policy: Literal["warn_and_continue", "escalate", "hard_stop"] = "warn_and_continue"
    downgrade_tier: TierName = "fast"
    warn_at: Share = 0.8
    session_ttl_seconds: Positive = 86_400


@section
class DegradeSettings:
    failures: AtLeastOne = 5
    cooldown_seconds: Positive = 30


EscalationReason = Literal[
    "tool_validation_failure",
    "loop_detected",
    "timeout",
    "server_error",
    "context_overflow",
    "empty_response",
    "output_truncated",
    "tier_busy",
]


# The tier that ends the chain if no tier of the chain is in the cloud.
CLOUD_TIER = "cloud_fallback"
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
            raise ValueError(f"provider {self.provider!r} needs its base_url: the key goes there")
        return self

    @property
    def url(self) -> str:
        """The API's address: the provider's own if none is given."""
        return self.base_url or PROVIDERS[self.provider.lower()]


@section
class EscalationSettings:
    enabled: bool = True
    chain: tuple[TierName, ...] = ("fast", "standard", "longctx", "premium")
    max_retries_before_escalate: Count = 3
    max_attempts: AtLeastOne = 10
    exchange_timeout: Positive = 540
    aliases: dict[str, TierName] = Field(default={}, kw_only=True)
    cloud: bool = True
    escalate_on: tuple[EscalationReason, ...] = get_args(EscalationReason)
    sticky_seconds: NotNegative = 300
    unknown_models: Literal["chain", "passthrough"] = "chain"
    degrade: DegradeSettings = DegradeSettings()
    cloud_fallback: CloudFallbackSettings | None = None


@section
class ComplexRequestSettings:
    min_prompt_tokens: Count = 4000
    tools: bool = True


@section
class PressureThresholds:
    swap_warning_bytes_per_second: Positive = 33_554_432


@section
class MemoryPressureSettings:
    enabled: bool = True
    source: MemorySource = "auto"
    interval_seconds: Positive = 5
    thresholds: PressureThresholds = PressureThresholds()
    sustained_seconds: NotNegative = 60
    escalate_complex: bool = True
    complex: ComplexRequestSettings = ComplexRequestSettings()
    critical_action: Literal["shed", "ignore"] = "shed"


@section
class ReliabilitySettings:
    loop_detection: LoopDetectionSettings = LoopDetectionSettings()
    tool_validation: ToolValidationSettings = ToolValidationSettings()
    token_budget: TokenBudgetSettings = TokenBudgetSettings()
    escalation: EscalationSettings = EscalationSettings()
    memory_pressure: MemoryPressureSettings = MemoryPressureSettings()


@section
class StateSettings:
    backend: Literal["memory", "sqlite", "redis"] = "sqlite"
    path: Annotated[str, Field(min_length=1)] = "~/.mlx-stack/reliability.db"
    redis_url: RedisUrl | None = None

    @model_validator(mode="after")
    def _redis_has_an_address(self) -> StateSettings:
        if self.backend == "redis" and self.redis_url is None:
            raise ValueError("backend `redis` needs a redis_url, such as redis://127.0.0.1:6379/0")
        return self


NotifyReason = Literal["exhausted", "upstream_down", "store_down", "budget_exceeded", "report"]


@section
class NotifySettings:
    url: WebhookUrl | None = None
    on: tuple[NotifyReason, ...] = get_args(NotifyReason)
    report_at: TimeOfDay = "08:00"


@section
class ObservabilitySettings:
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"
    events_retention_days: Positive = 14
    events_max: AtLeastOne = 100_000
    agent_names: bool = True
    notify: NotifySettings = NotifySettings()
    capture_failures: bool = False
    capture_path: Annotated[str, Field(min_length=1)] = "~/.mlx-stack/failures"
    capture_max_bytes: AtLeastOne = 104_857_600
    traces: bool = False


DEFAULT_TIERS: dict[str, dict[str, Any]] = {
    "fast": {"model": "fast"},
    "standard": {"model": "standard"},
    "longctx": {"model": "longctx", "context_window": 131_072},
    "premium": {"model": "premium", "local": False},
}


@section
class Settings:
    """All settings, checked. Make it with ``settings_source.load``."""

    server: ServerSettings = ServerSettings()
    upstream: UpstreamSettings = UpstreamSettings()
    stream: StreamSettings = StreamSettings()
    tiers: Annotated[dict[TierName, TierSettings], Field(min_length=1)]
    reliability: ReliabilitySettings = ReliabilitySettings()
    state: StateSettings = StateSettings()
    observability: ObservabilitySettings = ObservabilitySettings()

    # Here, not in UpstreamSettings: that class also serves the cloud and the webhook, whose URLs
    # keep their paths.
    @field_validator("upstream")
    @classmethod
    def _is_litellm(cls, upstream: UpstreamSettings) -> UpstreamSettings:
        return replace(upstream, base_url=without_v1(upstream.base_url))

    @model_validator(mode="after")
    def _names_agree(self) -> Settings:
        rules = self.reliability
        escalation, budget, judge = rules.escalation, rules.token_budget, rules.loop_detection.judge
        places = [("escalation.chain", name) for name in escalation.chain]
        places += [(f"escalation.aliases.{alias}", n) for alias, n in escalation.aliases.items()]
        places += [(f"token_budget.per_tier.{name}", name) for name in budget.per_tier]
        if budget.enabled and budget.policy == "escalate":
            places.append(("token_budget.downgrade_tier", budget.downgrade_tier))
        if judge.enabled:
            places.append(("loop_detection.judge.tier", judge.tier))
        for path, name in places:
            if name not in self.tiers:
                raise ValueError(f"reliability.{path}: {unknown_name(name, self.tiers, 'tier')}")
        if not escalation.chain:
            raise ValueError("reliability.escalation.chain: needs at least one tier")
        if len(set(escalation.chain)) != len(escalation.chain):
            raise ValueError("reliability.escalation.chain: names a tier twice")
        if "auto" in self.tiers:
            sentence = "`auto` is the name clients use for the chain's first tier"
            raise ValueError(f"tiers.auto: {sentence}")
        if "*" in self.server.api_keys and not is_loopback(self.server.host):
            raise ValueError(
                'server.api_keys: "*" lets anyone in, which is allowed only on a loopback '
                f"`server.host` (127.0.0.1, ::1, localhost), not on {self.server.host}"
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether a bind address or host name means this machine only."""
    return host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
