"""Recognises and removes the fields of a client's request that control LiteLLM itself.

Besides fields for the model, LiteLLM obeys fields for itself: answer without a model, with whose
key, at which address, how often to retry, how long to wait. Only the operator may set those (in
LiteLLM's own configuration, or in a tier's ``params``).

The names are LiteLLM 1.106.2's: ``all_litellm_params`` (``litellm/types/utils.py``), what its proxy
refuses in a body (``_BANNED_REQUEST_BODY_PARAMS`` in ``litellm/proxy/auth/auth_utils.py``), and
what its router removes from a call (``litellm/router.py``). Where that LiteLLM is installed, a test
compares this table with it. ``metadata`` may hold the same names, also as JSON text, which becomes
an object; any other text there is dropped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

_HEADERS = (b"x-litellm-", b"litellm-")
TIMEOUT_HEADER = "x-litellm-timeout"

# Families of names, by prefix and by substring.
_BEGINNINGS = (
    "_",
    "anthropic_issuer_",
    "anthropic_keycloak_",
    "arize_",
    "aws_",
    "azure",
    "braintrust_",
    "cache_creation_",
    "cache_read_",
    "dd_",
    "gcs_",
    "humanloop_",
    "langfuse_",
    "langsmith_",
    "litellm_",
    "mock_",
    "newrelic_",
    "posthog_",
    "regional_",
    "s3_",
    "signoz_",
    "slack_",
    "vertex_",
    "wandb_",
    "weave_",
)
_PARTS = (
    "_identity_",
    "_router_",
    "api_key",
    "caching",
    "callback",
    "cost_per",
    "fallback",
    "federation",
    "guardrail",
    "ocr_cost",
    "organization",
    "retries",
    "retry",
    "routing_strategy",
    "service_account",
    "timeout",
    "workspace",
)
_NAMES = frozenset(
    {
        # accounts, keys and addresses
        "agentcore_runtime_session_id",
        "api_base",
        "api_version",
        "base_url",
        "bedrock_tags",
        "client",
        "client_id",
        "client_secret",
        "configurable_clientside_auth_params",
        "custom_llm_provider",
        "data_residency",
        "deployment_url",
        "extra_headers",
        "fireworks_forward_user_id",
        "headers",
        "lunary_public_key",
        "nvcf_function_id",
        "provider_affinity_header",
        "provider_specific_header",
        "region_name",
        "sagemaker_base_url",
        "secret_fields",
        "shared_session",
        "ssl_verify",
        "tenant_id",
        "use_litellm_proxy",
        "use_ssl",
        "use_xai_oauth",
        "user_config",
        # which deployment answers, and how it is called
        "acompletion",
        "additional_drop_params",
        "aembedding",
        "aimg_generation",
        "allm_passthrough_route",
        "allowed_model_region",
        "allowed_openai_params",
        "async_call",
        "atext_completion",
        "attempted_targets",
        "complete_response",
        "cooldown_time",
        "enable_tag_filtering",
        "extra_body",
        "fastest_response",
        "max_agentic_loops",
        "model_alias_map",
        "model_config",
        "model_file_id_mapping",
        "model_group",
        "model_info",
        "model_list",
        "order",
        "original_function",
        "original_generic_function",
        "passthrough_on_no_deployment",
        "rust",
        "search_tool_name",
        "self",
        "silent_model",
        "specific_deployment",
        "tag_regex",
        "tags",
        "text_completion",
        "use_chat_completions_api",
        "use_client",
        "use_in_pass_through",
        "vector_store_ids",
        "weight",
        # limits, caches and prices
        "base_model",
        "budget_duration",
        "cache",
        "cache_key",
        "itpm",
        "max_budget",
        "max_file_size_mb",
        "max_parallel_requests",
        "otpm",
        "output_vector_size",
        "preset_cache_key",
        "rpm",
        "tiered_pricing",
        "tpm",
        "ttl",
        # changes to the prompt or the reply
        "allow_client_keepalive_override",
        "assistant_continue_message",
        "bos_token",
        "custom_prompt_dict",
        "disable_add_transform_inline_image_block",
        "enable_json_schema_validation",
        "ensure_alternating_roles",
        "eos_token",
        "final_prompt_value",
        "hf_model_name",
        "keepalive_seconds",
        "merge_reasoning_content_in_choices",
        "policies",
        "prompt_environment",
        "prompt_id",
        "prompt_label",
        "prompt_variables",
        "prompt_version",
        "roles",
        "stream_chunk_size",
        "stream_response",
        "supports_system_message",
        "user_continue_message",
        # logging
        "completion_call_id",
        "id",
        "log_client_error_tracebacks",
        "logger_fn",
        "no-log",
        "proxy_server_request",
        "standard_logging_object",
        "turn_off_message_logging",
        "verbose",
    }
)


# Tools that LiteLLM runs itself, on its own servers: its MCP gateway, its vector stores.
_RUN_BY_LITELLM = frozenset({"mcp", "file_search"})
_FAMILIES = re.compile(f"^(?:{'|'.join(_BEGINNINGS)})|{'|'.join(_PARTS)}")


def is_control(name: str) -> bool:
    """Whether a field of a body, or of its ``metadata``, controls LiteLLM itself."""
    return name in _NAMES or _FAMILIES.search(name) is not None


def is_control_header(name: bytes) -> bool:
    """Whether a header controls LiteLLM itself; ``name`` in lower case."""
    return name.startswith(_HEADERS)


def without_controls(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body without LiteLLM's control fields; the same object if it has none."""
    kept = _kept(body)
    metadata, tools = body.get("metadata"), body.get("tools")
    if isinstance(metadata, str):  # LiteLLM parses it as JSON
        metadata = _object_in(metadata)
        kept = {**kept, "metadata": metadata}
        if metadata is None:
            del kept["metadata"]
    if isinstance(metadata, dict) and (kept_metadata := _kept(metadata)) is not metadata:
        kept = {**kept, "metadata": kept_metadata}
    if isinstance(tools, list) and any(map(_is_run_by_litellm, tools)):
        kept = {**kept, "tools": [tool for tool in tools if not _is_run_by_litellm(tool)]}
        if not kept["tools"]:  # servers refuse an empty list, or a tool_choice without tools
            kept = {name: kept[name] for name in kept if name not in ("tools", "tool_choice")}
    return kept


def _object_in(text: str) -> dict[str, Any] | None:
    """Return the object in a JSON text, or None."""
    try:
        parsed = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _is_run_by_litellm(tool: Any) -> bool:
    return isinstance(tool, dict) and tool.get("type") in _RUN_BY_LITELLM


def _kept(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    if not any(map(is_control, fields)):
        return fields
    return {name: value for name, value in fields.items() if not is_control(name)}


def patience(body: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    """Return the time limit in seconds that the client sets for its whole request, or None.

    ``headers``: names in lower case. A value that is not a positive number is ignored.
    """
    candidates = (_seconds(body.get("timeout")), _seconds(headers.get(TIMEOUT_HEADER)))
    limits = [seconds for seconds in candidates if seconds is not None]
    return min(limits) if limits else None


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if seconds > 0 and math.isfinite(seconds) else None
