"""Whether what repeats is told in sentences, however full of signs it is.

A model that goes round in a calculation writes more signs than letters, as code and markup do. What
tells them apart is between the formulas: "Wait, let me check." In code such a sentence stands in a
comment or a string, in markup between tags, in a log behind a time or a level.
"""

from __future__ import annotations

import re

# Braces within braces within braces. What may stay open is bounded, so that no text is slow.
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]{0,99}\}){0,99}\}){0,199}\}"
_MATHS = r"(?:align(?:ed)?|equation|gather(?:ed)?|multline|split|cases|eqnarray|[bpvBV]?matrix)\*?"
# As pandoc has it, a dollar opens before a sign and closes behind one: "$5 and $6" is no formula.
# Nor is what SQL quotes with two dollars (it has semicolons), or a pattern (`.*`, `(?`, quotes).
_IN_MATHS = r"(?:[^\n\"\\(.]|\\[^\[\]()\n]|\((?!\?)|\.(?![*+]))"
_FORMULA = re.compile(
    r"\$\$(?:[^$;\n]|\\;|\n(?!\s*\n))+(?:\$\$|\Z)"
    r"|(?<![\w$])\$(?=[^\s$])(?:[^$\n\";]|\\;)*(?<=\S)\$(?![\w${(\"'])"
    rf"|(?<![^\s*])\\\[(?:{_IN_MATHS}|\n(?!\s*\n))*(?:\\\]|\Z)"
    rf"|(?<![^\s*(])\\\({_IN_MATHS}*(?:\\\)|\Z)"
    rf"|\\begin\{{({_MATHS})\}}.*?(?:\\end\{{\1\}}|\Z)|\A(?:(?!\\begin).)*?\\end\{{{_MATHS}\}}"
    rf"|\\boxed{_BRACES}",
    re.DOTALL,
)
# The same without dollars, and code in backticks.
_BARE = re.compile(rf"\\[A-Za-z]+(?:{_BRACES})*|[_^]{_BRACES}|`[^`\n]+`")
STRING = re.compile(r'(?<!\\)"(?:[^"\\\n]|\\.)*"')
_COMMENT = re.compile(
    r"^[ \t]*(?:\*(?=[\s/])|%|;).*$|(?:^|(?<=\s))(?://|--|#).*$",
    re.MULTILINE,
)
_TEX_ROW = re.compile(r"&[^&\n]*\\\\")
_CODE = re.compile(
    r"[;{][ \t]*\n|\n[ \t]*[}\])]"  # statements, blocks
    r"|;\s*\}|\{[^{}\n;]*;"  # styles
    r"|</?(?!think|reason|answer)[A-Za-z][\w:-]*+(?:\s++[\w:-]++=[^<>]*+>|\s*+/?>)|<!--"
    r"|[(\[{=:,]\s?[\"']|[\"'][)\]}:;]|\"\"\"|'''|/\*|\*/"  # strings as arguments and values
    r"|<%|\{\{|\{%|\]\("  # templates, links
    r"|\d\d:\d\d:\d\d|\b(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|FATAL)\b|\n\["  # logs
)
# At least two words ("Let me check. "); a word behind another sentence's end ("= 7. So f(n)"), not
# behind an item's number; or one that says what follows from what.
_UPPER = "[A-ZÀ-ÖØ-ÞА-Я]"
_SENTENCE = re.compile(
    r"(?<![\w.])(?:I|[^\W\d_]{2,}(?:['’][^\W\d_]+)?)(?:[,:;]?\s+(?![A-Z])[\w'’-]+){1,3}"
    r"[.?!…]+[*_)]*(?:\s|\Z)"
    rf"|(?<![\s.])(?<!\n\d)(?<!\n\d\d)[.?!…]\s+{_UPPER}[^\W\d_A-Z]+[\s.?!,…]"
    r"|(?<!\S)(?:So|Thus|Hence|Therefore|Since|Because|Wait|Hmm|Actually|Alternatively)[,:.]?\s"
    r"|[^\W\d_]{2}[。！？]"
)


def without_formulas(laps: str) -> list[str]:
    """``laps`` with a word in each formula's place; twice where it may begin inside ``$$``.

    The cells of a TeX table are data.
    """
    display = laps.find("$$")
    parts = [laps] if display < 0 else [laps, laps[display + 2 :]]
    told = [_FORMULA.sub("x", part) for part in parts]
    if told == parts or any(map(_TEX_ROW.search, told)):
        return [laps]
    return list(map(_without_ends, told))


def has_sentences(told: str) -> bool:
    """Outside code, comments and strings; ``told``: laps without formulas."""
    told = _COMMENT.sub("", _BARE.sub("x", _without_ends(told))).replace("**", "")
    return (
        _SENTENCE.search(told) is not None
        and not _CODE.search(told)
        and not _TEX_ROW.search(told)
        and _SENTENCE.search(STRING.sub("x", told)) is not None
    )


def _without_ends(laps: str) -> str:
    """What the first and the last line begin with, or end with, isn't known."""
    if laps.count("\n") < 2:
        return laps
    return laps[laps.index("\n") : laps.rindex("\n") + 1]
