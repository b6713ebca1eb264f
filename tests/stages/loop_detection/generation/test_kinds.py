"""What repeats by nature, or only nearly: each of these must pass, and be cut where it never ends.

gemini-cli#6893 and #18975 are false alarms on tables, rulers and long common beginnings.
"""

from __future__ import annotations

import base64
from itertools import cycle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.settings import GenerationSettings
from app.stages.loop_detection.generation.flow import Flow, Found
from app.stages.loop_detection.generation.lap_kind import Kind, kind_of
from tests.stages.loop_detection.generation.texts import fed, flowed, found, prose

# What is repeated → how many characters of it still pass: 2,000 for data, twice as much for lists.
DATA = {
    "dashes": "-",
    "equals": "=",
    "stars": "* ",
    "dots": ". ",
    "separators": "---\n\n",
    "box": "╭─",
    "a form": "Name: ______________  Signature: ______________\n",
    "a sheet": "Date: ______ Hours: ______\n",
    "a heading's line": "Step\n--------\n",
    "blocks": "█▓",
    "a board": "⬜⬛⬜️🟩\n",
    "shapes": "○ ● □ ",
    "zeros": "0, ",
    "rows of zeros": "[0, 0, 0, 0],\n",
    "digits": "0",
    "hex": "0x00, 0x00, 0x00, 0x00,\n",
    "nulls": "null, ",
    "JSON objects": '{"name": "none", "count": 0, "tags": ["a", "b"]},\n',
    "JSON strings": '"n/a", ',
    "table rows": "| yes | no | n/a |\n",
    "table separators": "|---|---|---|\n",
    "empty cells": ",,,,,\n",
    "CSV": "yes,no,maybe\n",
    "TSV": "yes\tno\tmaybe\n",
    "markup": '<td class="a"></td>\n',
    "closing tags": "</div>\n",
    "closing braces": "    });\n",
    "code": "for (let i = 0; i < 10; i++) { console.log(i); }",
}


@pytest.mark.parametrize("name", DATA)
def test_data_may_repeat_for_2000_characters(name: str) -> None:
    one = DATA[name]
    text = prose(200) + "\n" + one * (4000 // len(one))
    assert found(text[:2190]) is None
    hit = found(text)
    assert hit is not None
    assert 1995 <= hit.end - hit.start <= 2200


@pytest.mark.parametrize(
    "opener", ["```\n", "```python\n", "  ```js\n", "~~~\n", "Like this:```c\n"]
)
def test_code_in_a_fence_may_repeat_for_2000_characters(opener: str) -> None:
    one = "print the same line again\n"
    text = prose(120) + "\n" + opener + one * 120
    assert found(text[:2100]) is None
    hit = found(text)
    assert hit is not None
    assert hit.end - hit.start == 2000


@pytest.mark.parametrize(
    "before",
    [
        "```\ncode\n```\n",
        "```\ncode\n```",  # and the text goes on behind it
        "~~~\n```\n~~~\n",
        "Use ``` for code. ",
        "```python\na\n```\nand\n```python\nb\n```\n",
    ],
)
def test_after_a_fence_is_closed_text_is_text_again(before: str) -> None:
    hit = found(
        prose(60) + "\n" + before + "I am stuck and say the same thing over and over. " * 20
    )
    assert hit is not None
    assert hit.end - hit.start <= 410


def test_a_lap_that_holds_whole_fences_is_no_code() -> None:
    one = "Let me try that again.\n```python\nprint('hello')\n```\nThat did not work, so I retry.\n"
    hit = found(one * 12)
    assert hit is not None
    assert hit.end == max(400, 4 * len(one))


@pytest.mark.parametrize("lead", range(0, 64, 5))
def test_nor_a_short_one_wherever_its_fences_lie(lead: int) -> None:
    one = "```python\nimport os\nprint(os.getcwd())\n```\n\nLet me run it again:\n\n"
    hit = found(prose(lead) + "\n\n" + one * 20)
    assert hit is not None
    assert hit.end - hit.start <= 420


FLOODS = ["(", "{", "<", "\\", '\\"', "$", "$$", "@", "%", "&", "^", "/", '"', "[[", "()", "\\n"]
FLOODS += [
    "a/a/",
    "x=",
    "<br>",
    "<pad>",
    "<unk>",
    "</s>",
    "<s>",
    "[PAD]",
    "[/INST]",
    "null ",
    "None ",
]
FLOODS += [
    "var/lib/x/a/b/c/",
    "undefined ",
    "<|im_end|>",
    "<|im_end|>\n",
    "<|endoftext|>",
    "<eos>\n",
]
FLOODS += ["<｜end▁of▁sentence｜>", "<|im_end|>\n<|im_start|>", "<end_of_turn>\n", "<unused42>"]
FLOODS += ["</think>\n\n", "<think>\n\n</think>\n\n", "<tool_response>\n</tool_response>\n"]


@pytest.mark.parametrize("one", FLOODS)
def test_signs_special_tokens_and_paths_are_no_data(one: str) -> None:
    """A flood of them is what a broken model writes; docs/loops.md exempts none."""
    hit = found(prose(100) + " " + one * (4000 // len(one)))
    assert hit is not None
    assert hit.end - hit.start <= max(200, 9 * len(one) + 49)


@pytest.mark.parametrize("bullet", ["- ", "* ", "+ ", "• ", "1. ", "1) ", "  - ", "- [ ] "])
def test_lists_get_twice_as_much(bullet: str) -> None:
    """But no more than gemini-cli's rule leaves them."""
    short, long = (
        f"{bullet}check the file\n",
        f"{bullet}check the same file once more, {'x' * 80}\n",
    )
    hit = found("Steps:\n" + short * 60)
    assert hit is not None
    assert hit.end - hit.start == 9 * len(short) + 49
    hit = found("Steps:\n" + long * 60)
    assert hit is not None
    assert hit.end - hit.start == 8 * len(long)


def test_prose_in_lines_is_no_list() -> None:
    one = "I will not output any text.\n  I will just end the turn.\n  I am done.\n"
    hit = found(one * 15)
    assert hit is not None
    assert hit.end == 400


NEARLY = {
    "a counter": [f"line {at}\n" for at in range(400)],
    "a list that shares its beginning": [
        f"- projects/my-google-cloud-project-12345/locations/us-central1/services/{at}\n"
        for at in range(200)
    ],
    "a table": [f"| row {at} | {at * at} | the same words in each |\n" for at in range(300)],
    "a log": [f"2026-11-22 12:{at // 60:02}:{at % 60:02} INFO heartbeat ok\n" for at in range(400)],
    "JSON": [f'{{"id": {at}, "name": "item", "ok": true}},\n' for at in range(400)],
    "CSV": [f"{at},0,0,0,yes\n" for at in range(800)],
    "code": [f"    assert answer_{at} == expected_answer_{at}\n" for at in range(300)],
    "a poem with a refrain": [
        prose(160, seed=at) + "\nand miles to go before I sleep, and miles to go before I sleep\n"
        for at in range(60)
    ],
    "numbered steps": [f"{at}. Open the file and look at it once more.\n" for at in range(300)],
    "a progress bar": [f"\r{'#' * (at // 2)}{' ' * (50 - at // 2)} {at} %" for at in range(101)],
    "a multiplication": [f"7 times {at} is {7 * at}. " for at in range(500)],
    "paths": [f"/usr/share/doc/package-{at}/copyright\n" for at in range(300)],
}


@pytest.mark.parametrize("name", NEARLY)
@pytest.mark.parametrize("size", [4, 97])
def test_near_repeats_pass(name: str, size: int) -> None:
    assert flowed("".join(NEARLY[name]), size) is None


def test_base64_passes_also_where_it_is_full_of_zeros() -> None:
    picture = bytes(range(256)) * 2 + bytes(900) + bytes(range(256))
    assert found("data:image/png;base64," + base64.b64encode(picture).decode()) is None


# A model's commonest loop while it thinks: a calculation, then "wait", then the same again.
CALCULATIONS = {
    "values": "f(x) = 2x + 1, f(1) = 3, f(2) = 5. So f(n) = 2n + 1. Let me check. ",
    "lines": "f(1) = 3\nf(2) = 5\nf(3) = 7\nSo f(n) = 2n + 1.\nLet me check.\n",
    "one word a sentence": "f(2) = 5. f(3) = 7. So f(n) = 2n+1. Yes. ",
    "no full stop": "(a+b)^2 = a^2 + 2ab + b^2\nTherefore, (a+b)(a-b) = a^2 - b^2\n",
    "between dollars": "$x = 2$, so $2x = 4$. Wait, $x = 3$? No, $x = 2$. ",
    "displayed": r"$$\int_0^1 x^2 dx = \frac{1}{3}$$ so it is $\frac{1}{3}$. Wait, let me see. ",
    "displayed on a line": "$$x^2 + y^2 = z^2$$\n\nSo the answer is $x = 3$.\n\n",
    "displayed on three": "$$\nx^{2} = \\frac{1}{3}\n$$\nWait, let me check.\n",
    "brackets": "\\[ x = \\frac{-b \\pm \\sqrt{b^2 - 4ac}}{2a} \\]\n\nHmm, let me check again.\n\n",
    "parentheses": "\\(x = 2\\), so \\(2x = 4\\). Wait, \\(x = 3\\)? No. ",
    "no delimiter": "\\frac{1}{2} + \\frac{1}{3} = \\frac{5}{6}\nSo the answer is \\frac{5}{6}.\n",
    "aligned": "\\begin{align}\nx &= 2 \\\\\ny &= 3\n\\end{align}\nSo it is 5. Let me redo this.\n",
    "a condition": "P(A|B) = P(B|A)P(A)/P(B) = (0.5)(0.2)/(0.1) = 1. Hmm, that is 1. ",
    "amounts": "|x - 2| = 3, so x = 5 or x = -1.\nWait, |x - 2| = |3|, is that right?\n",
    "sets": "{x | x > 0} = {x | -x < 0}, so it is the same set. Let me check.\n",
    "in tags": "<think>f(2) = 5. Let me check. (2)(2) + 1 = 5.</think>\n",
    "emphasis": "**Check:** (2)(3) = 6. (3)(4) = 12. **Wait**, (2)(3) = 6. ",
    "another script": "所以 $x = 3$。等等，让我再检查一下。f(x) = (x-1)(x+2) = 0。",
    "another language": "(f(1)) = (3), (f(2)) = (5). Also f(n) = 2n + 1. Das passt so. ",
}


@pytest.mark.parametrize("name", CALCULATIONS)
@pytest.mark.parametrize("lead", [0, 33])
def test_a_calculation_told_in_sentences_is_prose(name: str, lead: int) -> None:
    one = CALCULATIONS[name]
    hit = found(prose(100 + lead) + "\n" + one * (4000 // len(one)))
    assert hit is not None
    assert hit.end - hit.start <= max(4 * len(one), min(400, 9 * len(one) + 49)) + 1


# Sentences in it don't make these prose.
WITH_SENTENCES = {
    "code": "if (x[i] > 0) {\n    // Let me check. Yes.\n    f(x[i]);\n} else {\n    g(&y);\n}\n",
    "a comment in a block": '/*\n Check it.\n It must be.\n*/\nx[i] = f(y[i]); g(&z[i], "%d");\n',
    "a docstring": 'def f(x):\n    """Let me check. Yes."""\n    return (x[0], (y[1]), {z})\n',
    "a shell": 'echo "Done with it. Bye."; cd /a/b && ./x $A $B | y > /d/e\n',
    "markup": "<p>\n  Let me check. Yes.\n</p>\n<br/><br/>\n",
    "a template": "<%= f(x) %> <% if (y) { %> Let me check. <% } %>\n",
    "JSON": '{"q": "Is it right?", "a": "Yes. It is.", "n": [1, 2]},\n',
    "a style": "a { color: red; } /* Let me see. */ b > c { d: url(/x); }\n",
    "a table": "| Is it right? | Yes. It is. | no |\n",
    "a table without a frame": "Is it right? | Yes. It is. | no\n",
    "a close table": "1|Is it right?|Yes. It is.|no\n",
    "a TeX table": "\\item & Let me check. & Yes. & \\$5/\\$6 & (a) \\\\ \n",
    "dollar quotes": "DO $$ BEGIN f(x); END $$;\nDO $$ BEGIN g(y); END $$;\n",
    "a pattern": '(r"G95 \\((GCC (?P<v>[0-9.]+)|.*?) \\(g95 (?P<w>.*)!\\) (?P<d>.*)\\).*"),\n',
    "special tokens in quotes": 'bos_token="<s>", eos_token="</s>", {pad: ("<pad>")},\n',
    "links": "- [x](/a/b/c) - Let me check. [y](/d/e/f), [z](/g)\n",
}


@pytest.mark.parametrize("name", WITH_SENTENCES)
def test_data_that_holds_sentences_is_data(name: str) -> None:
    one = WITH_SENTENCES[name]
    assert found(prose(200) + "\n" + one * (1980 // len(one))) is None
    assert found(prose(200) + "\n" + one * (4000 // len(one))) is not None


def test_the_ends_of_patterns_enclose_no_formula() -> None:
    bytes_, text = (
        f'_VALID_HEADER_VALUE_RE = re.compile({r}"^\\S[^\\r\\n]*$|^$")\n' for r in ("rb", "r")
    )
    laps = (bytes_ + text) * 3
    kinds = [kind_of(laps[at:], period=len(bytes_ + text)) for at in range(len(bytes_ + text))]
    assert kinds.count(Kind.DATA) == len(kinds)


CHAT_TEMPLATES = [
    "<|im_end|>\n<|im_start|>assistant\n",
    "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "<|start|>assistant<|channel|>analysis<|message|>",
    "<|user|>\n<|assistant|>\n",
    "<start_of_turn>model\n<end_of_turn>\n",
]


@pytest.mark.parametrize("one", CHAT_TEMPLATES)
@pytest.mark.parametrize("lead", [0, 7, 33])
def test_a_chat_template_without_end_is_no_table(one: str, lead: int) -> None:
    hit = found(prose(100 + lead) + "\n" + one * 60)
    assert hit is not None
    assert hit.end - hit.start <= 9 * len(one) + 49


ANSWERS_BETWEEN = [
    "<|im_start|>assistant\nI'm sorry, I can't help with that.<|im_end|>\n",
    "<|user|>\nContinue.<|end|>\n<|assistant|>\nSure, I will go on with it.<|end|>\n",
    "I hope this helps you.<|endoftext|>",
]


@pytest.mark.parametrize("one", ANSWERS_BETWEEN)
def test_what_is_said_between_special_tokens_is_prose(one: str) -> None:
    hit = found(prose(90) + "\n" + one * 30)
    assert hit is not None
    assert hit.end - hit.start <= 420


def test_a_table_of_special_tokens_is_a_table() -> None:
    assert found("| <|im_end|> | 151645 | yes |\n" * 60) is None


@pytest.mark.parametrize("wrap", ["\n", "\r\n", "\n    ", "\\n"])
def test_base64_that_is_wrapped_passes(wrap: str) -> None:
    picture = bytes(range(256)) + bytes(600) + bytes(range(256))
    code = base64.b64encode(picture).decode()
    lines = [code[at : at + 76] for at in range(0, len(code), 76)]
    assert found(wrap.join(lines)) is None


def test_lines_of_one_length_are_not_encoded_without_a_lead() -> None:
    hit = found(prose(200) + "\n" + ("a-line-of-one-length-" * 3 + "\n") * 30)
    assert hit is not None
    assert hit.end - hit.start <= 400


def test_json_within_a_string_is_json() -> None:
    name = r"\"arn:aws:devicefarm:us-west-2::device:123456789EXAMPLE\","
    assert found('{"value": "[' + name * 20 + ']"}') is None
    hit = found(prose(200) + r"He said \"no\", then she said \"yes\", and so it went on. " * 20)
    assert hit is not None
    assert hit.end - hit.start <= 400


@pytest.mark.parametrize(
    "one", ["M 36 36 \nL 36 36 \n", "m64 96c0-8.8 7.2-16 16-16h16c8.8 0 16 7.2 16 16v16z"]
)
def test_the_path_of_a_drawing_is_data(one: str) -> None:
    assert found('<path d="' + one * (1900 // len(one)) + '"/>') is None
    assert found('<path d="' + one * (4000 // len(one)) + '"/>') is not None


def test_letters_with_a_number_each_are_no_drawing() -> None:
    hit = found(prose(200) + "\n" + "T 1, H 2, A 3, " * 60)
    assert hit is not None
    assert hit.end - hit.start <= 400


def test_words_by_nature_short() -> None:
    """Ten or so equal words or letters are how people write, and no loop."""
    for said in ("ha" * 60, "no, " * 40, "a" * 150, "!" * 120, "very " * 30, "🎉" * 100, "0" * 64):
        assert found(f"{prose(100)} {said} {prose(100, seed=1)}") is None


@pytest.mark.parametrize(
    ("laps", "kind"),
    [
        (" \n\t" * 50, Kind.BLANK),
        ("!" * 60, Kind.PROSE),
        ("。" * 60, Kind.PROSE),
        ('"No," she said. ' * 8, Kind.PROSE),
        ('He said "stop" and "go". ' * 8, Kind.PROSE),
        ("var/" * 40, Kind.PROSE),
        ("it's done (really). " * 8, Kind.PROSE),
        ("一二三，" * 30, Kind.PROSE),
        ("I saw it, he saw it,\nthey saw it.\n" * 5, Kind.PROSE),
    ],
)
def test_kinds(laps: str, kind: Kind) -> None:
    assert kind_of(laps) is kind


# All of it together, in any pieces

FRAGMENTS = [
    "```",
    "```python\n",
    "~~~\n",
    "\n",
    "| a | b |\n",
    "- item\n",
    "---",
    '{"a": 0},',
    " ",
]
FRAGMENTS += [
    "ab",
    "stuck here. ",
    "é",
    "🎉",
    "</div>",
    "0",
    '"',
    "\r\n",
    "``",
    "> ",
    "AAAA",
    "\u2028",
]


@given(
    st.lists(st.tuples(st.sampled_from(FRAGMENTS), st.integers(1, 300)), max_size=12),
    st.lists(st.integers(1, 700), min_size=1, max_size=30),
)
def test_the_pieces_make_no_difference_to_the_kind(
    parts: list[tuple[str, int]], sizes: list[int]
) -> None:
    text = "".join(one * times for one, times in parts)[:6000]
    whole = flowed(text, size=max(len(text), 1))
    assert flowed(text, size=1) == whole
    flow, at = Flow(GenerationSettings()), 0
    hit: Found | None = None
    for size in cycle(sizes):
        if hit is not None or at >= len(text):
            break
        hit = fed(flow, text[at : at + size])
        at += size
    assert hit == whole
