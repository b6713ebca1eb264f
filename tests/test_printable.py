"""Foreign text, made safe to print."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.printable import printable, printable_in


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[2J\nb", r"a\u001b[2J\u000ab"),
        ("\x9b2J", r"\u009b2J"),  # the same as ESC [, in one character
        ("gpt\u202etxt.exe", r"gpt\u202etxt.exe"),  # what follows would be read backwards
        ("\u2066a\u2069\u200f", r"\u2066a\u2069\u200f"),
        ("fast\u200b\ufeff\xad", r"fast\u200b\ufeff\u00ad"),  # can't be told from `fast`
        ("\U000e0041", r"\U000e0041"),
        ("\ud800", r"\ud800"),  # printing it would be an error
        ("né 語 👩\u200d💻 می\u200cخواهم", "né 語 👩\u200d💻 می\u200cخواهم"),
    ],
)
def test_what_moves_the_cursor_hides_or_reorders_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable_in({text: [text, 1, None, {"a": text}]}) == {
        shown: [shown, 1, None, {"a": shown}]
    }
