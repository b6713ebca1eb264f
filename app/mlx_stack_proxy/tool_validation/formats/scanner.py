"""Finds the places where calls may begin, in a whole text or in one that is still arriving.

``TRIGGER`` finds the next mark, fence, or tag of reasoning or shown text. The scanner judges it: it
skips quoted text, code and reasoning, and returns a ``Candidate`` with the formats whose call may
begin there. Text before ``pos`` is decided; text that may become a mark stays from ``pos`` on.
After ``MAX_JUDGED`` judgements the rest counts as text, so a hostile reply costs bounded time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from msgspec import Struct

from ...wire.thoughts import REASONING, REASONING_ENDS
from ..names import MAX_NAME
from ..tools import ToolSet
from . import context
from .base import (
    PLAIN_ENDS,
    TURN_END,
    VENDOR_MARK_BEGUN,
    Format,
    Where,
    after,
    begins_reply,
    skip_space,
)
from .python_calls import WHOLE
from .table import (
    BEGUN,
    FENCES,
    KNOWN,
    LINE_STARTS,
    LONGEST,
    ROWS,
    SHOWN,
    TRIGGER,
    begins_calls,
    may_become,
    own_tags,
)
from .tag_marks import TOOL

MAX_JUDGED = 1_000  # places of one reply that are judged; the rest of it counts as text

_FENCE = re.compile(r"(?P<run>`{3,20}|~{3,20})(?P<info>[^\n`]{0,80})")
_INFO = 80
_LISTED = re.compile(rf"(?::|{TURN_END.pattern})\Z")
_BARE = re.compile(r"\s*+(?>(?:>(?=[{\[]))?)[{\[\w]")


class Candidate(Struct, frozen=True):
    """A place where a call may begin."""

    start: int  # the index of the opener
    length: int  # of the opener
    rows: tuple[Format, ...]  # the formats to try, in this order
    fence: str = ""  # the backticks of a code fence


@dataclass(slots=True)
class _Skipped:
    """A stretch of text that is not searched for calls."""

    end: re.Pattern[str]  # the last part of the stretch
    partial: re.Pattern[str]  # the text's end, if it may begin `end`
    reasoning: bool = False  # the stretch is reasoning: `floor` moves after it


class Scanner:
    """Walks over a text, which may grow, from one candidate to the next.

    ``off``: names of formats to leave out.
    """

    def __init__(self, text: str, tools: ToolSet, off: frozenset[str] = frozenset()) -> None:
        self.text = text
        self._off = off
        self.tools = tools
        self.pos = 0  # text before this index is decided
        self.floor = 0  # index after the last call or reasoning; earlier text is ignored
        # Index after a tag that closes reasoning which no tag in this text opened, so that all text
        # before it was reasoning. -1: none since the last reset.
        self.reasoning_end = -1
        self.end = -1  # index of the tokens that end the reply; -1: none found so far
        self._shows_marks = False  # the decided text has marks, so one at its end may be quoted
        self._skipped: _Skipped | None = None  # the stretch that `pos` is in
        # Index of a JSON value at the reply's beginning that is already judged; -1: none.
        self._judged_json = -1
        self._judgements = 0

    def trim(self, keep: int) -> int:
        """Drop the decided text except its last ``keep`` characters; return the number dropped."""
        cut = max(self.pos - keep, 0)
        self.text = self.text[cut:]
        self.pos -= cut
        self.floor = max(self.floor - cut, 0)
        self.reasoning_end = max(self.reasoning_end - cut, -1)
        self._judged_json = max(self._judged_json - cut, -1)
        return cut

    def advance(self, final: bool) -> Candidate | None:
        """Advance ``pos`` to the next place where a call begins, or may begin with more text.

        ``final``: the text is complete; return the place as a candidate, None at the text's end.
        Otherwise return None.
        """
        undecided_start = len(self.text) if final else -1
        while True:
            if self._skipped is not None and not self._leave(final):
                return None
            if self._judgements > MAX_JUDGED:  # the rest counts as text
                self.pos = len(self.text)
                return None
            if (candidate := self._judge_json()) is not None:
                return candidate if final else None
            match = self._next_mark()
            if undecided_start < self.pos:
                undecided_start = self._beginning()
            # The beginning of a longer opener comes first, because the opener may cover the match.
            if match is None or match.start() >= undecided_start:
                self.pos = undecided_start
                return None
            judgement = self._judge(match, final)
            if judgement is None or isinstance(judgement, Candidate):
                self.pos = match.start()
                return judgement if final else None
            self.pos = judgement

    @property
    def idle(self) -> bool:
        """Whether all text is decided, nothing is skipped, and no bare JSON may begin here."""
        if self.pos < len(self.text) or self._skipped is not None:
            return False
        return not begins_reply(self.text, self.pos, self.floor)

    def _next_mark(self) -> re.Match[str] | None:
        """Return the next trigger; elements that are not named like a tool are ignored."""
        match = TRIGGER.search(self.text, self.pos)
        while match is not None and match["tag"] and match[0] not in own_tags(self.tools.names):
            match = TRIGGER.search(self.text, match.end())
        return match

    def _judge_json(self) -> Candidate | None:
        """Return a candidate for an unmarked call at the reply's beginning, or None."""
        value = _BARE.match(self.text, self.pos)
        start = value.end() - 1 if value else -1
        if (
            start < 0
            or start == self._judged_json
            or not begins_reply(self.text, start, self.floor)
        ):
            return None
        is_json = self.text[start] in "{["
        rows = ROWS[self.text[start]] if is_json else [WHOLE]
        if formats := self._possible_formats(rows, start, start + is_json):
            return Candidate(start, 1, formats)
        self._judged_json = start
        return None

    def reject(self, candidate: Candidate) -> None:
        """Continue after the opener of a candidate that no format could read."""
        self._judgements += 1
        self.pos = candidate.start + candidate.length
        self._shows_marks |= begins_calls(self.text[candidate.start : self.pos])
        if candidate.length == 1:
            self._judged_json = candidate.start
        if candidate.fence:
            self._skipped = _fence_end(candidate.fence)

    def extend(self, text: str) -> None:
        """Append text that has arrived."""
        self.text += text

    def _leave(self, final: bool) -> bool:
        """Move to the end of the skipped stretch; False if that end has not arrived yet."""
        assert self._skipped is not None
        end = self._skipped.end.search(self.text, self.pos)
        if end is not None:
            self.pos = end.end()
            if self._skipped.reasoning:
                self.floor = self.pos
            self._skipped = None
            return True
        partial = None if final else self._skipped.partial.search(self.text, self.pos)
        self.pos = partial.start() if partial else len(self.text)
        return False

    def _beginning(self) -> int:
        """Return the index from which on the text's end may begin an opener."""
        text, size = self.text, len(self.text)
        tag = text.rfind("<", max(self.pos, size - MAX_NAME - 2))
        if tag >= 0 and not may_become(own_tags(self.tools.names), text[tag:]):
            tag = -1
        if tag < 0 or not self._starts_line(tag):
            tag = size
        start = max(self.pos, size - LONGEST)
        while (match := BEGUN.search(text, start)) is not None:
            start = match.start()
            if text[start] not in LINE_STARTS or self._starts_line(start):
                return min(start, tag)
            start += 1
        return tag

    def _starts_line(self, index: int) -> bool:
        return context.starts_line(self.text, index, self.floor)

    def _judge(self, match: re.Match[str], final: bool) -> Candidate | int | None:
        """Return a candidate, or the index to continue from; None if more text is needed."""
        word, start, end = match.group(), match.start(), match.end()
        if word in FENCES:
            return self._judge_fence(start, final)
        if word in REASONING_ENDS:
            if not context.closing_quote(self.text, start, self.floor):
                self.reasoning_end = self.floor = end
            return self._count_judgement(end)
        if word in REASONING or word in SHOWN:
            return self._open(word, match)
        if word not in KNOWN and TURN_END.fullmatch(word):
            return self._judge_end(start, final)
        is_own_tag = word in own_tags(self.tools.names)
        rows = [*([TOOL] if is_own_tag else ()), *ROWS.get(word, ())]
        formats = self._possible_formats(rows, start, end)
        if not formats:
            self._shows_marks |= begins_calls(word)
            # A quote counts here, too: with less text, a call may have seemed possible.
            quote = context.closing_quote(self.text, start, self.floor)
            if not quote or not begins_calls(word):
                return self._count_judgement(start + 1)
            self._skipped = _skip_to(quote)
            return self._count_judgement(end)
        closer = context.closer_at(self.text, start, final, self.floor)
        if closer is None:
            return Candidate(start, len(word), formats)
        if not closer:
            return None
        self._skipped = _skip_to(closer)
        return self._count_judgement(end)

    def _judge_end(self, start: int, final: bool) -> int | None:
        """Remove tokens that end the reply, unless the text is about them."""
        text, run_end = self.text, after(TURN_END, self.text, start, KNOWN)
        index = skip_space(text, run_end)
        may_end = index == len(text) or (not final and _may_end_turn(text, index))
        spoken_of = start == 0 or text[start - 1] == " "
        if text[start - 1] == "\n":  # a list of tokens, or one that a colon introduces
            before = text[max(0, start - LONGEST) : start].rstrip()
            listed = "\n" in text[start:run_end] or _LISTED.search(before) is not None
            spoken_of = spoken_of or listed
        spoken_of = spoken_of or self._shows_marks
        if not may_end or spoken_of or context.closer_at(text, start, final, self.floor):
            self._shows_marks = True
            return self._count_judgement(run_end)
        if not final:
            return None
        self.end = start
        return len(text)

    def _possible_formats(self, rows: list[Format], start: int, end: int) -> tuple[Format, ...]:
        """Return the rows whose calls may begin here."""
        return tuple(
            row
            for row in rows
            if (self.tools or row.cleans)
            and row.name not in self._off
            and (row.where is not Where.LINE or self._starts_line(start))
            and (row.where is not Where.FIRST_FENCE or begins_reply(self.text, start, self.floor))
            and (row.follow is None or row.follow(self.text, end, self.tools))
        )

    def _open(self, word: str, match: re.Match[str]) -> int:
        """Skip the reasoning or shown text that a tag opens, unless the tag is only quoted."""
        if not context.closing_quote(self.text, match.start(), self.floor):
            closer = REASONING.get(word)
            self._skipped = _skip_to(closer or SHOWN[word], closer is not None)
        return self._count_judgement(match.end())

    def _judge_fence(self, start: int, final: bool) -> Candidate | int | None:
        """Judge a code fence: a candidate if a fenced format may begin, else code to skip."""
        fence = _FENCE.match(self.text, start)
        if fence is None or not self._starts_line(start):
            return self._count_judgement(start + 3)
        run, info, end = fence.group("run"), fence.group("info").strip(), fence.end()
        if end == len(self.text) and not final and len(info) < _INFO:
            return None
        if self.text.startswith("`", end):
            return self._count_judgement(end)  # inline code in three backticks
        rows = ROWS.get("```" + info.lower(), []) if run[0] == "`" else []
        if formats := self._possible_formats(rows, start, end):
            return Candidate(start, end - start, formats, run)
        self._skipped = _fence_end(run)
        return self._count_judgement(end)

    def _count_judgement(self, end: int) -> int:
        self._judgements += 1
        return end


def _may_end_turn(text: str, index: int) -> bool:
    """Whether the text's end, from ``index`` on, may continue as a token that ends a turn."""
    begun = text[index : index + LONGEST]
    return bool(VENDOR_MARK_BEGUN.match(begun)) or any(end.startswith(begun) for end in PLAIN_ENDS)


def _skip_to(closer: str, reasoning: bool = False) -> _Skipped:
    """Skip up to ``closer``; if that is a single character, at most to the line's end."""
    end = re.escape(closer) if len(closer) > 1 else f"[{re.escape(closer)}\n]"
    beginnings = "|".join(re.escape(closer[:size]) for size in range(len(closer), -1, -1))
    return _Skipped(re.compile(end), re.compile(rf"(?:{beginnings})\Z"), reasoning)


def _fence_end(run: str) -> _Skipped:
    mark = re.escape(run[0])
    return _Skipped(
        re.compile(rf"^[ \t]*{mark}{{{len(run)},}}[ \t]*(?=\n)", re.MULTILINE),
        re.compile(rf"^[ \t]*{mark}*[ \t]*\Z", re.MULTILINE),
    )
