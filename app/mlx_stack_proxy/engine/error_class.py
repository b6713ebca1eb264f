"""Name what went wrong upstream in words that hold nothing of a prompt or a reply.

An error's message may quote the client or the model. So no text is taken out of it, but words of a
fixed set for wordings that servers are known to use, the name of an exception's class, or the
error's ``code`` or ``type`` where these are identifiers.
"""

from __future__ import annotations

import re
from typing import Final

from .upstream_answers import error_in
from .verdicts import Failure, Verdict

MOST_READ: Final = 400  # characters of a message
MOST_BODY: Final = 64 * 1024  # bytes of a body
# What servers say, and what it is called here.
_KNOWN: Final = (
    # PyTorch: "CUDA out of memory. Tried to allocate …"; MLX: "[METAL] Command buffer execution
    # failed: Insufficient Memory (…:kIOGPUCommandBufferCallbackErrorOutOfMemory)"; llama.cpp:
    # "ErrorOutOfDeviceMemory"
    (re.compile(r"out ?of ?(?:device ?)?memory|insufficient memory", re.I), "out of memory"),
    # Ollama, LM Studio and llama-swap, while a model is loaded or can't be
    (
        re.compile(r"\b(?:fail\w*+|error|unable)\b.{0,20} load\w* (?:the )?model", re.I),
        "model not loaded",
    ),
    (re.compile(r"loading model|model is (?:still )?loading", re.I), "model still loading"),
    (
        re.compile(r"connection refused|cannot connect|connect call failed", re.I),
        "connection refused",
    ),
    (re.compile(r"connection reset|server disconnected|broken pipe", re.I), "connection lost"),
    (
        re.compile(r"\bjinja\b|chat.?template|roles? (?:must|should)\b.{0,20} alternate", re.I),
        "chat template",
    ),
    (re.compile(r"rate.?limit", re.I), "rate limit"),
    (re.compile(r"overloaded", re.I), "overloaded"),
)
# What stands before a server's own words: the engine's, and classes that LiteLLM and servers name.
_BEFORE = re.compile(r"(?:an error inside the answer|no chat completion, but|status \d{3}): ")
_CLASS = re.compile(
    r"(?:[a-z_]{1,40}\.){0,5}([A-Z][A-Za-z]{1,40}(?:Error|Exception|Timeout))(?::| -) ?"
)
# LiteLLM's classes say only what the status says.
_OF_STATUS = re.compile(
    r"(?:API|Api|InternalServer|BadRequest|ServiceUnavailable|BadGateway|OpenAI|Openai|HTTP)\w*"
)
_IDENTIFIER = re.compile(r"(?=.{1,60}\Z)[a-z]+(?:_[a-z]+){1,5}", re.S)


def error_class(verdict: Verdict | None) -> str:
    """Return what upstream named as the error; "" if it named nothing that is known to be safe.

    Without a connection it is why there is none, in our own words.
    """
    if isinstance(verdict, Failure) and verdict.kind == "unreachable":
        return verdict.message
    if not isinstance(verdict, Failure) or verdict.reason != "server_error":
        return ""
    text = verdict.message[:MOST_READ]
    for pattern, words in _KNOWN:
        if pattern.search(text):
            return words
    return _class_before(text) or _code(verdict.body)


def _class_before(text: str) -> str:
    """Return the last of the classes that stand before a message: no other place is safe."""
    before = _BEFORE.match(text)
    end, name = before.end() if before else 0, ""
    while match := _CLASS.match(text, end):
        name = name if _OF_STATUS.fullmatch(match[1]) else match[1]
        end = match.end()
    return name


def _code(body: bytes) -> str:
    """Return the error's ``code`` or ``type`` if it is an identifier; else ""."""
    if not body or len(body) > MOST_BODY:
        return ""
    error = error_in(body)
    fields = (error.get("code"), error.get("type"))
    found = (one for one in fields if isinstance(one, str) and _IDENTIFIER.fullmatch(one))
    return next(found, "")
