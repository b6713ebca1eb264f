"""What kind of text repeats: prose, a list, or what repeats by nature.

Only the last laps of a run are looked at, and only once it is long enough to be cut as prose. They
begin anywhere in a lap, so nothing here depends on where.
"""

from __future__ import annotations

import enum
import re
import string
from collections.abc import Callable

from .sentences import STRING, has_sentences, without_formulas


class Kind(enum.Enum):
    PROSE = "prose"
    LIST = "list"
    DATA = "data"  # rulers, forms, tables, JSON, CSV, numbers, markup
    BLANK = "blank"


# Lines, boxes, blocks, shapes, and squares and circles in colours, of which boards are drawn.
_DRAWN = (*range(0x2500, 0x2600), 0x26AA, 0x26AB, 0x2B1B, 0x2B1C, *range(0x1F7E0, 0x1F7EC), 0xFE0F)
_RULER = frozenset("-=_*+#~.·•…") | frozenset(map(chr, _DRAWN))
_SEPARATORS = frozenset(",;|:/()[]{}<>\"'")
_BETWEEN_VALUES = frozenset(",;|:[]{}")
_WHITE = frozenset(string.whitespace)
_MARKUP = frozenset('{}[]()<>=;/\\|"&$@%^')
# Where something is to be filled in, or a line drawn: `Name: ________  Date: ________`.
_LINE_TO_FILL = re.compile(r"_{4,}|-{4,}|={4,}|\.{6,}|[─━═]{4,}")
_FORM = 0.25  # of a form's characters are such lines, at the least
_BULLET = re.compile(r"[ \t>]*(?:[-*+•◦▪–]|\(?(?:\d{1,4}|[A-Za-z])[.)]|\[[ xX]\])[ \t]")
_VALUE = re.compile(
    r"\b(?:0x[0-9a-f]+|true|false|null|none|nan|inf|undefined|\d[\d_.]*(?:e[+-]?\d+)?[a-z]{0,2})\b",
    re.IGNORECASE,
)
_ENCODED = re.compile(r"[A-Za-z0-9+/=_,;:-]+")
_WRAP = re.compile(r"(?<!\s)\s*\n\s*|(?:\\r)?\\n")  # also as escapes, within a string
_LEAST_LEAD, _LEAST_LEAD_OF_WRAPPED, _LEAST_WRAPPED = 32, 16, 40
# The letters of an SVG path, of which most have two numbers or more behind them.
_DRAWS = frozenset("MLHVCSQTAZmlhvcsqtaz")
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?")
_NUMBERS_A_LETTER = 1.5
# What stands in brackets, and a bar that stands between cells: blanks or words on both its sides.
_BRACKETS = re.compile(r"\([^()\n]*\)|\{[^{}\n]*\}|\$[^$\n]+\$")
_CELLS = re.compile(r"(?<!\S)\|(?!\S)|(?<=\S)\|(?=\w)")
_ESCAPED, _UNESCAPED = re.compile(r'(?<!\\)\\++"'), re.compile(r'(?<!\\)"')
_BROKEN_WORDS = re.compile(r"\A\w+(?=\W)|(?<=\W)\w+\Z")
# What templates and tokenizers mark with, which a broken model writes without end.
_SPECIAL = re.compile(
    r"<\|[^|<>\s]{1,40}\|>|<｜[^<>\s]{1,40}>|</?s>|\[/?(?:INST|SYS)\]|\[(?:PAD|UNK|SEP|CLS|MASK)\]"
    r"|</?(?:think|tool_call|tool_response)>"
    r"|<(?:pad|unk|bos|eos|mask|sep|cls|(?:start|end)_of_(?:turn|text)|unused\d+|reserved_\w+)>",
    re.IGNORECASE,
)
# In quotes they are what code or a configuration says of them.
_ROLES = frozenset({"system", "user", "assistant", "tool", "model", "developer", "ipython"}
    | {"analysis", "commentary", "final"})  # fmt: skip
_UNQUOTED = re.compile(rf"(?<![\"'`])(?:{_SPECIAL.pattern})(?![\"'`])", re.IGNORECASE)
# Code and markup have brackets, quotes, assignments, and more than two signs and letters.
_STRUCTURE = frozenset('{}[]()<>=;"')
_LEAST_LAP, _LEAST_CHARACTERS = 9, 3
_MOST = 0.75  # of the lines make a table, a list


def kind_of(laps: str, before: str = "", period: int = _LEAST_LAP) -> Kind:
    """``laps``: the end of the run. ``before``: what stands right before the run, some of it.

    ``period``: how long one lap is.
    """
    if not laps.strip():
        return Kind.BLANK
    if _is_special(laps):
        return Kind.PROSE
    laps = _UNQUOTED.sub(" ", laps)  # a turn's marks make no markup of what is said in it
    characters = set(laps) - _WHITE
    if characters <= _RULER or _is_values(laps, characters) or _is_encoded(laps, before):
        return Kind.DATA
    if _is_drawn(laps):
        return Kind.DATA
    if _is_form(laps):
        return Kind.DATA
    lines = _whole_lines(laps)
    if _is_csv(lines) or _is_json(laps):
        return Kind.DATA
    markup = (period >= _LEAST_LAP or bool(lines)) and _is_markup(laps)
    told = (markup or "|" in laps) and any(map(has_sentences, without_formulas(laps)))
    if _is_table(laps, lines, told=told) or (markup and not told):
        return Kind.DATA
    if lines and _share(lines, _BULLET.match) >= _MOST:
        return Kind.LIST
    return Kind.PROSE


def _whole_lines(laps: str) -> list[str]:
    return [line for line in laps.split("\n")[1:-1] if line.strip()]


def _share(lines: list[str], test: Callable[[str], object]) -> float:
    return sum(1 for line in lines if test(line)) / len(lines)


def _is_values(laps: str, characters: set[str]) -> bool:
    """Numbers, truth values and what separates them: rows of zeros, empty cells."""
    if characters <= _SEPARATORS | _RULER:
        return bool(characters & frozenset(",;|"))
    if not characters & _BETWEEN_VALUES and not any(char.isdigit() for char in characters):
        return False  # a word again and again, with nothing but blanks between
    whole = _BROKEN_WORDS.sub("", laps)
    rest = _VALUE.sub("", whole)
    return rest != whole and not any(char.isalpha() for char in rest)


def _is_form(laps: str) -> bool:
    lines = sum(map(len, _LINE_TO_FILL.findall(laps)))
    return lines > 0 and lines >= _FORM * len("".join(laps.split()))


def _is_special(laps: str) -> bool:
    """What a chat template marks with, and who speaks between: nearly all there is."""
    if "<" not in laps and "[" not in laps:
        return False
    rest = _SPECIAL.sub("", laps)
    if rest != laps and len("".join(rest.split())) * 8 <= len(laps):
        return True
    marks = list(_UNQUOTED.finditer(laps))
    if not marks:
        return False
    # A lap may begin inside one.
    between = _UNQUOTED.sub(" ", laps[marks[0].start() : marks[-1].end()])
    return _ROLES.issuperset(between.split())


def _is_encoded(laps: str, before: str) -> bool:
    """A run within base64 and the like, wrapped or not: ``…iVBORw0KGgoAAAAAAAAA``."""
    lines = _WRAP.split(laps)
    if _ENCODED.fullmatch("".join(lines)) is None:
        return False
    whole = set(map(len, lines[1:-1]))
    if len(whole) > 1 or any(size < _LEAST_WRAPPED for size in whole):
        return False
    lead = _ENCODED.match(_WRAP.sub("", before)[::-1])
    word = lead.group() if lead else ""
    # Lines of one length without a blank say much by themselves.
    if len(word) < (_LEAST_LEAD_OF_WRAPPED if whole else _LEAST_LEAD):
        return False
    return (
        any(map(str.isupper, word)) and any(map(str.islower, word)) and any(map(str.isdigit, word))
    )


def _is_drawn(laps: str) -> bool:
    """The path of a drawing, as SVG writes it: letters, and more numbers behind them."""
    laps = laps.strip("+-.e")  # of a number that a lap begins or ends within
    numbers = _NUMBER.findall(laps)
    if not numbers:
        return False
    letters = "".join(_NUMBER.sub("", laps).replace(",", " ").split())
    return set(letters) <= _DRAWS and len(numbers) >= _NUMBERS_A_LETTER * len(letters)


def _is_table(laps: str, lines: list[str], *, told: bool) -> bool:
    if not lines:
        bars = len(_CELLS.findall(_BRACKETS.sub("", laps))) if told else laps.count("|")
        return bars * 40 > len(laps)
    return _share(lines, _is_told_row if told else _is_row) >= _MOST


def _is_row(line: str) -> bool:
    bare = line.strip()
    return bare.startswith(("|", "+-", "+=")) or bare.count("|") > 1 or "\t" in bare


def _is_told_row(line: str) -> bool:
    """The same among sentences, where the bars may be those of ``|x|`` and ``P(A|B)``."""
    bare = line.strip()
    if not _is_row(bare):
        return False
    framed = bare.startswith("|") and bare.endswith("|")
    return "|" not in bare or framed or len(_CELLS.findall(_BRACKETS.sub("", bare))) > 1


def _is_csv(lines: list[str]) -> bool:
    return bool(lines) and all(
        "," in line
        and line.count(" ") <= line.count(",")
        and not line.endswith((".", "!", "?"))
        and ", " not in line
        for line in lines
    )


def _is_json(laps: str) -> bool:
    """Whether nothing is left but brackets, commas and values where the strings are taken out.

    A lap may begin inside a string: then it is the other quotes that open one. JSON within a
    string has escaped quotes.
    """
    laps = _BROKEN_WORDS.sub("", laps)
    return _is_strings(laps) or ('\\"' in laps and _is_strings(_ESCAPED.sub('"', laps)))


def _is_strings(laps: str) -> bool:
    quotes = [found.end() for found in _UNESCAPED.finditer(laps)]
    if not quotes:
        return False
    for begin in (0, quotes[0]):
        rest = _VALUE.sub("", STRING.sub("", laps[begin : quotes[-1]]))
        if not any(char.isalpha() for char in rest) and any(char in rest for char in "{[,:"):
            return True
    return False


def _is_markup(laps: str) -> bool:
    """Code and markup outside a fence, by its share of signs."""
    characters = set(laps) - _WHITE
    if len(characters) < _LEAST_CHARACTERS or not characters & _STRUCTURE:
        return False
    dense = [char for char in laps if not char.isspace()]
    signs = sum(1 for char in dense if char in _MARKUP)
    letters = sum(1 for char in dense if char.isalpha())
    return signs >= 0.25 * len(dense) and letters <= 0.65 * len(dense)
