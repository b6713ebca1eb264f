"""Texts of which no sentence is new any more, in whatever order they come; and honest ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.verdicts import LoopDetected
from app.settings import GenerationSettings
from app.stages.loop_detection.generation.flow import Found, NothingNew
from app.stages.loop_detection.generation.restated import Restated
from tests.stages.loop_detection.generation.test_reply_watch import Watched
from tests.stages.loop_detection.generation.texts import flowed, pieces, prose

DOUBTS = [
    "Wait, let me check the file again. ",
    "Hmm, that doesn't look right. ",
    'Actually, it says "a list". ',
    "But the test expects a string.\n\n",
    "Let me reconsider the approach! ",
    "So the index must be an integer.\n",
    "No, that can't be. ",
]
CHINESE = ["等等，让我再看一下文件。", "不对，函数返回的是列表。", "但是测试需要的是字符串。"]
BEFORE = "The user wants to know how many tests fail. "


def said(sentences: Sequence[str], times: int = 400, seed: int = 1) -> str:
    """Some sentences in no order."""
    return "".join(random.Random(seed).choices(sentences, k=times))


def found(text: str, **rules: int) -> Found | None:
    return flowed(text, 5, **rules)


@pytest.mark.parametrize("sentences", [DOUBTS[:2], DOUBTS[:3], DOUBTS, CHINESE], ids=len)
@pytest.mark.parametrize("seed", range(3))
def test_a_few_sentences_in_any_order(sentences: Sequence[str], seed: int) -> None:
    hit = found(BEFORE + said(sentences, seed=seed))
    assert hit is not None
    assert hit.end <= 3500


def test_laps_of_which_each_leaves_something_out() -> None:
    source = random.Random(1)
    laps = [[one for one in DOUBTS if source.random() < 0.8] for _ in range(60)]
    hit = found(BEFORE + "".join(map("".join, laps)))
    assert isinstance(hit, NothingNew)
    assert hit.end - hit.start >= 2000


@pytest.mark.parametrize(
    "text",
    [
        prose(20_000),
        "".join(f"{one}This was attempt {n}. " for n, one in enumerate(DOUBTS * 60)),
        said(["positive\n", "negative\n", "neutral\n"], 600),
        said(["- [x] Done.\n", "- [ ] Open, to be done later.\n"], 300),
        said([f"| {one.strip()} | 1 |\n" for one in DOUBTS], 200),
        said([f'print("{one.strip()}")\n' for one in DOUBTS[:2]], 200),
        "".join(said(DOUBTS, 20, seed) + prose(3000, seed) for seed in range(20)),
    ],
    ids=["prose", "counter", "labels", "list", "table", "code", "far apart"],
)
def test_what_gets_on_or_is_no_prose(text: str) -> None:
    assert not isinstance(found(text), NothingNew)


def test_more_may_be_asked_for() -> None:
    text = BEFORE + said(DOUBTS)
    first = found(text)
    assert first is not None
    later = found(text, min_chars=4000)
    assert later is None or later.end > first.end + 1500


@given(
    st.lists(st.sampled_from([*DOUBTS, *CHINESE, "\n", " ", "3.14 is pi", "e.g. ", "x" * 990]))
    | st.just(DOUBTS * 20)
)
def test_pieces_make_no_difference(sentences: list[str]) -> None:
    assert_even("".join(sentences * 12))


@pytest.mark.parametrize("end", [" \n\n\n", " \n", ' "', ". ", ".\n\n", '."\n'])
@pytest.mark.parametrize("length", [5, 997, 998, 999, 1000, 1001])
def test_nor_where_an_end_or_the_longest_sentence_is_cut(end: str, length: int) -> None:
    assert_even(said([*DOUBTS, *CHINESE[:1], "x" * length + end], 300))


def assert_even(text: str) -> None:
    hits = []
    for size in (1, 2, 7, 64, len(text) or 1):
        watch = Restated(GenerationSettings())
        hits.append(next((hit for hit in map(watch.feed, pieces(text, size)) if hit), None))
    assert len(set(hits)) == 1


def test_the_verdict() -> None:
    one = Watched()
    verdict = one.reasoning(BEFORE + said(DOUBTS))
    assert isinstance(verdict, LoopDetected)
    assert verdict.detector == "generation"
    assert "nothing new" in verdict.message
    one = Watched(on_break="stop")
    one.text(BEFORE + said(DOUBTS))
    one.watch.mend(one.reply)
    assert one.reply.choices[0].text.startswith(BEFORE)
    assert len(one.reply.choices[0].text) < 1500
