"""Texts in the form in which two of them are compared."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from app.core.call_keys import read
from app.core.texts import collapse, facts

WHITE = "".join(chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace())


@given(st.text(st.sampled_from("ab. é日" + WHITE), max_size=12))
def test_any_whitespace_is_collapsed(text: str) -> None:
    assert collapse(text) == " ".join(text.split())


def test_the_facts_of_a_text_are_those_that_its_words_hide() -> None:
    said = "I looked at it, and all is well so far."
    assert facts(said) == 0
    assert facts(f"{said} See page 3.") != facts(f"{said} See page 4.")
    assert facts(f"{said} See page 3.") == facts(f"See page 3: {said}")


@given(st.integers(0, 25))
def test_long_numbers_are_told_apart_wherever_they_stand(blanks: int) -> None:
    one, other = (read("f", f'{" " * blanks}{{"n": 1{"0" * 19}{end}}}') for end in "12")
    assert one.exact != other.exact
