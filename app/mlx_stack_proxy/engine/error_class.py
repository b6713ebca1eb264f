"""Name what went wrong upstream in words that hold nothing of a prompt or a reply.

An error's message may quote the client or the model. Only two shapes are taken out of it: the name
of an exception's class, and the message's head (``CUDA out of memory``), unless the head stands in
the request or in the reply.
"""

from __future__ import annotations

import re
from typing import Final

import orjson

from .exchange import Exchange
from .outcome import Outcome
from .verdicts import UpstreamFailed

MOST_SEARCHED: Final = 256 * 1024  # bytes of a request; of a larger one no head is taken
MOST_READ: Final = 400  # characters of a message
_CLASS = r"(?:[A-Za-z_]\w{0,40}\.){0,5}[A-Z][A-Za-z]{2,40}(?:Error|Exception|Timeout|Failure)"
# What LiteLLM and the engine write before the server's own words.
_CHAIN = re.compile(
    rf"(?:(?:an error inside the answer|no chat completion, but|status \d{{3}}|(?P<name>{_CLASS}))"
    r"\s*[:-]\s*)"
)
# LiteLLM's classes say what the status says; these are not worth a word.
_OF_STATUS = re.compile(
    r"(?:API|InternalServer|BadRequest|ServiceUnavailable|BadGateway|OpenAI|Openai|HTTP|Api)\w*"
)
# PyTorch: "CUDA out of memory"; MLX on Metal: "[METAL] … Insufficient Memory
# (…:kIOGPUCommandBufferCallbackErrorOutOfMemory)"; llama.cpp: "out of memory".
_OUT_OF_MEMORY = re.compile(r"\bout of memory\b|\binsufficient memory\b|OutOfMemory", re.IGNORECASE)
_HEAD = re.compile(r"[A-Za-z][A-Za-z-]{0,20}(?: [A-Za-z-]{1,20}){1,5}(?=[.:,;(\[]|$)")


def error_class(exchange: Exchange, outcome: Outcome) -> str:
    """Return what upstream named as the error; "" if it named nothing that is safe to keep."""
    verdict = outcome.verdict
    if not isinstance(verdict, UpstreamFailed):
        return ""
    name, text = "", verdict.message[:MOST_READ]
    if _OUT_OF_MEMORY.search(text):
        return "out of memory"
    while match := _CHAIN.match(text):
        name, text = _name_in(match, name), text[match.end() :]
    head = _HEAD.match(text)
    if head is not None and not _is_quoted(head[0], exchange, outcome):
        return head[0]
    return name


def _name_in(match: re.Match[str], earlier: str) -> str:
    name = (match["name"] or "").rpartition(".")[2]
    return earlier if not name or _OF_STATUS.fullmatch(name) else name


def _is_quoted(head: str, exchange: Exchange, outcome: Outcome) -> bool:
    """Whether the words stand in the request or the reply, however they are spaced there."""
    request = exchange.request
    if request.size > MOST_SEARCHED:
        return True
    try:
        asked = orjson.dumps(request.body)
    except (TypeError, ValueError):  # an integer that orjson can't write
        return True
    gap = r"(?:\W|\\[bfnrt]|_)+"
    words = re.compile(gap.join(map(re.escape, head.split())), re.IGNORECASE)
    if len(asked) > MOST_SEARCHED or words.search(asked.decode()) is not None:
        return True
    choices = outcome.reply.choices.values() if outcome.reply is not None else ()
    return any(words.search(f"{one.text}\n{one.reasoning}"[:MOST_SEARCHED]) for one in choices)
