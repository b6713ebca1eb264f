"""A quick estimate of how many tokens a prompt has, without its model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from .blocks import messages_in

# English prose has about 4 bytes a token and code about 3 (OpenAI's and Llama 3's tokenizers); an
# estimate that is a little high leaves room, one that is too low overflows.
BYTES_PER_TOKEN = 3.5
# Of what a model writes, English prose has about 4 (the same tokenizers) and code fewer: such an
# estimate is rather low, so that a limit is not undercut.
BYTES_PER_OUTPUT_TOKEN = 4
# Beside its text, a message costs the template's own marks.
TOKENS_PER_MESSAGE = 4
# A picture's size can't be told from its URL; 1,000 is the order of OpenAI's high-detail cost.
TOKENS_PER_IMAGE = 1000


def estimate_prompt_tokens(body: Mapping[str, Any]) -> int:
    """Tokens of a request's messages and tools, estimated from their bytes."""
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
