"""What of a text is compared."""

from __future__ import annotations

import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.loop_detection.call_keys import read
from mlx_stack_proxy.loop_detection.texts import MAX_TEXT, action_in, collapse, without_numbers

WHITE = "".join(chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace())


@given(st.text(st.sampled_from("ab. é日" + WHITE), max_size=12))
def test_any_whitespace_is_collapsed(text: str) -> None:
    assert collapse(text) == " ".join(text.split())


@given(st.integers(0, 25))
def test_long_numbers_are_told_apart_wherever_they_stand(blanks: int) -> None:
    one, other = (read("f", f'{" " * blanks}{{"n": 1{"0" * 19}{end}}}') for end in "12")
    assert one.key != other.key


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("bash: line 17871: cd: x/: no", "bash: line 17886: cd: x/: no", True),
        ("Chunk ID: 7c1f3a\nWall time: 0.0", "Chunk ID: f00ba4\nWall time: 12.5", True),
        ("[File: a.java (107 lines total)]", "[File: a.java (1120 lines total)]", True),
        ("3 files", "3 rows", False),
        ("page 1 of a", "page 1 of b", False),
        ("", "7", False),
    ],
)
def test_numbers_and_fresh_ids_make_no_difference_and_words_do(
    one: str, other: str, same: bool
) -> None:
    assert (without_numbers(one) == without_numbers(other)) is same


THOUGHT = "I look at it again, {} this time."


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (f"{THOUGHT}\n```\nls -la\n```", "ls -la"),
        (f"{THOUGHT}\n```bash\nls -la\n```\nThat should do.", "ls -la"),
        (f"{THOUGHT} Not `x`, but\n```\na\n```\nthen\n```\nb\n```", "b"),
        (f"{THOUGHT}\n```\nls -la", "ls -la"),
        (f"Thought: {THOUGHT}\nAction: search\nAction Input: x", "Action: search\nAction Input: x"),
        (f"Thought: {THOUGHT}\n**Action:** search x\nObservation: made up", "**Action:** search x"),
        (f"Thought: {THOUGHT}\n<code>\nlook('A')\n</code>", "<code>\nlook('A')"),
        (f"<think>{THOUGHT}</think>Yes.", "Yes."),
    ],
)
def test_the_command_is_compared_not_the_thought_around_it(text: str, action: str) -> None:
    assert action_in(text.replace("{}", "closely"))[0] == action
    assert action_in(text.replace("{}", "for good"))[0] == action


def test_no_text_takes_long_to_read() -> None:
    """Whole seconds, had one of the patterns a cost that grows with the square."""
    began = time.process_time()
    for text in ("a" * MAX_TEXT, "1" * MAX_TEXT, "a1" * (MAX_TEXT // 2), "*# " * 200_000):
        without_numbers(text)
        action_in(f"Action{text}")
    assert time.process_time() - began < 5
