"""How alike texts are, by their digests."""

from __future__ import annotations

import pytest

from mlx_stack_proxy.likeness import alike, digest, loaded

TEXT = (
    "The failing step is the linker, which can't find the library in {}. I looked at the paths, "
    "at the log and at the makefile; next I will look at the environment of the build server."
)
LISTS = "Passed: {}_parse, {}_print, {}_read. Failed: {}_scan, {}_list, {}_sort. Next: the log."
WORDS = ["quokkas", "wombats", "koalas", "numbats", "bilbies", "dingoes", "galahs", "emus"] * 2
LONG = " ".join(f"Sentence number {n} says {n * 37 % 101} of {n * 53 % 89}." for n in range(400))


def likeness(one: str, other: str) -> float:
    return alike(loaded(digest(one).dumped()), digest(other))


def test_the_same_text_is_wholly_alike_whatever_its_blanks() -> None:
    assert likeness(TEXT, TEXT.replace(" ", "\n  ")) == 1.0
    assert likeness("", "") == 1.0
    assert likeness("ab", "cd") < 0.5


@pytest.mark.parametrize(
    ("one", "other", "least", "most"),
    [
        (TEXT.format("/usr/lib"), TEXT.format("/opt/lib"), 0.96, 0.995),
        (TEXT.format(1), TEXT.format(2), 0.98, 1.0),
        (TEXT, TEXT[::-1], 0.0, 0.4),
        (TEXT, "Nothing of the sort. " * 8, 0.0, 0.4),
        (TEXT, TEXT[: len(TEXT) // 2], 0.0, 0.55),
        (LONG, LONG.replace("number 7", "no. 7"), 0.95, 1.0),
        (LISTS.format(*"abcdef"), LISTS.format(*"defabc"), 0.2, 0.9),
        (" ".join(WORDS), " ".join(sorted(WORDS)), 0.0, 0.5),
        (TEXT, TEXT.replace(",", ";,").replace("log", "logs"), 0.95, 0.995),
        ("构建失败了。" * 20, "构建失败了。" * 15 + "编译成功。" * 6, 0.3, 0.95),
    ],
)
def test_it_is_about_the_share_of_characters_that_are_equal(
    one: str, other: str, least: float, most: float
) -> None:
    assert least <= likeness(one, other) <= most
    assert likeness(one, other) == likeness(other, one)


def test_lengths_that_differ_too_much_need_no_closer_look() -> None:
    one, other = digest(TEXT), digest(TEXT + TEXT[:40])
    assert 0.8 < alike(one, other) < 0.9
    assert alike(one, other, 0.9) == 0.0
    assert alike(one, digest(TEXT.format("/usr")), 0.9) > 0.95


def test_a_digest_has_a_bounded_size_and_is_the_same_in_every_process() -> None:
    assert len(digest(LONG * 50).dumped()) < 3_000
    assert digest("a\ud800b").dumped()
    assert digest("quokka").dumped() == "14877644339193282556 6 lLhrbG3ok0E= TjD12w=="


@pytest.mark.parametrize("text", ["", "1", "a b c", "1 2 ab", "1 2 !!!! abcd"])
def test_another_versions_text_is_refused_or_like_nothing(text: str) -> None:
    try:
        found = loaded(text)
    except ValueError:
        return
    assert alike(found, digest(TEXT)) == 0.0
