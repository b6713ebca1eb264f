"""Interprets LiteLLM's answers: whose fault an error status is, and what the error's text says.

The patterns for a prompt that is too long are from the wordings of OpenAI, LiteLLM, vLLM,
llama.cpp, LM Studio, Ollama, Anthropic and Gemini, and of the MLX servers that have a limit at all
(mlx-lm's own has none).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from ..wire.json_text import decode
from .verdicts import CallFailure, Failure, Fault, InvalidToolCall, LoopDetected

_ABOUT_ABILITIES = frozenset({400, 415, 422, 500, 501})
_RETRYABLE = frozenset({408, 409, 425, 429})
# Whose fault a refusal is, by whether it may be the client's and whether it may be ours.
_FAULTS: Mapping[tuple[bool, bool], Fault] = {
    (True, False): "client",
    (False, True): "ours",
    (True, True): "client_or_ours",
}
# LiteLLM's own words for "this key is unknown", when it has no database to look it up in.
_WRONG_KEY = "no_db_connection"
_UNKNOWN_MODEL = re.compile(
    r"invalid model name|model_not_found|unknown model|\bmodel\b[^.]{0,80}\bdoes not exist"
)
_CANNOT = (
    r"[^.]{0,80}?(?:not supported|unsupported|isn'?t supported|aren'?t supported|not available|"
    r"not enabled)"
)
_DOES_NOT = r"(?:does not|doesn'?t|not) (?:currently )?(?:support|accept)[^.]{0,40}?"
_LACKING = {
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
# What chat templates, and the servers that run them, say of roles in a place they don't accept.
_OF_TEMPLATE = re.compile(
    # Mixtral's: "Conversation roles must alternate user/assistant/user/assistant/..."
    # (github.com/infiniflow/ragflow/issues/11021)
    r"\bjinja\b|\bchat.?template|\broles? (?:must|should)\b|\balternat(?:e|ing)\b"
    r"|\bunexpected role\b"
)
_OF_IMAGE_PLACE = re.compile(
    # OpenAI: "Image URLs are only allowed for messages with role 'user', but this message with role
    # 'tool' contains an image URL."
    r"\bimages?\b[^.]{0,60}\b(?:only|not|cannot|can't)\b[^.]{0,60}\b(?:roles?|user|tool)\b"
)
# A request that another server may take: its template's or grammar's limits are this server's own.
_SERVERS_OWN = re.compile(
    _OF_TEMPLATE.pattern
    # Chat templates: Qwen3.5's (llama.cpp's issue 27367), Gemma's "System role not supported"
    # (sglang's issues 892, 1342)
    + r"|\bsystem (?:message|role|prompt)s?\b[^.]{0,40}\b(?:must|should|only|not)\b"
    # LM Studio's issue 2220: "Failed to initialize samplers: failed to parse grammar"; vLLM's issue
    # 26421: "The provided JSON schema contains features not supported by xgrammar"; "Grammar error:
    # Unknown format: uri" (github.com/z-lab/paroquant/issues/31); llama.cpp's issue 19051
    + r"|\b\w{0,12}grammars?\b|\bsamplers\b"
)
# What servers say of a reply of the model's that they could not read as a tool call.
_OF_REPLY = re.compile(
    r"error parsing tool call"  # Ollama's issues 11704, 12884, 17638
    r"|failed to parse input at pos \d"  # llama.cpp's issue 20761
    # LM Studio's issues 942, 1358, 1528; llama.cpp says nearly so of a client's history
    r"|failed to parse tool call:|failed to generate a tool call"
    # Groq (github.com/groq/groq-typescript/issues/28), also through LiteLLM
    # (github.com/huggingface/smolagents/issues/1119)
    r"|tool_use_failed|failed to call a function"
)
_DETAIL = re.compile(r"\berr(?:or)?\b ?[=:] ?([^\n]{1,200})")
# LiteLLM's `raise_on_model_repetition` says so after 100 equal pieces of a stream.
_REPETITION = "the model is repeating the same chunk"
_OVERFLOW = re.compile(
    r"context_length_exceeded|contextwindowexceeded|context_window_exceeded|exceed_context_size"
    r"|context (?:length|window|limit|size)[^.]{0,40}\bexceed"
    r"|exceed[^.]{0,60}\bcontext (?:length|window|limit|size)"
    r"|maximum context (?:length|limit|window)"
    r"|maximum model length"
    r"|(?:longer|larger|greater) than the (?:model'?s? )?(?:maximum )?context"
    r"|prompt is too long|prompt too long|input is too long"
    r"|prompt \(\d+ tokens?\) exceeds"
    r"|exceeds the maximum number of tokens allowed"
    r"|input tokens exceed the configured limit"
    r"|context the overflows|context overflow"
    r"|context shift is disabled"  # llama.cpp, once the window is full (its pull request 13577)
    r"|n_keep \(?\d+\)? ?>= n_ctx"  # LM Studio: "Cannot truncate prompt with n_keep (1) >= n_ctx"
    # TGI: "`inputs` tokens + `max_new_tokens` must be <= 4096"
    r"|`inputs` (?:tokens \+ `max_new_tokens` )?must (?:be <=|have less than) \d+"
)
# Values of an error's `code` or `type`: OpenAI's, llama.cpp's.
_OVERFLOW_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
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
MAX_READ = 4000  # characters of an answer that are searched
_MAX_QUOTED = 300
# LiteLLM and clouds quote API keys in their errors; these are not passed on.
_SECRET = re.compile(r"\bsk-[\w-]{4,}|(?<=[Bb]earer )\S+")


def is_overflow(text: str) -> bool:
    """Whether an error's text, or its type, says that the prompt does not fit."""
    return _OVERFLOW.search(text[:MAX_READ].lower()) is not None


def window_in(text: str) -> int | None:
    """Return the context window in tokens that an overflow error names; None: it names none."""
    lower = text[:MAX_READ].lower().replace(",", "")
    for pattern in _WINDOW:
        if match := pattern.search(lower):
            return int(match[1])
    return None


def _fields_of(body: bytes) -> tuple[int | None, bool]:
    """Return the window that an error has as a field, and whether its code speaks of an overflow.

    A client's words that the error quotes are never in these fields.
    """
    error = error_in(body)
    window = error.get("n_ctx")  # llama.cpp
    coded = not _OVERFLOW_CODES.isdisjoint(map(str, (error.get("code"), error.get("type"))))
    return (window if type(window) is int and window > 0 else None), coded


def failure_of_status(
    status: int,
    headers: tuple[tuple[bytes, bytes], ...],
    body: bytes,
    *,
    our_key: bool,
    our_choice: bool,
    needs: frozenset[str],
    speaks_after_result: bool = False,
) -> Failure | InvalidToolCall:
    """Return the failure that an answer reports, of status 300 and above.

    ``our_key``: the API key was ours. ``our_choice``: we chose the model. If so, an answer about
    the key or the model is the tier's failure, not the client's. ``needs``: the abilities that the
    request asks for (``tier_view.needs``), one of which the model may lack.
    ``speaks_after_result``: our words stood after a tool result, where a strict chat template
    takes none.
    """
    message = quoted_error(body) or f"status {status}"
    text = body[:MAX_READ].decode("utf-8", "replace")
    failure = Failure("server_error", message, status=status, headers=headers, body=body)
    if status != 429 and is_overflow(text):  # a rate limit speaks of tokens, too
        window, coded = _fields_of(body)
        return replace(
            failure,
            kind="context_overflow",
            message=f"the prompt does not fit: {message}",
            window=window or window_in(text),
            in_field="window" if window is not None else "overflow" if coded else "",
        )
    if status in _ABOUT_ABILITIES and "tools" in needs and _OF_REPLY.search(text.lower()):
        return _unread_call(text)
    failure = replace(failure, message=_with(status, message), retry_after=_retry_after(headers))
    if status < 400:  # a redirect, to https or to another path than in `upstream.base_url`
        sentence = _with(status, "a redirect, and none is followed")
        return replace(failure, message=sentence, final=True)
    if status in (401, 403) or _WRONG_KEY in text:  # LiteLLM's message may quote the key
        sentence = _with(status, "LiteLLM refused the API key")
        failure = replace(failure, message=sentence, final=True)
        return failure if our_key else replace(failure, kind="refused", fault="client")
    return _with_fault(failure, message.lower(), needs, our_choice, speaks_after_result)


def _with_fault(
    failure: Failure,
    message: str,
    needs: frozenset[str],
    our_choice: bool,
    speaks_after_result: bool,
) -> Failure:
    """Return the failure with whose fault it is, by its status and its words in lower case."""
    status = failure.status or 0
    place = "images" in needs and _OF_IMAGE_PLACE.search(message) is not None
    lacks = _lacking(message, needs) if status in _ABOUT_ABILITIES and not place else ""
    final = bool(lacks) or _is_about_model(status, message)
    about_ours = speaks_after_result and not lacks and _is_about_messages(status, message)
    client_fault = not our_choice if final else status < 500 and status not in _RETRYABLE
    own = status in (*_ABOUT_ABILITIES, 404) and (place or _SERVERS_OWN.search(message) is not None)
    if about_ours and _OF_TEMPLATE.search(message):  # otherwise the client may be to blame
        client_fault = False
    elif own and not final:
        return replace(failure, kind="refused")
    failure = replace(failure, final=final, lacks=lacks)
    if not (client_fault or about_ours):
        return failure
    fault = _FAULTS[client_fault, about_ours]
    return replace(failure, kind="refused", fault=fault)


def _unread_call(text: str) -> InvalidToolCall:
    """Return the verdict on a tool call of the model's that its server could not read."""
    found = _DETAIL.search(quoted_error(text.encode()) or text)
    detail = f": {_one_line(found[1])}" if found else ""
    error = f"the tool call could not be read{detail}"
    return InvalidToolCall((CallFailure("", "invalid_json", error),))


def _is_about_model(status: int, message: str) -> bool:
    return status == 404 or (status == 400 and _UNKNOWN_MODEL.search(message) is not None)


def _with(status: int, message: str) -> str:
    return message if str(status) in message else f"status {status}: {message}"


def _is_about_messages(status: int, message: str) -> bool:
    """Whether an answer may be about the messages of the request.

    mlx-lm says so with 404, llama.cpp with 500, others with 400 or 422.
    """
    if _UNKNOWN_MODEL.search(message):
        return False
    return status in (400, 404, 422) or (status == 500 and _OF_TEMPLATE.search(message) is not None)


def _lacking(message: str, needs: frozenset[str]) -> str:
    """Return the needed ability that the model lacks by an error's words; "" if none."""
    for ability, pattern in _LACKING.items():
        if ability in needs and pattern.search(message):
            return ability
    return ""


def completion_in(
    body: bytes, *, speaks_after_result: bool = False, tools: bool = False
) -> dict[str, Any] | Failure | InvalidToolCall:
    """Return the chat completion in a whole answer of status 200, or the failure in it.

    ``speaks_after_result``: as in :func:`failure_of_status`. ``tools``: tools were offered.
    """
    try:
        completion, _ = decode(body, huge=True)
    except ValueError:
        return Failure("server_error", "upstream's answer is not JSON", status=200)
    if not isinstance(completion, dict) or not completion.get("choices"):
        message = f"no chat completion, but: {quoted_error(body)}"
        return failure_inside(message, speaks_after_result=speaks_after_result, tools=tools)
    return completion


def repetition_inside(error_text: str) -> LoopDetected | None:
    """Return the loop for which LiteLLM ended a stream with this error; None: another error."""
    if _REPETITION not in error_text.lower():
        return None
    return LoopDetected("generation", 100, f"LiteLLM ended the reply: {_one_line(error_text)}")


def failure_inside(
    error_text: str, *, speaks_after_result: bool = False, tools: bool = False
) -> Failure | InvalidToolCall:
    """Return the failure of an error inside an answer of status 200.

    ``speaks_after_result``: as in :func:`failure_of_status`. ``tools``: tools were offered.
    """
    line = _one_line(error_text)
    if tools and _OF_REPLY.search(error_text[:MAX_READ].lower()):
        return _unread_call(error_text)
    if is_overflow(error_text):
        window = window_in(error_text)
        return Failure("context_overflow", f"the prompt does not fit: {line}", window=window)
    about_ours = speaks_after_result and _OF_TEMPLATE.search(error_text.lower()) is not None
    failure = Failure("server_error", f"an error inside the answer: {line}", status=200)
    return replace(failure, kind="refused", fault="ours") if about_ours else failure


def error_in(body: bytes) -> dict[str, Any]:
    """Return the error object of an answer, or the object that it is; empty if there is none."""
    try:
        parsed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    return error if isinstance(error, dict) else {}


def quoted_error(body: bytes) -> str:
    """Return the message in an error body, shortened to one line; "" if there is none."""
    try:
        parsed: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = body[:_MAX_QUOTED].decode("utf-8", "replace")
        return "" if text.lstrip().startswith("<") else _one_line(text)
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else parsed
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or ""
    return _one_line(error) if isinstance(error, str) else ""


def _one_line(text: str) -> str:
    line = _SECRET.sub("…", " ".join(text.split()))
    return line if len(line) <= _MAX_QUOTED else line[: _MAX_QUOTED - 1] + "…"


def _retry_after(headers: tuple[tuple[bytes, bytes], ...]) -> float | None:
    for name, value in headers:
        if name.lower() == b"retry-after":
            try:
                seconds = float(value)
            except ValueError:  # the date form: rare, and only advice
                return None
            return seconds if 0 <= seconds < 86_400 else None
    return None
