"""Where a periodic text is found: at the character that docs/loops.md says, and nowhere else."""

from __future__ import annotations

import random
import sys
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.settings import GenerationSettings
from app.stages.loop_detection.generation.periodic import (
    PeriodicText,
    Repetition,
    limit_of,
    scales,
)
from tests.stages.loop_detection.generation.texts import (
    fibonacci,
    found,
    lap,
    pieces,
    prose,
    thue_morse,
)

DEFAULT = GenerationSettings()
LIMITS = {1: 200, 2: 200, 8: 200, 39: 400, 64: 400, 65: 400, 100: 400, 101: 404, 128: 512}
LIMITS |= {405: 1620, 1000: 4000, 1001: 3003, 2000: 6000, 4096: 12288, 5461: 16383}


@pytest.mark.parametrize(("period", "limit"), LIMITS.items())
@pytest.mark.parametrize("lead", [0, 1, 63, 777])
def test_the_limits(period: int, limit: int, lead: int) -> None:
    text = (prose(lead, seed=99)[: lead - 1] + "Ä" if lead else "") + lap(period) * (
        limit // period + 2
    )
    hit = found(text)
    assert hit is not None
    assert (hit.period, hit.start, hit.end) == (period, lead, lead + limit)
    assert hit.laps == limit // period
    assert found(text[: lead + limit - 1]) is None, "one character fewer is not enough"


@pytest.mark.parametrize("period", range(9, 39))
def test_a_short_phrase_said_ten_times_needs_no_400_characters(period: int) -> None:
    hit = found(lap(period) * 60)
    assert hit is not None
    assert hit.period == period
    assert hit.end == min(9 * period + 49, 400)


@pytest.mark.parametrize("period", range(1, 101))
def test_from_the_first_repeated_character_to_the_cut(period: int) -> None:
    hit = found(prose(300, seed=5) + lap(period, seed=1) * 400)
    assert hit is not None
    assert hit.end - (hit.start + period) <= 400


@pytest.mark.parametrize("period", [1100, 1501, 2566, 2567, 3999, 4622, 4623, 5400])
def test_long_laps_are_found_within_their_three(period: int) -> None:
    hit = found(prose(1000, seed=5) + lap(period, seed=1) * 4)
    assert hit is not None
    assert 3 * period <= hit.end - hit.start <= 3 * period + 200


def test_a_period_that_does_not_fit_the_window_three_times_is_none() -> None:
    assert found(lap(5462) * 6) is None
    assert found(lap(400) * 20, window_chars=1024) is None


def test_the_settings() -> None:
    text = lap(120) * 20
    for laps, characters, end in [(4, 400, 480), (6, 400, 720), (4, 1000, 1000), (10, 500, 1200)]:
        hit = found(text, min_laps=laps, min_chars=characters)
        assert hit is not None
        assert hit.end == end
    few = found(text, min_laps=2, min_chars=100)
    assert few is not None
    assert 240 <= few.end <= 3 * 120 + 64, "two laps are seen in the third at the latest"


def test_a_lap_that_repeats_within_itself() -> None:
    """A 64-character lap that is mostly one letter: every search ends at the same place in it."""
    hit = found(("a" * 60 + "bcde") * 30)
    assert hit is not None
    assert (hit.period, hit.end) == (64, 400)


def test_a_repetition_that_breaks_one_character_early_is_none() -> None:
    for period in (1, 7, 30, 64, 333, 1500):
        limit = limit_of(DEFAULT, period)
        almost = (lap(period, seed=3) * (limit // period + 1))[: limit - 1]
        assert found("".join(f"{almost}<{at}>" for at in range(4))) is None


WORDS = {
    "Fibonacci": fibonacci(7000),
    "Thue-Morse": thue_morse(40_000),
    "prose": prose(40_000),
    "a counter": "".join(f"line {at}: the same words again\n" for at in range(1500)),
}


@pytest.mark.parametrize("name", WORDS)
def test_words_that_never_repeat_for_long(name: str) -> None:
    assert found(WORDS[name]) is None


def test_the_fibonacci_word_has_cubes_and_they_count() -> None:
    hit = found(fibonacci(20_000))
    assert hit is not None
    assert hit.period == 1597, "the first Fibonacci number above 1000, three times"


# A brute-force reading of the definition, for small windows


def by_definition(text: str, rules: GenerationSettings) -> tuple[int, int] | None:
    """(end, period) of the first place where a primitive period has held for long enough."""
    longest = rules.window_chars // 3
    runs = [0] * (longest + 1)
    for end in range(1, len(text) + 1):
        for period in range(1, min(longest, end - 1) + 1):
            runs[period] = runs[period] + 1 if text[end - 1] == text[end - 1 - period] else 0
        for period in range(1, longest + 1):
            size = runs[period] + period
            if runs[period] and size >= limit_of(rules, period):
                shorter = (p for p in range(1, period) if period % p == 0)
                if not any(runs[p] + p >= size for p in shorter):
                    return end, period
    return None


SMALL = GenerationSettings(window_chars=600)


@st.composite
def repeating(draw: st.DrawFn) -> str:
    letters = draw(st.sampled_from(["ab", "abc", LONG_ALPHABET]))
    lead = draw(st.text(letters, max_size=200))
    period = draw(
        st.sampled_from([1, 2, 3, 8, 9, 12, 32, 33, 39, 50, 64, 65, 100, 128, 150, 199, 200])
    )
    one = draw(
        st.text(letters, min_size=period, max_size=period)
        | st.just("a" * (period - 1) + "b")
        | st.just(("ab" * period)[: period - 1] + "c")
    )
    return (lead + one * draw(st.integers(2, 12)) + lead[:40])[:1400]


LONG_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


@given(repeating())
@example("b" + "a" * 100)
def test_found_where_the_definition_says(text: str) -> None:
    hit = found(text, size=9, window_chars=SMALL.window_chars)
    expected = by_definition(text, SMALL)
    assert (None if hit is None else (hit.end, hit.period)) == expected


@given(repeating(), st.lists(st.integers(0, 1400), max_size=40))
def test_the_pieces_make_no_difference(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(at for at in cuts if at < len(text)), len(text)]
    watch = PeriodicText(SMALL)
    hit: Repetition | None = None
    for start, end in pairwise(places):
        hit = hit or watch.feed(text[start:end])
    whole = PeriodicText(SMALL).feed(text)
    assert hit == whole
    assert found(text, size=1, window_chars=SMALL.window_chars) == whole


@given(st.integers(0, 10_000), st.integers(1, 300))
def test_text_that_does_not_repeat_is_left_alone(seed: int, size: int) -> None:
    assert found(prose(6000, seed), size) is None


# What it costs


def operations(text: str) -> int:
    """Calls, of Python and of C, that it takes to watch a text."""
    count = 0

    def counted(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    watch = PeriodicText(GenerationSettings(window_chars=4096))
    parts = list(pieces("```\n" + text, 50))
    sys.setprofile(counted)
    try:
        for piece in parts:
            if watch.feed(piece) is not None:
                break
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("word", ["Fibonacci", "Thue-Morse", "runs", "late change"])
def test_work_is_linear(word: str) -> None:
    make = {
        "Fibonacci": fibonacci,
        "Thue-Morse": thue_morse,
        "runs": lambda n: "".join("a" * (130 + 7 * at % 60) + "b" for at in range(n // 130))[:n],
        "late change": lambda n: "".join(
            prose(90, seed=1) * 3 + f"<{at}>" for at in range(n // 270)
        )[:n],
    }[word]
    short, long = operations(make(20_000)), operations(make(40_000))
    assert long <= 2.3 * short
    assert long <= 2 * 40_000


def test_memory_is_bounded_by_the_window() -> None:
    watch = PeriodicText(DEFAULT)
    for piece in pieces(prose(150_000), 5):
        watch.feed(piece)
        assert len(watch._text) <= 2 * DEFAULT.window_chars + 64


@pytest.mark.parametrize("window", [64, 65, 100, 1000, 16_384])
def test_the_scales_cover_every_period_once(window: int) -> None:
    ranges = [(one.low, one.high) for one in scales(GenerationSettings(window_chars=window))]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == window // 3
    assert all(a[1] == b[0] for a, b in pairwise(ranges))


@pytest.mark.parametrize("seed", range(8))
def test_the_pieces_make_no_difference_to_a_window_shorter_than_a_fences_line(seed: int) -> None:
    source = random.Random(seed)
    for _ in range(25):
        parts = ["```", "~~~", "\n", "js", "one two three four ", " ", "1,2\n", " lap and lap"]
        parts += ["x" * source.randint(30, 120), " " * source.randint(20, 100)]
        lap = "".join(source.choices(parts, k=source.randint(1, 5)))
        before, after = ("".join(source.choices(parts, k=source.randint(5, 60))) for _ in "ab")
        text = before + lap * source.randint(2, 20) + after + "ab c" * source.randint(20, 200)
        rules = GenerationSettings(
            window_chars=source.randint(64, 160),
            min_laps=source.randint(2, 8),
            min_chars=source.choice([50, 100, 200, 400]),
        )
        watch = PeriodicText(rules)
        hits = (watch.feed(piece) for piece in pieces(text, 1))
        hit = next((one for one in hits if one is not None), None)
        assert hit == PeriodicText(rules).feed(text)
