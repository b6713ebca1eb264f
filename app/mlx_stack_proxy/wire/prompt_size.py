"""Estimates a prompt's tokens from its bytes, without the model's tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from .blocks import Blocks, PrefixCache, messages_in
from .growing import utf8_size

# English prose has about 4 bytes a token and code about 3 (OpenAI's and Llama 3's tokenizers). A
# high estimate leaves room in the context window, a low one overflows it.
BYTES_PER_TOKEN = 3.5
# For a model's output a low estimate is better, so that no reply is cut before its limit: English
# prose has about 4 bytes a token (same tokenizers), code fewer.
BYTES_PER_OUTPUT_TOKEN = 4
# The chat template's marks around a message.
TOKENS_PER_MESSAGE = 4
# A chat template's own words: 20 to 30 tokens without tools (Llama 3.1, Qwen 2.5), 150 with.
TOKENS_OF_TEMPLATE = 256
# An image's size can't be told from its URL; OpenAI's high-detail images cost about 1,000.
TOKENS_PER_IMAGE = 1000
_IMAGE: Final = TOKENS_PER_IMAGE * BYTES_PER_TOKEN
_KNOWN: Final[PrefixCache[float]] = PrefixCache()  # the sizes of earlier messages


def estimate_prompt_tokens(body: Mapping[str, Any], blocks: Blocks | None = None) -> int:
    """Estimate the tokens of a request's messages and tools from their bytes.

    ``blocks``: the request's messages in blocks, if already made.
    """
    blocks = blocks or Blocks(messages_in(body) or ())
    size = _and_messages(0, blocks.head) + _KNOWN.read(blocks, 0, _and_messages)
    if tools := body.get("tools"):
        size += len(orjson.dumps(tools))
    return int(size / BYTES_PER_TOKEN)


def _and_messages(size: float, messages: Sequence[Any]) -> float:
    """Add the messages' size in bytes to ``size``; images and marks count as bytes, too."""
    size += TOKENS_PER_MESSAGE * BYTES_PER_TOKEN * len(messages)
    for message in messages:
        if not isinstance(message, dict):
            continue
        content = message.get("content")
        if isinstance(content, str):
            size += utf8_size(content)
        elif isinstance(content, list):
            for part in content:
                text = part.get("text") if isinstance(part, dict) else None
                size += utf8_size(text) if isinstance(text, str) else _IMAGE
        if calls := message.get("tool_calls"):
            size += len(orjson.dumps(calls))
    return size
