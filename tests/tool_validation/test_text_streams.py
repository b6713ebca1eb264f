"""Holding text back: what flows at once, what waits, and that cutting a text changes nothing."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlx_stack_proxy.tool_validation.formats.base import TURN_END, after
from mlx_stack_proxy.tool_validation.formats.harmony import MESSAGE
from mlx_stack_proxy.tool_validation.formats.table import ROWS, SHOWN
from mlx_stack_proxy.tool_validation.text_calls import Holdback, Rescued, rescue
from mlx_stack_proxy.tool_validation.tools import ToolSet
from mlx_stack_proxy.wire.thoughts import REASONING, REASONING_ENDS
from tests.tool_validation.floods import MARKERS
from tests.tool_validation.test_text_samples import EACH, JSON, MARKED, TOOLS


def stream(text: str, cuts: list[int]) -> tuple[list[str], Rescued]:
    """What each piece of `text`, cut at `cuts`, let flow, and what the end gave."""
    holdback = Holdback(TOOLS)
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(text)}), len(text)]
    flowed = [holdback.feed(text[a:b]) for a, b in itertools.pairwise(edges)]
    return flowed, holdback.finish()


def assert_even(text: str, cuts: list[int]) -> None:
    whole = rescue(text, TOOLS)
    flowed, rest = stream(text, cuts)
    assert "".join(flowed) + rest.content == whole.content
    assert (rest.calls, rest.unknown) == (whole.calls, whole.unknown)


@pytest.mark.parametrize(("name", "text"), MARKED)
def test_a_call_never_flows_and_prose_before_it_does(name: str, text: str) -> None:
    before = "Let me have a look.\n"
    flowed, rest = stream(before + text, list(range(len(before + text))))
    assert "".join(flowed).removeprefix(before) in ("", "Thought: look it up.\n")
    assert len(rest.calls) == 1


@pytest.mark.parametrize(("name", "text"), EACH)
def test_every_character_alone(name: str, text: str) -> None:
    for whole in (text, f"I see.\n{text}", f"\n\n{text}\n{text} Done.", f"`{text}` and <b> {text}"):
        assert_even(whole, list(range(len(whole))))


@pytest.mark.parametrize(
    "text",
    [
        f"Here is the JSON:\n```\n```json\n{JSON}\n```\n\n<tool_call>{JSON}</tool_call>",
        f"Two examples:\n\n```json\n{JSON}\n```\n\nand\n\n```json\n{JSON}\n```\n",
        f"It emits\n{JSON}\nand\n\n{JSON}",
        f'text = """\n{JSON}\n"""\n{JSON}',
    ],
)
def test_what_is_shown_is_the_same_however_it_comes(text: str) -> None:
    assert_even(text, list(range(len(text))))


PROSE = ["The", " answer", " is", " 4", ".\n\n", "It", " costs", " a < b", " [1].", " OK"]


@pytest.mark.parametrize(
    ("deltas", "flows"),
    [
        (PROSE, PROSE),
        *(([first], [first]) for first in "IHTW1*#-é("),
        (["<", "div>"], ["", "<div>"]),
        (["a <too", "lbar>"], ["a ", "<toolbar>"]),
        (["[", "1] see"], ["", "[1] see"]),
        (['{"', 'answer": 4}'], ["", '{"answer": 4}']),
        (['{"name": "', "Mo", 'mo"', "}"], ["", "", "", '{"name": "Momo"}']),
        (['{"name": "find', '_me"}'], ["", '{"name": "find_me"}']),
        (["Act", "ually"], ["", "Actually"]),
        (["Action: ", "I will", "\n"], ["", "", "Action: I will\n"]),
        (["```py", "thon\nx"], ["", "```python\nx"]),
        (["```json\n{", '"title"'], ["", '```json\n{"title"']),
        (["Use <tool_call>", " tags", " to mark"], ["Use ", "", "<tool_call> tags to mark"]),
    ],
)
def test_what_cannot_become_a_call_any_more_flows(deltas: list[str], flows: list[str]) -> None:
    holdback = Holdback(TOOLS)
    assert [holdback.feed(delta) for delta in deltas] == flows


@pytest.mark.parametrize(
    "start",
    [
        "<tool_call>",
        "<tool",
        "[TOOL_CALLS]find",
        '{"name": "find_book", "arg',
        '[{"name": "find_book"',
        '```json\n{"name": "find',
        "Action: find_book\n",
        "[find_book(",
        "<function=fi",
        "<|channel|>commentary to=",
    ],
)
def test_what_may_become_a_call_waits(start: str) -> None:
    holdback = Holdback(TOOLS)
    assert holdback.feed(start) == ""
    assert holdback.finish().content == start


def test_endless_space_behind_a_marker_or_in_front_of_all_is_kept() -> None:
    for start in ("<tool_call>", "{", "", "```json"):
        holdback = Holdback(TOOLS)
        flowed = holdback.feed(start)
        for _ in range(20_000):
            flowed += holdback.feed("\n    ")
        flowed += holdback.finish().content
        assert flowed == start + "\n    " * 20_000


def test_nothing_waits_without_tools() -> None:
    holdback = Holdback(ToolSet({}))
    assert holdback.feed("<tool_call>{") == "<tool_call>{"
    assert holdback.finish() == Rescued((), "")


def test_reasoning_in_the_text_flows_and_its_calls_do_not_count() -> None:
    holdback = Holdback(TOOLS)
    thought = f"<think>Maybe <tool_call>{JSON}</tool_call> then.</think>\n"
    assert holdback.feed(thought) == thought
    assert holdback.feed(f"<tool_call>{JSON}</tool_call>") == ""
    assert len(holdback.finish().calls) == 1


PIECES = st.one_of(
    st.sampled_from([*ROWS, *REASONING, *SHOWN, *REASONING_ENDS]),
    st.sampled_from([text for _, text in EACH]),
    st.sampled_from(
        [
            "\n",
            "\n\n",
            " ",
            '"',
            "'",
            "`",
            "```",
            "```json\n",
            "For example: ",
            "Hello. ",
            '{"',
            "{",
        ]
    ),
    st.sampled_from(
        ["}", "[", "]", "(", "find_book", "find_book(", ":", "=", "> ", "| ", "\\", "<", "1", ". "]
    ),
    st.text(max_size=8),
)
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@given(TEXTS, st.lists(st.integers(0, 600), max_size=30))
@example("Hello.</s>", [])
@example('call:find_book{title:"Momo",year:1973}', [5])
@example('tool_code\nfound = find_book(title="Momo", year=1973)', [16])
@example(f'"<tool_call>find_book}}<tool_call>\n{JSON}\n</tool_call>', [21])
def test_any_text_cut_anywhere(text: str, cuts: list[int]) -> None:
    assert_even(text, cuts)
    assert_even(text, list(range(len(text))))
    found = rescue(text, TOOLS)
    assert all(call.name in TOOLS for call in found.calls)
    if not (found.calls or MESSAGE in text):  # of Harmony only what it says is left
        assert text.startswith(found.content)
        assert not text[after(TURN_END, text, len(found.content)) :].strip()


def test_a_long_call_in_small_pieces_is_even() -> None:
    content = "x = {'a': [1, 2]}\n" * 400
    text = f"<function=find_book>\n<parameter=title>\n{content}\n</parameter>\n</function> done"
    cuts = random.Random(1)
    assert_even(text, [cuts.randrange(len(text)) for _ in range(2_000)])


@pytest.mark.parametrize("flood", MARKERS)
def test_floods_of_markers_end_and_lose_nothing(flood: str) -> None:
    # A rule that is worse than linear takes minutes.
    text = flood * (1_000_000 // len(flood))
    found = rescue(text, TOOLS)
    assert found.calls or found.content == text
