"""What stands between a text that was sent and the one that goes on from it."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.wire.thoughts import separator_after


@pytest.mark.parametrize(
    ("sent", "between"),
    [
        ("Let me look.", "\n\n"),
        ("<think>Hm.</think>Let me look.", "\n\n"),
        ("<think>Hm.</think>", "\n\n"),
        ("<think>Hm.", "\n</think>\n\n"),
        ("[THINK]Not <think> here.</think>", "\n[/THINK]\n\n"),
        ("<think>One.</think>\n<thinking>Two", "\n</thinking>\n\n"),
    ],
)
def test_reasoning_without_its_end_is_ended(sent: str, between: str) -> None:
    assert separator_after(sent) == between
