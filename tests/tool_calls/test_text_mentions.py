"""Printed calls: recognised for loops, never executed."""

from __future__ import annotations

from app.tool_calls.text_calls import marked_mentions, rescue


def test_mentions_are_listed_in_order() -> None:
    text = "⏺ Read: a.py\nSome text\n  ⏺  Edit:  a.py   line 3 \n⏺ Read: a.py\n"
    assert marked_mentions(text) == ["Read: a.py", "Edit: a.py line 3", "Read: a.py"]


def test_brackets_mean_the_same() -> None:
    assert marked_mentions("⏺ Read(a.py)") == marked_mentions("⏺ Read: a.py")


def test_other_bullets_and_sentences_are_no_mentions() -> None:
    assert marked_mentions("Read: a.py\n* Read: b\nWe use ⏺ Read: c\n⏺ I will read it.") == []


def test_they_are_never_calls() -> None:
    assert rescue("⏺ Read: a.py", {"Read": {}}).calls == ()
