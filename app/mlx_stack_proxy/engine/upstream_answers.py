"""Interprets LiteLLM's answers: who is at fault for an error, by status and ``wordings.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson
from msgspec.structs import replace

from ..wire.json_text import decode
from .verdicts import CallFailure, Failure, Fault, InvalidToolCall, LoopDetected
from .wordings import (
    DETAIL,
    LACKING,
    MAX_READ,
    OF_IMAGE_PLACE,
    OF_REPLY,
    OF_TEMPLATE,
    OVERFLOW_CODES,
    REPETITION,
    SERVERS_OWN,
    UNKNOWN_MODEL,
    WRONG_KEY,
    error_in,
    is_overflow,
    window_in,
)

_ABOUT_ABILITIES = frozenset({400, 415, 422, 500, 501})
_RETRYABLE = frozenset({408, 409, 425, 429})
# Who is at fault for a refusal, by whether it may be the client and whether it may be us.
_FAULTS: Mapping[tuple[bool, bool], Fault] = {
    (True, False): "client",
    (False, True): "ours",
    (True, True): "client_or_ours",
}
_MAX_QUOTED = 300
# LiteLLM and clouds quote API keys in errors, which are not passed on.
_SECRET = re.compile(r"\bsk-[\w-]{4,}|(?<=[Bb]earer )\S+")


def _fields_of(body: bytes) -> tuple[int | None, bool]:
    """Return the window from an error's field, and whether the error's code is an overflow's.

    These fields never quote the client.
    """
    error = error_in(body)
    window = error.get("n_ctx")  # llama.cpp
    coded = not OVERFLOW_CODES.isdisjoint(map(str, (error.get("code"), error.get("type"))))
    return (window if type(window) is int and window > 0 else None), coded


def failure_of_status(
    status: int,
    headers: tuple[tuple[bytes, bytes], ...],
    body: bytes,
    *,
    our_key: bool,
    our_choice: bool,
    needs: frozenset[str],
    words_follow_result: bool = False,
) -> Failure | InvalidToolCall:
    """Return the failure in an answer of status 300 or above.

    ``our_key``: the API key was ours. ``our_choice``: we chose the model. If so, an answer about
    the key or the model is the tier's failure, not the client's. ``needs``: the features that the
    request needs (``tier_view.needs``), one of which the model may lack.
    ``words_follow_result``: our words followed a tool result, where a strict chat template
    refuses them.
    """
    message = quoted_error(body) or f"status {status}"
    text = body[:MAX_READ].decode("utf-8", "replace")
    failure = Failure("server_error", message, status=status, headers=headers, body=body)
    if status != 429 and is_overflow(text):  # a rate limit mentions tokens, too
        window, coded = _fields_of(body)
        return replace(
            failure,
            kind="context_overflow",
            message=f"the prompt does not fit: {message}",
            window=window or window_in(text),
            in_field="window" if window is not None else "overflow" if coded else "",
        )
    if status in _ABOUT_ABILITIES and "tools" in needs and OF_REPLY.search(text.lower()):
        return _unread_call(text)
    failure = replace(failure, message=_with(status, message), retry_after=_retry_after(headers))
    if status < 400:  # to https, or to another path than that of `upstream.base_url`
        sentence = _with(status, "a redirect, and none is followed")
        return replace(failure, message=sentence, final=True)
    if status in (401, 403) or WRONG_KEY in text:  # LiteLLM's message may quote the key
        sentence = _with(status, "LiteLLM refused the API key")
        failure = replace(failure, message=sentence, final=True)
        return failure if our_key else replace(failure, kind="refused", fault="client")
    return _with_fault(failure, message.lower(), needs, our_choice, words_follow_result)


def _with_fault(
    failure: Failure,
    message: str,
    needs: frozenset[str],
    our_choice: bool,
    words_follow_result: bool,
) -> Failure:
    """Return the failure with who is at fault, by its status and its text in lower case."""
    status = failure.status or 0
    place = "images" in needs and OF_IMAGE_PLACE.search(message) is not None
    about_abilities = status in _ABOUT_ABILITIES and not place
    lacking = [able for able, said in LACKING.items() if able in needs and said.search(message)]
    lacks = lacking[0] if lacking and about_abilities else ""
    unknown_model = status == 404 or (status == 400 and UNKNOWN_MODEL.search(message) is not None)
    final = bool(lacks) or unknown_model
    about_ours = words_follow_result and not lacks and _is_about_messages(status, message)
    client_fault = not our_choice if final else status < 500 and status not in _RETRYABLE
    own = status in (*_ABOUT_ABILITIES, 404) and (place or SERVERS_OWN.search(message) is not None)
    if about_ours and OF_TEMPLATE.search(message):  # otherwise the client may be at fault
        client_fault = False
    elif own and not final:
        return replace(failure, kind="refused")
    failure = replace(failure, final=final, lacks=lacks)
    if not (client_fault or about_ours):
        return failure
    fault = _FAULTS[client_fault, about_ours]
    return replace(failure, kind="refused", fault=fault)


def _unread_call(text: str) -> InvalidToolCall:
    """Return the verdict on a tool call that the model's server could not parse."""
    found = DETAIL.search(quoted_error(text.encode()) or text)
    detail = f": {_one_line(found[1])}" if found else ""
    error = f"the tool call could not be read{detail}"
    return InvalidToolCall((CallFailure("", "invalid_json", error),))


def _with(status: int, message: str) -> str:
    return message if str(status) in message else f"status {status}: {message}"


def _is_about_messages(status: int, message: str) -> bool:
    """Whether an answer may be about the request's messages.

    mlx-lm uses 404 for these, llama.cpp 500, others 400 or 422.
    """
    if UNKNOWN_MODEL.search(message):
        return False
    return status in (400, 404, 422) or (status == 500 and OF_TEMPLATE.search(message) is not None)


def completion_in(
    body: bytes, *, words_follow_result: bool = False, tools: bool = False
) -> dict[str, Any] | Failure | InvalidToolCall:
    """Return the chat completion in an answer of status 200, or the failure in it.

    ``words_follow_result``: see :func:`failure_of_status`. ``tools``: tools were offered.
    """
    try:
        completion, _ = decode(body, huge=True)
    except ValueError:
        return Failure("server_error", "upstream's answer is not JSON", status=200)
    if not isinstance(completion, dict) or not completion.get("choices"):
        message = f"no chat completion, but: {quoted_error(body)}"
        return failure_inside(message, words_follow_result=words_follow_result, tools=tools)
    return completion


def repetition_inside(error_text: str) -> LoopDetected | None:
    """Return the loop for which LiteLLM ended a stream with this error; None: another error."""
    if REPETITION not in error_text.lower():
        return None
    return LoopDetected("generation", 100, f"LiteLLM ended the reply: {_one_line(error_text)}")


def failure_inside(
    error_text: str, *, words_follow_result: bool = False, tools: bool = False
) -> Failure | InvalidToolCall:
    """Return the failure for an error in an answer of status 200.

    ``words_follow_result``: see :func:`failure_of_status`. ``tools``: tools were offered.
    """
    line = _one_line(error_text)
    if tools and OF_REPLY.search(error_text[:MAX_READ].lower()):
        return _unread_call(error_text)
    if is_overflow(error_text):
        window = window_in(error_text)
        return Failure("context_overflow", f"the prompt does not fit: {line}", window=window)
    about_ours = words_follow_result and OF_TEMPLATE.search(error_text.lower()) is not None
    failure = Failure("server_error", f"an error inside the answer: {line}", status=200)
    return replace(failure, kind="refused", fault="ours") if about_ours else failure


def quoted_error(body: bytes) -> str:
    """Return an error body's message, shortened to one line; "" if there is none."""
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
            except ValueError:  # a date: rare, and only advice
                return None
            return seconds if 0 <= seconds < 86_400 else None
    return None
