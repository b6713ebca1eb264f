"""Which headers are passed on, and the proxy's own.

Property tests compare the optimised code with a plain version that looks at one header at a time.
"""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.engine.headers import HOP_BY_HOP, RawHeaders, passed_on
from mlx_stack_proxy.engine.response_headers import MAX_VALUE, encode

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
