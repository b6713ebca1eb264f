"""What the strict reading of JSON says is wrong, and where; and that it reads what is strict."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.wire.json_reader import LENIENCIES, JsonReader, parse
from mlx_stack_proxy.wire.json_text import MAX_DIGITS, Unreadable

SLIPS = {
    "single_quotes": ("{'a': 1}", (1, 2)),
    "python_literals": ('{"a": True}', (1, 7)),
    "trailing_comma": ('{"a": 1,}', (1, 9)),
    "missing_comma": ('{"a": 1\n "b": 2}', (2, 2)),
    "odd_number": ('{"a": .25}', (1, 7)),
    "unquoted_keys": ("{\n  a: 1}", (2, 3)),
    "equals_sign": ('{"a"=1}', (1, 5)),
    "unescaped_newline": ('{"a": "x\ny"}', (1, 9)),
    "invalid_escape": ('{"a": "x\\d"}', (1, 9)),
    "comments": ('{"a": /* x */ 1}', (1, 7)),
    "missing_closer": ('{"a": [1}', (1, 9)),
    "extra_closer": ('{"a": 1]}', (1, 8)),
    "odd_space": ('{"a":\u00a01}', (1, 6)),
}


def test_every_leniency_has_its_slip() -> None:
    assert SLIPS.keys() == LENIENCIES.keys()


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_read_or_reported_with_its_place(name: str) -> None:
    text, (line, column) = SLIPS[name]
    reader = JsonReader(text)
    reader.value()
    assert list(reader.used) == [name]
    with pytest.raises(Unreadable) as error:
        parse(text)
    assert error.value.kind == "invalid_json"
    place = f": {LENIENCIES[name]} at line {line}, column {column}, near `"
    assert place in error.value.message


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (" \n", "invalid_json", "are empty"),
        ('{"a": "x', "truncated", "break off inside the string `x`"),
        ('{"a": [1, 2]', "truncated", "break off before their end"),
        ('{"a": 1, ', "truncated", "break off before their end"),
        ('{"a": 12', "truncated", "break off in or after a number"),
        ('{"a": 1} {}', "invalid_json", "more follows the value at line 1, column 9"),
        ('{"a": 1} x', "invalid_json", "more follows the value at line 1, column 9"),
        ("hello", "invalid_json", "expected a value at line 1, column 1, near `hello`"),
        ('{"a" 1}', "invalid_json", "expected a colon at line 1, column 6"),
        ('{"a": tru}', "invalid_json", "expected a value at line 1, column 7"),
        ('{"a": 1, "a": 2}', "duplicate_key", 'give the field "a" twice'),
        ('{"a": NaN}', "invalid_json", "hold NaN, which JSON does not have"),
        ('{"a": 1e999}', "invalid_json", "hold the number 1e999, which is too large"),
        (f"[{'9' * (MAX_DIGITS + 1)}]", "invalid_json", "hold a number of 4,301 digits"),
        ('{"a": "x\\u12"}', "invalid_json", "a backslash that escapes nothing at line 1, column 9"),
        (
            '{"a": "\\d\\n"}',
            "invalid_json",
            "mixes backslashes that are escapes with some",
        ),
        ("[" * 65 + "]" * 65, "too_deep", "are nested more than 64 levels deep"),
        ("[1]" + " " * 1_000_000, "too_large", "are larger than 1,000,000 characters"),
    ],
)
def test_what_is_wrong(text: str, kind: str, words: str) -> None:
    with pytest.raises(Unreadable) as error:
        parse(text)
    assert error.value.kind == kind
    assert words in error.value.message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        (' {"a": [true, null, -1.5e3]} ', {"a": [True, None, -1500.0]}),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        ('"\\ud83d\\ude00 \\ud83d"', "😀 \ud83d"),
        ('{"a": 1, "a": 1}', {"a": 1}),
    ],
)
def test_strict_json(text: str, value: object) -> None:
    assert parse(text) == value


def test_what_is_strict_needs_no_leniency() -> None:
    text = '{"a": [true, null, -1.5e3], "b": "x\\n\\u00e9", "c": {}}'
    reader = JsonReader(text, strict=True)
    assert reader.value() == parse(text)
    assert (dict(reader.used), reader.position) == ({}, len(text))
