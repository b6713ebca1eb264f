"""The usage of replies that pass through."""

from __future__ import annotations

import pytest

from app.core.usage_tail import MAX_TAIL, UsageTail

BODIES = [
    (b'{"data": [], "usage": {"prompt_tokens": 8, "total_tokens": 8}}', 8),
    (b'{"usage": {"input_tokens": 5, "output_tokens": 7, "total_tokens": 12}}', 12),
    (b'data: {"usage": {"prompt_tokens": 5, "completion_tokens": 2}}\n\ndata: [DONE]\n\n', 7),
    (b'data: {"response": {"usage": {"input_tokens": 3, "output_tokens": 4}}}\n\n', 7),
    (b'{"text": "say \\"usage\\": {}", "usage": {"total_tokens": 9}}', 9),
    (b'{"usage": {"total_tokens": 9}, "text": "\\"usage\\""}', 9),
    (b'{"usage": null}', 0),
    (b'{"usage": {"total_tokens": "many"}}', 0),
    (b'{"usage": {"total_tok', 0),
    (b"\x89PNG", 0),
    (b"", 0),
]


@pytest.mark.parametrize(("body", "tokens"), BODIES)
def test_what_a_body_says(body: bytes, tokens: int) -> None:
    for size in (1, 7, len(body) or 1):
        tail = UsageTail()
        for at in range(0, len(body), size):
            tail.feed(body[at : at + size])
        assert tail.tokens() == tokens


def test_only_the_end_is_kept() -> None:
    tail = UsageTail()
    tail.feed(b'{"usage": {"total_tokens": 1}}' + b"x" * MAX_TAIL)
    assert tail.tokens() == 0
    tail.feed(b'{"usage": {"total_tokens": 2}}')
    assert tail.tokens() == 2
