"""Servers' error wordings, each with its source: no other module knows them.

The patterns for a prompt that is too long cover OpenAI, LiteLLM, vLLM, llama.cpp, LM Studio,
Ollama, Anthropic and Gemini, and the MLX servers that have a limit at all (mlx-lm's has none).

An error's message may quote the client or the model. So :func:`error_class` returns none of its
text, but words of a fixed set, an exception's class name, or the error's ``code`` or ``type`` if
these are identifiers.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

MAX_READ = 4000  # characters of an answer that are searched
# LiteLLM's words for an unknown key when it has no database to look it up in.
WRONG_KEY = "no_db_connection"
UNKNOWN_MODEL = re.compile(
    r"invalid model name|model_not_found|unknown model|\bmodel\b[^.]{0,80}\bdoes not exist"
)
_CANNOT = (
    r"[^.]{0,80}?(?:not supported|unsupported|isn'?t supported|aren'?t supported|not available|"
    r"not enabled)"
)
_DOES_NOT = r"(?:does not|doesn'?t|not) (?:currently )?(?:support|accept)[^.]{0,40}?"
LACKING = {
    "tools": re.compile(
        rf"{_DOES_NOT}\b(?:tools?|functions?)\b"
        rf"|\b(?:tools?|functions?)(?: call(?:s|ing)?| use)?\b{_CANNOT}"
    ),
    "images": re.compile(
        rf"{_DOES_NOT}\b(?:images?|vision|multimodal)|\b(?:images?|vision|image_url)\b{_CANNOT}"
        r"|not a (?:multimodal|vision) model"
    ),
    "response_format": re.compile(
        rf"{_DOES_NOT}\b(?:response_format|json_schema|structured outputs?)"
        rf"|\b(?:response_format|json_schema|structured outputs?)\b{_CANNOT}"
    ),
}
# Errors of chat templates, and of their servers, about a role in a place that they don't accept.
OF_TEMPLATE = re.compile(
    # Mixtral's: "Conversation roles must alternate user/assistant/user/assistant/..."
    # (github.com/infiniflow/ragflow/issues/11021)
    r"\bjinja\b|\bchat.?template|\broles? (?:must|should)\b|\balternat(?:e|ing)\b"
    r"|\bunexpected role\b"
)
OF_IMAGE_PLACE = re.compile(
    # OpenAI: "Image URLs are only allowed for messages with role 'user', but this message with role
    # 'tool' contains an image URL."
    r"\bimages?\b[^.]{0,60}\b(?:only|not|cannot|can't)\b[^.]{0,60}\b(?:roles?|user|tool)\b"
)
# Errors that another server may not have: the limits of this server's template or grammar.
SERVERS_OWN = re.compile(
    OF_TEMPLATE.pattern
    # Chat templates: Qwen3.5's (llama.cpp's issue 27367), Gemma's "System role not supported"
    # (sglang's issues 892, 1342)
    + r"|\bsystem (?:message|role|prompt)s?\b[^.]{0,40}\b(?:must|should|only|not)\b"
    # LM Studio's issue 2220: "Failed to initialize samplers: failed to parse grammar"; vLLM's issue
    # 26421: "The provided JSON schema contains features not supported by xgrammar"; "Grammar error:
    # Unknown format: uri" (github.com/z-lab/paroquant/issues/31); llama.cpp's issue 19051
    + r"|\b\w{0,12}grammars?\b|\bsamplers\b"
)
# Errors of servers that could not parse the model's reply as a tool call.
OF_REPLY = re.compile(
    r"error parsing tool call"  # Ollama's issues 11704, 12884, 17638
    r"|failed to parse input at pos \d"  # llama.cpp's issue 20761
    # LM Studio's issues 942, 1358, 1528; llama.cpp says nearly so of a client's history
    r"|failed to parse tool call:|failed to generate a tool call"
    # Groq (github.com/groq/groq-typescript/issues/28), also through LiteLLM
    # (github.com/huggingface/smolagents/issues/1119)
    r"|tool_use_failed|failed to call a function"
)
DETAIL = re.compile(r"\berr(?:or)?\b ?[=:] ?([^\n]{1,200})")
# The error of LiteLLM's `raise_on_model_repetition`, after 100 equal pieces of a stream.
REPETITION = "the model is repeating the same chunk"
_OVERFLOW = re.compile(
    r"context_length_exceeded|contextwindowexceeded|context_window_exceeded|exceed_context_size"
    r"|context (?:length|window|limit|size)[^.]{0,40}\bexceed"
    r"|exceed[^.]{0,60}\bcontext (?:length|window|limit|size)"
    r"|maximum context (?:length|limit|window)"
    r"|maximum model length"
    r"|(?:longer|larger|greater) than the (?:model'?s? )?(?:maximum )?context"
    r"|prompt is too long|prompt too long|input is too long"
    r"|prompt \(\d+ tokens?\) exceeds"
    r"|prompt is too big compared to kv size"  # ik_llama.cpp's issue 1619, llama-box's 25
    r"|exceeds the maximum number of tokens allowed"
    r"|input tokens exceed the configured limit"
    r"|context the overflows|context overflow"
    r"|context shift is disabled"  # llama.cpp, once the window is full (its pull request 13577)
    r"|n_keep \(?\d+\)? ?>= n_ctx"  # LM Studio: "Cannot truncate prompt with n_keep (1) >= n_ctx"
    # TGI: "`inputs` tokens + `max_new_tokens` must be <= 4096"
    r"|`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be <=|have less than) \d+"
)
# Values of an error's `code` or `type`: OpenAI's, llama.cpp's.
OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_WINDOW = (
    # Anthropic's: "… exceed context limit: 188240 + 21333 > 200000"
    re.compile(r"\d \+ \d+ > (\d{3,8})"),
    re.compile(r"must (?:be <=|have less than) (\d{3,8})"),  # TGI
    re.compile(
        r"(?:maximum|max|model'?s?|available)[^.\d]{0,40}?(?:context|model)[^.\d]{0,20}?"
        r"(?:length|window|limit|size)[^\d]{0,20}?(\d{3,8})"
    ),
    re.compile(r"\bn_ctx\D{0,6}(\d{3,8})"),
    re.compile(r"tokens? (?:>|exceeds?)[^\d]{0,60}?(\d{3,8})"),
    re.compile(r"tokens allowed \(?(\d{3,8})"),
    re.compile(r"context (?:length|window|limit|size) (?:of |is |= ?|\()(?:only )?(\d{3,8})"),
)
_MAX_NAMED: Final = 400  # characters of a message that are searched for a name
_MAX_BODY: Final = 64 * 1024  # bytes of a body
# What servers say, and our term for it.
_KNOWN: Final = (
    # PyTorch: "CUDA out of memory. Tried to allocate …"; MLX: "[METAL] Command buffer execution
    # failed: Insufficient Memory (…:kIOGPUCommandBufferCallbackErrorOutOfMemory)"; llama.cpp:
    # "ErrorOutOfDeviceMemory"
    (re.compile(r"out ?of ?(?:device ?)?memory|insufficient memory", re.I), "out of memory"),
    # Ollama, LM Studio and llama-swap, while a model loads or fails to load
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
# What precedes a server's own words: the engine's, and class names from LiteLLM and servers.
_BEFORE = re.compile(r"(?:an error inside the answer|no chat completion, but|status \d{3}): ")
_CLASS = re.compile(
    r"(?:[a-z_]{1,40}\.){0,5}([A-Z][A-Za-z]{1,40}(?:Error|Exception|Timeout))(?::| -) ?"
)
# LiteLLM's classes that only repeat the status.
_STATUS_CLASS = re.compile(
    r"(?:API|Api|InternalServer|BadRequest|ServiceUnavailable|BadGateway|OpenAI|Openai|HTTP)\w*"
)
_IDENTIFIER = re.compile(r"(?=.{1,60}\Z)[a-z]+(?:_[a-z]+){1,5}", re.S)


def is_overflow(text: str) -> bool:
    """Whether an error's text, or its type, says that the prompt does not fit."""
    return _OVERFLOW.search(text[:MAX_READ].lower()) is not None


def window_in(text: str) -> int | None:
    """Return the context window in tokens from an overflow error; None: it has none."""
    lower = text[:MAX_READ].lower().replace(",", "")
    for pattern in _WINDOW:
        if match := pattern.search(lower):
            return int(match[1])
    return None


def error_class(message: str, body: bytes) -> str:
    """Return a server's name for the error; "" if it has none that is known to be safe."""
    text = message[:_MAX_NAMED]
    for pattern, words in _KNOWN:
        if pattern.search(text):
            return words
    return _class_before(text) or _code(body)


def _class_before(text: str) -> str:
    """Return the last class name before a message: no other place is safe."""
    before = _BEFORE.match(text)
    end, name = before.end() if before else 0, ""
    while match := _CLASS.match(text, end):
        name = name if _STATUS_CLASS.fullmatch(match[1]) else match[1]
        end = match.end()
    return name


def _code(body: bytes) -> str:
    """Return the error's ``code`` or ``type`` if it is an identifier; else ""."""
    if not body or len(body) > _MAX_BODY:
        return ""
    error = error_in(body)
    fields = (error.get("code"), error.get("type"))
    found = (one for one in fields if isinstance(one, str) and _IDENTIFIER.fullmatch(one))
    return next(found, "")


def error_in(body: bytes) -> dict[str, Any]:
    """Return the error object in an answer, or the answer itself if it is one; {} if neither."""
    try:
        parsed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    return error if isinstance(error, dict) else {}
