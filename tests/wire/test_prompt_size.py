"""The estimate of a prompt's tokens: near the truth for usual text, and never too small."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.wire.prompt_size import (
    BYTES_PER_TOKEN,
    TOKENS_PER_IMAGE,
    TOKENS_PER_MESSAGE,
    estimate_prompt_tokens,
)
from tests.engine.exchanges import ODD
from tests.support.replies import TOOLS, WEATHER


def of(*messages: Any, **more: Any) -> int:
    return estimate_prompt_tokens({"messages": list(messages), **more})


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_text_by_its_bytes() -> None:
    assert of(user("x" * 3500)) == 1000 + TOKENS_PER_MESSAGE
    assert of(user("ü" * 1750)) == 1000 + TOKENS_PER_MESSAGE
    assert of(user([{"type": "text", "text": "x" * 3500}])) == 1000 + TOKENS_PER_MESSAGE


def test_pictures_count_whatever_their_bytes() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 10**6}}
    assert of(user([picture, picture])) == 2 * TOKENS_PER_IMAGE + TOKENS_PER_MESSAGE


def test_calls_and_tools_count() -> None:
    plain = of(user("a"))
    assert of(user("a"), tools=TOOLS) > plain + 20
    assert of({"role": "assistant", "tool_calls": [WEATHER]}) > TOKENS_PER_MESSAGE + 20


@given(st.lists(st.text(), max_size=5))
def test_more_text_is_never_fewer_tokens(texts: list[str]) -> None:
    sizes = [of(*map(user, texts[:count])) for count in range(len(texts) + 1)]
    assert sizes == sorted(sizes)
    assert sizes[-1] >= int(len("".join(texts).encode()) / BYTES_PER_TOKEN)


@given(ODD)
def test_no_body_raises(odd: Any) -> None:
    assert estimate_prompt_tokens({"messages": odd, "tools": odd}) >= 0
