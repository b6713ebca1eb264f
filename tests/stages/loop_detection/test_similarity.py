"""When two texts are the same: words that differ, and facts that may not."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.texts import MAX_WORDS
from app.core.turn import NOTHING_YET, Turn
from app.core.turns import output
from app.stages.loop_detection import similarity
from app.stages.loop_detection.finding import State
from app.stages.loop_detection.similarity import are_alike, common, same_text
from tests.stages.loop_detection.histories import TASK, says, state, user

WORDS = st.lists(st.sampled_from("ab"), max_size=12)
LONG = " ".join(f"word{'x' * at}" for at in range(40))


def said(text: str) -> Turn:
    return output(text, [], NOTHING_YET, 0)


def same(one: str, other: str, threshold: float = 0.95) -> bool:
    return same_text(said(one), said(other), threshold)


def distance(one: list[str], other: list[str]) -> int:
    """Insertions and deletions, by the textbook's table."""
    row = list(range(len(other) + 1))
    for at, word in enumerate(one, 1):
        before, row[0] = row[0], at
        for column, its in enumerate(other, 1):
            now = before if word == its else 1 + min(row[column], row[column - 1])
            before, row[column] = row[column], now
    return row[-1]


@given(WORDS, WORDS)
def test_the_distance_is_the_textbook_s(one: list[str], other: list[str]) -> None:
    assert len(one) + len(other) - 2 * common(one, other) == distance(one, other)


@given(WORDS, WORDS)
def test_what_difflib_finds_alike_is_alike(one: list[str], other: list[str]) -> None:
    ratio = SequenceMatcher(None, one, other, autojunk=False).ratio()
    assert are_alike(one, other, ratio)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (LONG, True),
        (f"  {LONG}\n", True),
        (LONG.replace("wordxxx ", "other "), True),
        (LONG.replace("word", "other"), False),
        (f"{LONG} 4", False),
        (f'{LONG} "a"', False),
        (f"{LONG} /tmp", False),
        (f"{LONG} more", True),
    ],
)
def test_nearly_the_same(other: str, expected: bool) -> None:
    assert same(LONG, other) is expected
    assert same(other, LONG) is expected


@pytest.mark.parametrize(
    ("one", "other"), [("page 3", "page 4"), ("read 'a'", "read 'b'"), ("see a/b", "see a/c")]
)
def test_other_facts_are_another_text(one: str, other: str) -> None:
    assert not same(f"{LONG} {one} {LONG}", f"{LONG} {other} {LONG}", 0.5)


def test_texts_are_compared_once_however_often_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client resends its transcript, and each of its texts is nearly as the one before."""
    compared = 0

    def counted(one: Sequence[str], other: Sequence[str]) -> int:
        nonlocal compared
        compared += 1
        return common(one, other)

    monkeypatch.setattr(similarity, "common", counted)
    messages = [TASK]
    for letter in map(chr, range(0x3B1, 0x3B1 + 24)):
        messages += [says(f"{LONG} {LONG} {letter}"), user("Continue.")]
    assert state(messages) is State.CIRCUIT_BREAK
    first, compared = compared, 0
    assert first >= 3
    messages += [says(f"{LONG} {LONG} last"), user("Continue.")]
    assert state(messages) is State.CIRCUIT_BREAK
    assert compared == 1


def test_what_is_remembered_of_them_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "MAX_COMPARED", 5)
    monkeypatch.setattr(similarity, "_compared", {})
    for at in range(9):
        assert same(f"{LONG} {'x' * at}", f"{LONG} {'y' * at}")
    assert len(similarity._compared) == 5


CHINESE = (
    "项目的构建失败了因为链接器找不到几天前移动到另一个文件夹的库所以我们必须更改配置中的搜索路径"
    "然后从头开始再次运行整个构建看看是否有帮助如果没有我们就继续寻找其他原因直到找到问题"
)


def test_a_script_without_blanks_is_compared_by_its_characters() -> None:
    assert same(CHINESE, CHINESE.replace("整", "全"))
    assert not same(CHINESE, CHINESE[:60])
    assert not same(f"{CHINESE}「猫」", f"{CHINESE}「狗」")


def test_an_apostrophe_quotes_nothing() -> None:
    one = f"I'm sure that {LONG} and if it doesn't, we go on"
    assert same(one, one.replace("wordxxx ", "other "))
    assert not same(f"{LONG} 'I don't' {LONG}", f"{LONG} 'I won't' {LONG}")


def test_long_texts_are_compared_by_their_sentences() -> None:
    long = " ".join(f"This sentence {'x' * at} is one of many." for at in range(1, 130))
    assert len(long) > MAX_WORDS
    assert same(long, long.replace(" xxxxxxx ", " other "))
    assert not same(long, long.replace(" is one", " was one"))
    assert not same(long, f"{long} It is 4.")


def test_odd_texts_take_no_longer_than_others() -> None:
    """One word of a million letters, the same word a million times, nothing but quotes."""
    for text in (
        "a" * 1_000_000,
        "a " * 500_000,
        '"' * 100_000,
        "'\"`" * 50_000,
        "a-" * 30_000,
        "a('" * 20_000,
    ):
        assert same(text, text)
        assert not same(text + "b", text.replace("a", "c") + "d", 0.95)
    assert same("<think>" * 9999, "<thinking>" * 9999), "of which nothing is said"
