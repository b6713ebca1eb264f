"""What an error of upstream's means: whose fault it is, what it says, what a tier cannot do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine.tier_view import ABILITIES
from mlx_stack_proxy.engine.upstream_answers import (
    completion_in,
    failure_inside,
    failure_of_status,
    quoted_error,
    repetition_inside,
)
from mlx_stack_proxy.engine.verdicts import Failure
from mlx_stack_proxy.engine.wordings import is_overflow, window_in


def body(message: str, **more: Any) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


def failed(status: int, raw: bytes = b"", **more: Any) -> Failure:
    given = {"our_key": False, "our_choice": True, "headers": (), "needs": frozenset(), **more}
    found = failure_of_status(status, given.pop("headers"), raw, **given)
    assert isinstance(found, Failure)
    return found


def inside(text: str, **more: Any) -> Failure:
    found = failure_inside(text, **more)
    assert isinstance(found, Failure)
    return found


REPEATING = "litellm.InternalServerError: The model is repeating the same chunk = travel."
BAD_MODEL = body("400: {'error': 'Invalid model name passed in model=fast'}")
NO_KEY = body("No connected db.", type="no_db_connection")


@pytest.mark.parametrize(
    ("status", "raw", "our_key", "our_choice", "client_fault"),
    [
        # The request itself: always the client's.
        (400, body("messages[0] has no role"), True, True, True),
        (413, b"", True, True, True),
        (422, b"", True, True, True),
        # Upstream's trouble: never.
        (408, b"", False, False, False),
        (409, b"", False, False, False),
        (425, b"", False, False, False),
        (429, body("all_deployments_in_cooldown"), False, False, False),
        (500, body("Connection error"), False, False, False),
        (503, b"", False, False, False),
        # The key: whose it is.
        (401, b"", True, True, False),
        (401, b"", False, True, True),
        (403, b"", True, False, False),
        (403, b"", False, False, True),
        (400, NO_KEY, True, True, False),
        (400, NO_KEY, False, True, True),
        # The model: who chose it.
        (404, b"", False, True, False),
        (404, b"", False, False, True),
        (400, BAD_MODEL, False, True, False),
        (400, BAD_MODEL, False, False, True),
        (400, body("The model `gpt-9` does not exist"), False, True, False),
    ],
)
def test_whose_fault(
    status: int, raw: bytes, our_key: bool, our_choice: bool, client_fault: bool
) -> None:
    found = failed(status, raw, our_key=our_key, our_choice=our_choice)
    assert (found.fault == "client") is client_fault
    assert found.reason == "server_error"
    assert (found.status, found.body) == (status, raw)


ROLES = body("Conversation roles must alternate user/assistant/user/assistant")


@pytest.mark.parametrize(
    ("status", "raw", "about_ours"),
    [
        (404, ROLES, True),  # mlx-lm
        (500, ROLES, True),  # llama.cpp
        (500, body("Jinja Exception: After the optional system message"), True),
        (500, body("Unexpected role 'user' after role 'tool'"), True),  # mistral-common
        (500, body("try an alternative"), False),
        (400, body("bad"), True),
        (422, b"", True),
        (400, BAD_MODEL, False),
        (401, ROLES, False),
        (413, b"", False),
        (429, ROLES, False),
        (500, body("out of memory"), False),
        (503, ROLES, False),
    ],
)
def test_what_may_be_about_words_of_ours(status: int, raw: bytes, about_ours: bool) -> None:
    assert failed(status, raw, words_follow_result=True).may_be_ours is about_ours
    assert not failed(status, raw).may_be_ours, "there were none"


@pytest.mark.parametrize(("raw", "client_fault"), [(ROLES, False), (body("bad"), True)])
def test_what_a_template_says_behind_our_words_is_not_the_client_s_fault(
    raw: bytes, client_fault: bool
) -> None:
    found = failed(400, raw, words_follow_result=True)
    assert found.fault == ("client_or_ours" if client_fault else "ours")
    without = failed(400, raw)
    assert (without.kind, without.fault) == ("refused", "client" if client_fault else "server")


def test_a_stream_that_litellm_ends_for_its_repetition_is_a_loop() -> None:
    found = repetition_inside(REPEATING)
    assert found is not None and found.detector == "generation"
    assert not found.doubt
    assert repetition_inside("litellm.InternalServerError: Connection error.") is None


def test_an_error_inside_an_answer_may_be_about_words_of_ours() -> None:
    text = "Error rendering prompt with jinja template"
    assert inside(text, words_follow_result=True).may_be_ours
    found = completion_in(body(text), words_follow_result=True)
    assert isinstance(found, Failure) and found.may_be_ours
    assert not inside(text).may_be_ours
    assert not inside("out of memory", words_follow_result=True).may_be_ours


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "status 500"),
        (body("out of memory"), "status 500: out of memory"),
        (body("500: out of memory"), "500: out of memory"),
        (b"<html><h1>Bad</h1></html>", "status 500"),
        (b"plain words\nin two lines", "status 500: plain words in two lines"),
        (b'{"detail": "no"}', "status 500: no"),
        (b'{"error": "short"}', "status 500: short"),
        (b'{"error": {"detail": "deep"}}', "status 500: deep"),
        (b'{"error": {"message": null}}', "status 500"),
        (b"[1]", "status 500"),
        (b"\xff\xfe", "status 500: ��"),
    ],
)
def test_what_is_said(raw: bytes, message: str) -> None:
    assert failed(500, raw).message == message


@pytest.mark.parametrize("raw", [body("key=sk-1234 is unknown"), NO_KEY])
def test_what_is_said_of_a_refused_key_never_quotes_it(raw: bytes) -> None:
    found = failed(401, raw)
    assert found.message == "status 401: LiteLLM refused the API key"


@pytest.mark.parametrize(
    "text", ["Incorrect API key sk-abcdef1234", "used Bearer abcdef1234", "bearer abcdef1234 x"]
)
def test_keys_inside_any_message_are_left_out(text: str) -> None:
    for raw in (body(text), text.encode()):
        said = quoted_error(raw)
        assert "abcdef1234" not in said and "…" in said


def test_an_error_inside_an_answer_is_quoted_likewise() -> None:
    said = failure_inside(f"Incorrect API key sk-abcdef1234\n{'and so on ' * 100}").message
    assert "abcdef1234" not in said and "\n" not in said
    assert len(said) < 400


@pytest.mark.parametrize("status", [301, 302, 304, 307, 308])
def test_a_redirect_is_said_to_be_one_and_not_tried_again(status: int) -> None:
    found = failed(status)
    assert found.message == f"status {status}: a redirect, and none is followed"
    assert (found.status, found.fault, found.final) == (status, "server", True)


@given(st.text(min_size=301, alphabet="ab \n"))
def test_a_quotation_is_one_short_line(text: str) -> None:
    said = quoted_error(body(text))
    assert len(said) <= 300 and "\n" not in said


@given(st.binary(max_size=80), st.integers(300, 599))
def test_no_body_raises(raw: bytes, status: int) -> None:
    assert failed(status, raw).message


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (b"2", 2.0),
        (b"0.5", 0.5),
        (b"-1", None),
        (b"1e9", None),
        (b"nan", None),
        (b"Wed, 21 Oct 2026 07:28:00 GMT", None),
        (b"", None),
    ],
)
def test_retry_after(value: bytes, seconds: float | None) -> None:
    headers = ((b"x-other", b"9"), (b"Retry-After", value))
    assert failed(429, headers=headers).retry_after == seconds
    assert failed(429).retry_after is None


# A prompt that is too long, and what a tier cannot do

# How servers say it, each with the window that it names.
WORDINGS = [
    ("This model's maximum context length is 8192 tokens. However, you requested 9000", 8192),
    ("litellm.ContextWindowExceededError: litellm.BadRequestError: too many tokens", None),
    ('{"code": "context_length_exceeded"}', None),
    ("the request exceeds the available context size. try increasing it", None),
    ('{"type":"exceed_context_size_error","n_prompt_tokens":4112,"n_ctx":4096}', 4096),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096", 4096),
    ("prompt is too long: 207310 tokens > 200000 maximum", 200000),
    ("The input token count (40000) exceeds the maximum number of tokens allowed (32768).", 32768),
    ("Trying to keep the first 9000 tokens when context the overflows.", None),
    ("input length exceeds the context length", None),
    ("Prompt (9000 tokens) exceeds context window (8192)", 8192),
]
OTHERS = [
    "Connection error.",
    "max_tokens is too large: 99",
    "Rate limit reached: 30000 tokens per minute",
    "messages: the text of the context was not given",
    "No deployments available for selected model",
    "context deadline exceeded",
]


@pytest.mark.parametrize(("text", "window"), WORDINGS)
def test_an_overflow(text: str, window: int | None) -> None:
    assert is_overflow(text)
    assert window_in(text) == window


@pytest.mark.parametrize("text", OTHERS)
def test_no_overflow(text: str) -> None:
    assert not is_overflow(text)


@pytest.mark.parametrize("status", [400, 413, 500])
def test_it_is_a_failure_of_its_own(status: int) -> None:
    found = failed(status, body(WORDINGS[0][0]))
    assert (found.reason, found.window, found.in_field) == ("context_overflow", 8192, "")
    limited = body("exceeds the maximum number of tokens allowed per minute")
    assert failed(429, limited).reason == "server_error", "a rate limit is none"


@pytest.mark.parametrize(
    ("error", "window", "in_field"),
    [
        ({"message": "too long", "type": "exceed_context_size_error", "n_ctx": 512}, 512, "window"),
        ({"message": "too long", "code": "context_length_exceeded"}, None, "overflow"),
        ({"message": "maximum context length is 100 tokens", "n_ctx": "7"}, None, ""),
        ({"message": 'input_value={"n_ctx": 300}, context_length_exceeded'}, 300, ""),
    ],
)
def test_what_an_error_says_in_its_fields(
    error: dict[str, Any], window: int | None, in_field: str
) -> None:
    found = failed(400, json.dumps({"error": error}).encode())
    assert found.reason == "context_overflow"
    assert found.in_field == in_field
    assert found.window == (window or window_in(error["message"]))


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        ("this model does not support tools", "tools"),
        ("registry.local/m does not support tools", "tools"),
        ("`tools` is not supported by this model", "tools"),
        ("Function calling is not enabled for this model", "tools"),
        ("This model does not support image input", "images"),
        ("image input is not supported - hint: you may need the mmproj", "images"),
        ("response_format is not supported", "response_format"),
        ("messages[0] has no role", ""),
        ("tool_choice must be a string", ""),
    ],
)
def test_what_a_tier_says_it_cannot(message: str, lacks: str) -> None:
    found = failed(400, body(message), needs=frozenset(ABILITIES))
    assert found.lacks == lacks
    assert (found.fault == "client") is (lacks == "")


@pytest.mark.parametrize("status", [400, 500, 501])
def test_what_the_request_does_not_need_cannot_be_what_it_lacks(status: int) -> None:
    found = failed(status, body("this model does not support tools"), needs=frozenset({"images"}))
    assert (found.lacks, found.final) == ("", False)
    assert (found.fault == "client") is (status == 400)
