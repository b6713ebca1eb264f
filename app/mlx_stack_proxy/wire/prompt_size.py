"""A quick estimate of how many tokens a prompt has, without its model's tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from .blocks import Blocks, Remembered, messages_in

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
    return _tokens([_size(messages_in(body) or ())], body.get("tools"))


def estimate_of(blocks: Blocks, tools: Any) -> int:
    """The same, of messages that may have come before."""
    return _tokens([found for _, found in _sizes.parts(blocks)], tools)


def _tokens(sizes: Iterable[tuple[int, int]], tools: Any) -> int:
    size = extra = 0
    for more, more_extra in sizes:
        size += more
        extra += more_extra
    if tools:
        size += len(orjson.dumps(tools))
    return int(size / BYTES_PER_TOKEN) + extra


def _size(messages: Sequence[Any]) -> tuple[int, int]:
    """Bytes of text and calls, and the tokens that come beside them."""
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
    return size, extra


_sizes = Remembered(_size)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
