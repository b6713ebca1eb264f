"""Which headers are passed on, and the proxy's own.

Property tests compare the optimised code with a plain version that looks at one header at a time.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.driver.response_headers import MAX_VALUE, encode
from mlx_stack_proxy.engine.headers import (
    HOP_BY_HOP,
    KEY_HEADERS,
    RawHeaders,
    client_key,
    passed_on,
)

NAMES = [*sorted(HOP_BY_HOP), b"accept", b"x-own", b"cookie", b"x-mlx-stack-tier"]
VALUES = [b"", b"close", b"keep-alive", b"X-Own, close", b"accept ,, x-own", b"cookie", b"te"]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=6))
def test_what_goes_on(headers: RawHeaders) -> None:
    dropped = HOP_BY_HOP | {b"cookie"}
    named = {
        part.strip().lower()
        for name, value in headers
        for part in value.split(b",")
        if name == b"connection"
    }
    assert passed_on(headers, dropped) == [
        header
        for header in headers
        if header[0] not in dropped | named and not header[0].startswith(b"x-mlx-stack-")
    ]


@given(
    st.dictionaries(
        st.sampled_from(["Tier", "Loop", "Session"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
        | st.sampled_from(["a" * 300, "a" * (MAX_VALUE + 1), "é" * 300, "\t", "\x7f", "\u2028"]),
    )
)
def test_our_own(values: dict[str, str]) -> None:
    said = {**values, "Request-Id": "req_1"}
    expected = [
        (
            f"x-mlx-stack-{name}".lower().encode(),
            re.sub(r"[\x00-\x08\x0a-\x1f\x7f]", "?", value[:MAX_VALUE]).encode(
                "latin-1", "replace"
            ),
        )
        for name, value in said.items()
    ]
    assert encode(said) == [*expected, (b"x-request-id", b"req_1")]


# The client's key

WRITTEN = [
    *(("authorization", value) for value in (
        "Bearer sk-1", "bearer sk-1", "Bearer Bearer sk-1", "Basic sk-1", "Bearer sk-Bearer 1",
        "AWS4-HMAC-SHA256 Credential=Bearer sk-1/20261128/r/s/aws4_request, Signature=x",
        "AWS4-HMAC-SHA256 Credential=no, Credential=Bearer sk-1/x, Signature=x",
        "AWS4-HMAC-SHA256 Credential=sk-1/20261128/r/s, Signature=x",
    )),
    *((name, "sk-1") for name in KEY_HEADERS if name != "authorization"),
    ("x-litellm-api-key", "Bearer sk-1"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRITTEN)
def test_a_key_is_read_wherever_litellm_looks_for_one(name: str, value: str) -> None:
    assert client_key({"host": "x", name: value}) == "sk-1"


def test_of_several_keys_it_is_litellms_choice() -> None:
    headers = {name: f"Bearer {name}" for name in reversed(KEY_HEADERS)}
    for name in KEY_HEADERS:
        assert client_key(headers) == name
        del headers[name]
    assert client_key(headers) == ""
    assert client_key({"authorization": "sk-without-scheme", "x-api-key": "k"}) == "k"


def test_it_is_the_key_that_the_installed_litellm_takes() -> None:
    auth = pytest.importorskip("litellm.proxy.auth.user_api_key_auth")
    types = pytest.importorskip("litellm.proxy._types")
    theirs = {one.value.lower() for one in types.SpecialHeaders}
    assert {name for name in theirs if not name.startswith("x-mcp-")} == set(KEY_HEADERS)
    every = [*WRITTEN, *((name, f"sk-{name}") for name in KEY_HEADERS[2:])]
    for first, second in ((one, other) for one in every for other in every):
        headers = dict([second, first])
        key, _ = auth.get_api_key(*_litellms_arguments(headers), None, "/v1/embeddings", None)
        assert client_key(headers) == key, headers


def _litellms_arguments(headers: dict[str, str]) -> list[Any]:
    custom, authorization, *others = [headers.get(name) for name in KEY_HEADERS]
    return [custom, authorization or "", *others]
