"""A fast tier that fails in each way, and the settings for it: one retry, then the next tier."""

from __future__ import annotations

SETTINGS = {
    "reliability.escalation": {
        "chain": ["fast", "standard"],
        "max_retries_before_escalate": 1,
        "sticky_seconds": 0,
        "degrade": {"failures": 1000},
    },
    "reliability.tool_validation.max_retries": 1,
    "tiers.fast.first_token_timeout": 1.0,
    "tiers.fast.tool_silence_timeout": 1.0,
}
TEXT_CALL = '<tool_call>{"name": "search", "arguments": {"query": "quokka"}}</tool_call>'
