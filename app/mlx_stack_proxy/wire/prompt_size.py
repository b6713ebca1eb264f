"""Estimates how many tokens a prompt has from its bytes, without its model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from .blocks import messages_in

# English prose has about 4 bytes a token and code about 3 (OpenAI's and Llama 3's tokenizers). A
# high estimate leaves room in the context window, a low one overflows it.
BYTES_PER_TOKEN = 3.5
# For a model's output the estimate should rather be low, so that no reply is cut before its limit:
# English prose has about 4 bytes a token (the same tokenizers), code fewer.
BYTES_PER_OUTPUT_TOKEN = 4
# Besides its text, a message costs the chat template's own marks.
TOKENS_PER_MESSAGE = 4
# An image's size can't be told from its URL; OpenAI's high-detail images cost about 1,000.
TOKENS_PER_IMAGE = 1000


def estimate_prompt_tokens(body: Mapping[str, Any]) -> int:
    """Estimate the tokens of a request's messages and tools from their bytes."""
    messages = messages_in(body) or ()
    size = 0
    extra = TOKENS_PER_MESSAGE * len(messages)
    for message in messages:
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        if isinstance(content, str):
            size += _bytes(content)
        elif isinstance(content, list):
            for part in content:
                text = part.get("text") if isinstance(part, dict) else None
                if isinstance(text, str):
                    size += _bytes(text)
                else:
                    extra += TOKENS_PER_IMAGE
        if calls := message.get("tool_calls"):
            size += len(orjson.dumps(calls))
    if tools := body.get("tools"):
        size += len(orjson.dumps(tools))
    return int(size / BYTES_PER_TOKEN) + extra


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
