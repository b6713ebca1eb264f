"""What repeats character by character: how much of it is enough, and where it may go on longer."""

from __future__ import annotations

import base64
import sys
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlx_stack_proxy.loop_detection.generation.flow import RULES, Flow
from mlx_stack_proxy.loop_detection.generation.limits import (
    KINDS_OF_SIGNS,
    TABLE,
    Excess,
    Kind,
    Place,
)
from mlx_stack_proxy.settings import GenerationSettings
from mlx_stack_proxy.wire.growing import GrowingText
from tests.loop_detection.generation.texts import (
    fed,
    fibonacci,
    flowed,
    lap,
    operations,
    prose,
    thue_morse,
)

STUCK = "I will look at the file again. "
# period → characters that are enough in prose
LIMITS = {31: 328, 39: 400, 64: 400, 100: 400, 101: 404, 128: 512, 405: 1620, 1000: 4000}
LIMITS |= {1001: 3003, 1621: 4863, 2000: 6000, 4232: 12696, 5461: 16383}


def sentence(period: int) -> str:
    """Words with no shorter period and, but for the last, no other marks."""
    return f"{prose(period - 1).replace('.', 'm')}\n"


@pytest.mark.parametrize(("period", "limit"), LIMITS.items())
@pytest.mark.parametrize("lead", [0, 63, 777])
def test_laps_and_characters(period: int, limit: int, lead: int) -> None:
    text = prose(lead, seed=99) + sentence(period) * (limit // period + 3)
    hit = flowed(text)
    assert hit is not None
    assert (hit.rule, len(hit.lap)) == ("period", period)
    assert lead - 1 <= hit.start <= lead, "what comes before may end as the lap does"
    assert limit <= hit.end - hit.start <= limit + 64
    assert flowed(text[: hit.start + limit - 1]) is None


@pytest.mark.parametrize("laps", [3, 8])
def test_the_settings(laps: int) -> None:
    text = sentence(120) * 20
    hit = flowed(text, min_laps=laps, min_chars=300)
    assert hit is not None
    assert hit.end == laps * 120
    hit = flowed(text, min_chars=1000)
    assert hit is not None
    assert hit.end == 1000


def test_a_period_that_does_not_fit_the_window_three_times_is_none() -> None:
    assert flowed(lap(5700) * 6) is None


# What may go on for longer, and is cut where it never ends

SIGNS = {
    "digits": "0123456789",
    "numbers": "17, 34, 256, 890, ",
    "a form": "Name: ______________  Signature: ______________\n",
    "JSON": '{"name": "none", "count": 0, "tags": ["a", "b"]},\n',
    "table rows": "| 0 | 12 | n/a |\n",
    "markup": '<td class="a"></td>\n',
    "code": "for (let i = 0; i < 10; i++) { console.log(i); }",
    "a path without end": "var/lib/x/a/b/c/",
    "rows of zeros": "[0, 0, 0, 0],\n",
    "hex": "0xffffffff, ",
    "one word": "NULL,\n    ",
    "dashes": "-",
    "box": "╭─",
    "a board": "⬜⬛⬜️🟩\n",
    "table separators": "|---|---|---|\n",
}


def enough_of(place: Place, period: int) -> int:
    row = TABLE[place]
    return max(min(max(row.laps * period, row.characters), row.most), 3 * period)


@pytest.mark.parametrize("name", SIGNS)
def test_signs_may_repeat_for_longer(name: str) -> None:
    one = SIGNS[name]
    few: Place = "code" if len(set(one)) < KINDS_OF_SIGNS else "signs"
    places: dict[str, Place] = {"digits": "line", "one word": "values"}
    place = places.get(name, few)
    enough = enough_of(place, len(one))
    text = prose(200) + "\n" + one * (2 * enough // len(one))
    assert flowed(text[: 200 + enough - len(one) - 64]) is None
    hit = flowed(text)
    assert hit is not None
    assert enough <= hit.end - hit.start <= enough + 128


CHANTS = {
    "a digit": "1",
    "digits": "0123456789",
    "numbers and blanks": "1 2 3 ",
    "capitals": "ABCDEFGHIJ",
    "a word of capitals": "STOP ",
    "a line of SQL": "SELECT * FROM users WHERE id = 1;\n",
    "a statement": "INSERT INTO t VALUES (1, 2); ",
    "ok": "ok ",
    "yes": "yes! ",
    "a syllable": "ha",
    "Chinese": "好的",
}


@pytest.mark.specification(160)
@pytest.mark.parametrize("name", CHANTS)
@pytest.mark.parametrize("lead", [0, 200])
def test_500_characters_of_one_unit(name: str, lead: int) -> None:
    one = CHANTS[name]
    assert flowed(prose(lead) + one * (500 // len(one))) is not None
    assert flowed(prose(lead) + one * (200 // len(one)) + prose(300)) is None


@pytest.mark.parametrize("word", ["no ", "very ", "hello\n", "yes! ", "no, "])
def test_one_word_80_times(word: str) -> None:
    assert flowed(prose(100) + word * 80) is not None
    assert flowed(prose(100) + word * 60 + prose(300)) is None or len(word) > 6


@pytest.mark.parametrize("period", [300, 950, 1100, 2600, 5461])
@pytest.mark.parametrize(
    "line", ["- item {} of the plan: go on\n", "INSERT INTO t VALUES ({});\n", "{} "]
)
def test_a_long_period(period: int, line: str) -> None:
    """Lists, statements and digits of which no two lines are equal, over and over."""
    block = "".join(line.format(at * 7919) for at in range(period))[:period]
    text = prose(100) + block * 6
    hit = flowed(text, 64)
    assert hit is not None
    assert hit.end - hit.start <= (4 if period <= 1000 else 3) * period + 128


@pytest.mark.parametrize("before", ["```\n", "```python\n", "  ```js\n", "~~~\n", "As here:```c\n"])
def test_in_a_fence_what_repeats_may_go_on_for_longer(before: str) -> None:
    text = f"{prose(120)}\n{before}" + "print the same line again\n" * 120
    hit = flowed(text)
    assert hit is not None
    assert hit.end - hit.start == TABLE["code"].characters


@pytest.mark.parametrize(
    "before",
    ["```\ncode\n```\n", "```\ncode\n```", "~~~\n```\n~~~\n", "Use ``` for code. ", "```a```\n"],
)
def test_after_a_fence_text_is_text_again(before: str) -> None:
    hit = flowed(f"{prose(60)}\n{before}" + STUCK * 30)
    assert hit is not None
    assert hit.end - hit.start <= 410


@pytest.mark.parametrize("lead", range(0, 64, 9))
def test_a_lap_that_holds_whole_fences_is_no_code(lead: int) -> None:
    one = "Let me try that again.\n```python\nprint('hello')\n```\nThat did not work, I retry.\n"
    hit = flowed(prose(lead) + "\n" + one * 12)
    assert hit is not None
    assert hit.end - hit.start <= 500


@pytest.mark.parametrize("one", ["I will check the file. ", "x = 1\\n", "[0, 0],\n", "word_" * 300])
def test_a_file_that_a_call_writes_may_repeat_itself_for_longest(one: str) -> None:
    enough = max(TABLE["arguments"].characters, 3 * len(one))
    text = '{"path": "a.py", "content": "' + one * (20_000 // len(one))
    assert flowed(text[:enough], kind="arguments") is None
    hit = flowed(text, kind="arguments")
    assert hit is not None
    assert enough <= hit.end - hit.start <= enough + 64


@pytest.mark.parametrize("kind", ["text", "reasoning"])
def test_beyond_the_tool_call_limit_less_is_enough(kind: Kind) -> None:
    before, one, enough = prose(9000, seed=3), sentence(110), 330
    text = before + one * (12_000 // len(one))
    usual, late = (flowed(text, kind=kind, late=limit) for limit in (sys.maxsize, 8192))
    assert usual is not None
    assert late is not None
    assert enough <= late.end - late.start <= enough + 128
    assert late.end < usual.end
    assert flowed(prose(30_000), kind=kind, late=8192) is None, "other text goes on"


# What never repeats for long enough

NEARLY = {
    "a counter": "".join(f"line {at}\n" for at in range(400)),
    "a list that shares its beginning": "".join(
        f"- projects/my-google-cloud-project-12345/locations/us-central1/services/{at}\n"
        for at in range(200)
    ),
    "a table": "".join(f"| row {at} | {at * at} | the same words in each |\n" for at in range(300)),
    "a table of which one column differs": "".join(
        f"| test_case_{at} | passed | 0 errors | no warnings. |\n" for at in range(300)
    ),
    "a log": "".join(
        f"2026-11-22 12:{at // 60:02}:{at % 60:02} INFO heartbeat ok\n" for at in range(400)
    ),
    "JSON": "".join(f'{{"id": {at}, "name": "item", "ok": true}},\n' for at in range(400)),
    "CSV": "".join(f"{at},0,0,0,yes\n" for at in range(800)),
    "code": "".join(f"    assert answer_{at} == expected_answer_{at}\n" for at in range(300)),
    "a poem": "".join(f"{prose(160, at)}\nand miles to go before I sleep\n" for at in range(60)),
    "a multiplication": "".join(f"7 times {at} is {7 * at}. " for at in range(500)),
    "a base64 picture": base64.b64encode(bytes(range(256)) * 2 + bytes(900)).decode(),
    "a stammer": f"{prose(100)} {'ha' * 60} {'no, ' * 40} {'a' * 150} {'very ' * 30} {'🎉' * 100}",
    "Fibonacci": fibonacci(7000),
    "Thue-Morse": thue_morse(40_000),
    "prose": prose(40_000),
}


@pytest.mark.parametrize("name", NEARLY)
@pytest.mark.parametrize("size", [4, 97])
def test_near_repeats_pass(name: str, size: int) -> None:
    assert flowed(NEARLY[name], size) is None


@pytest.mark.parametrize(
    ("lines", "same"),
    [
        (92, "is enabled, has the usual default, and no more"),
        (80, "is enabled, has the usual default value, and nothing further"),
    ],
)
def test_a_long_block_of_lines_that_are_much_alike(lines: int, same: str) -> None:
    """llama.cpp's has 92 lines; here the end of each stands in all the others."""
    block = "".join(f'"{at:02}" {same}\n' for at in range(lines))
    for lead in (0, 100, 1000):
        hit = flowed(prose(lead) + block * 5)
        assert hit is not None
        assert (hit.rule, len(hit.lap)) == ("period", len(block))
        assert hit.end - hit.start <= 3 * len(block) + 64


# In any pieces

FRAGMENTS = [
    "```", "```python\n", "~~~\n", "\n", "| a | b |\n", "- item\n", "---", '{"a": 0},', " ", "ab",
    "stuck here. ", "é", "🎉", "</div>", "0", '"', "``", "> ", "\u2028", "12. ", "Wait, it is so. ",
    "等等，让我再看一下文件。", "\\n",
]  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.integers(1, 300)), max_size=12),
    st.lists(st.integers(1, 700), min_size=1, max_size=30),
    st.sampled_from(["text", "reasoning", "arguments"]),
)
def test_pieces_make_no_difference(
    parts: list[tuple[str, int]], sizes: list[int], kind: Kind
) -> None:
    text = "".join(one * times for one, times in parts)[:4000]
    whole = flowed(text, max(len(text), 1), kind=kind, late=2000)
    assert flowed(text, 1, kind=kind, late=2000) == whole
    flow, at = Flow(GenerationSettings(), kind, late=2000), 0
    written = GrowingText()
    hit: Excess | None = None
    for size in cycle(sizes):
        if hit is not None or at >= len(text):
            break
        hit = fed(flow, written, text[at : at + size])
        at += size
    assert hit == whole


# What it costs


SLOW = {
    "Fibonacci": fibonacci,
    "Thue-Morse": thue_morse,
    "runs": lambda size: "".join("a" * (130 + 7 * at % 60) + "b" for at in range(size // 130)),
    "sentences": lambda size: "".join(f"It is {at}. " for at in range(size // 10)),
    "no end": lambda size: "a b c d e f g h i " * 3 + "x" * (size // 2) + "y" * (size // 2),
}


@pytest.mark.parametrize("name", SLOW)
def test_work_is_linear(name: str) -> None:
    texts = ("```\n" + SLOW[name](size) for size in (20_000, 40_000))
    short, long = (operations(lambda text=text: flowed(text, 50)) for text in texts)
    assert long <= 2.3 * short
    assert long <= 10 * 40_000


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("period", sentence(500) * 9),
        (
            "sentences",
            "".join(f"I need to look at {w} before I go on. " for w in prose(900).split()),
        ),
        ("reasoning", f"<think>{prose(60_000)}"),
        ("phrase", ((STUCK * 4) + STUCK[:9]) * 5),
    ],
)
def test_each_rule_can_be_left_out(rule: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hit = flowed(text)
    assert hit is not None
    assert hit.rule == rule
    monkeypatch.delitem(RULES, rule)  # type: ignore[misc]
    again = flowed(text)
    assert again is None or again.rule != rule
