"""Find the places where calls may begin, in a whole text or in one that is still arriving.

``TRIGGER`` finds the next mark, fence, or tag of reasoning or shown text. The scanner judges it:
it skips quoted text, code and reasoning, and returns a ``Candidate`` with the formats whose call
may begin there. Text before ``pos`` is decided; text that may become a mark stays from ``pos`` on.
Beyond ``MAX_JUDGED`` judgements the rest is taken as text, so a hostile reply costs bounded time.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ...wire.call import Call
from ...wire.thoughts import REASONING, REASONING_ENDS
from ..names import MAX_NAME
from ..tools import ToolSet
from . import context
from .base import (
    PLAIN_ENDS,
    TURN_END,
    VENDOR_MARK_BEGUN,
    Format,
    Source,
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
    own_tags,
)
from .tag_marks import TOOL

MAX_JUDGED = 1_000  # places of one reply that are judged before the rest of it is taken as text

_FENCE = re.compile(r"(?P<run>`{3,20}|~{3,20})(?P<info>[^\n`]{0,80})")
_INFO = 80
_LISTED = re.compile(rf"(?::|{TURN_END.pattern})\Z")
_BARE = re.compile(r"\s*+(?:>(?=[{\[]))?+[{\[\w]")


class Candidate(NamedTuple):
    """A place where a call may begin."""

    start: int  # index of the opener
    end: int  # the index after it
    rows: tuple[Format, ...]  # the formats to try, in this order
    fence: str = ""  # the backticks of a code fence


class Taken(NamedTuple):
    """A stretch of text that is replaced by calls, and by the prose inside it."""

    start: int
    end: int
    text: str
    calls: list[Call]


class Scanner(Source):
    """Walks over a text, which may grow, from one candidate to the next.

    ``off``: names of formats to leave out. ``final``: the text is complete.
    """

    def __init__(
        self, text: str, tools: ToolSet, off: frozenset[str] = frozenset(), *, final: bool = False
    ) -> None:
        super().__init__(text, tools)
        self.final = final
        self.pos = 0  # all text before this index is decided
        self.end = -1  # index of the tokens that end the reply; -1: none do, as far as is known
        self.taken: list[Taken] = []  # the calls so far, and the text that they replace
        # Names of calls that no tool has: in a marked format or next to known calls; the first one
        # without a mark.
        self.unknown: dict[str, None] = {}
        self.unoffered = ""
        self._off = off
        self._shows_marks = False  # the decided text has marks in it: one at its end may be shown
        self._skipped: re.Pattern[str] | None = None  # ends the stretch that `pos` is in
        self._judgements = 0

    def advance(self) -> Candidate | None:
        """Move ``pos`` to the next place where a call begins or may begin once more text has come.

        Return the place if the text is complete and does not end before it.
        """
        final = self.final
        undecided_start = len(self.text) if final else -1
        while True:
            if self._skipped is not None and not self._leave(self._skipped):
                return None
            if self._judgements > MAX_JUDGED:  # take the rest as text
                self.pos = len(self.text)
                return None
            if (candidate := self._judge_bare()) is not None:
                return candidate if final else None
            match = self._next_mark()
            if undecided_start < self.pos:
                undecided_start = self._beginning()
            # The beginning of a longer opener comes first, because the opener may cover the match.
            if match is None or match.start() >= undecided_start:
                self.pos = undecided_start
                return None
            judgement = self._judge(match)
            if not isinstance(judgement, int):
                self.pos = match.start()
                return judgement if final else None
            self._judgements += 1
            self.pos = judgement

    def reject(self, candidate: Candidate) -> None:
        """Go on after the opener of a candidate that no format could read."""
        self._judgements += 1
        self.pos = candidate.end
        self._shows_marks |= begins_calls(self.text[candidate.start : self.pos])
        if candidate.fence:
            self._skipped = _fence_end(candidate.fence)

    def _leave(self, skipped: re.Pattern[str]) -> bool:
        """Move to the end of the skipped stretch; False if that end has not come yet."""
        match = skipped.search(self.text, self.pos)
        if match is None or not match["end"]:
            self.pos = len(self.text) if match is None or self.final else match.start()
            return False
        self.pos, self._skipped = match.end(), None
        if match["end"] in REASONING.values():
            self.floor = self.pos
        return True

    def _next_mark(self) -> re.Match[str] | None:
        """Return the next trigger; an element that no tool is named as is none."""
        match = TRIGGER.search(self.text, self.pos)
        while match is not None and match["tag"] and match[0] not in own_tags(self.tools.names):
            match = TRIGGER.search(self.text, match.end())
        return match

    def _beginning(self) -> int:
        """Return the index from which the text's end may be the beginning of an opener."""
        text, size = self.text, len(self.text)
        tag = text.rfind("<", max(self.pos, size - MAX_NAME - 2))
        begun = text[tag:] if tag >= 0 else "-"  # no tag begins so
        own = any(one.startswith(begun) for one in own_tags(self.tools.names))
        if not own or not self._starts_line(tag):
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

    def _judge_bare(self) -> Candidate | None:
        """Return a candidate for a call without a mark at the reply's beginning, else None."""
        value = _BARE.match(self.text, self.pos)
        start = value.end() - 1 if value else -1
        if start < 0 or not begins_reply(self.text, start, self.floor):
            return None
        is_json = self.text[start] in "{["
        rows = self._possible(
            ROWS[self.text[start]] if is_json else [WHOLE], start, start + is_json
        )
        return Candidate(start, start + 1, rows) if rows else None

    def _judge(self, match: re.Match[str]) -> Candidate | int | None:
        """Return a candidate, or the index to go on from; None if more text must come first."""
        word, (start, end) = match[0], match.span()
        if word in FENCES:
            return self._judge_fence(start)
        if word not in KNOWN and TURN_END.fullmatch(word):
            return self._judge_end(start)
        if word in REASONING_ENDS:
            if not context.closing_quote(self.text, start, self.floor):
                self.floor = end  # no tag in the text began the reasoning: all before was thoughts
                self.taken, self.unknown, self.unoffered, self.ends = [], {}, "", None
            return end
        if closer := REASONING.get(word) or SHOWN.get(word):
            if not context.closing_quote(self.text, start, self.floor):
                self._skipped = _up_to(closer)
            return end
        own = [TOOL] if word in own_tags(self.tools.names) else []
        rows = self._possible([*own, *ROWS.get(word, ())], start, end)
        if not rows:
            self._shows_marks |= begins_calls(word)
            return start + 1
        closer = context.closer_at(self.text, start, self.final, self.floor)
        if not closer:
            return Candidate(start, end, rows) if closer is None else None
        self._skipped = _up_to(closer)
        return end

    def _judge_end(self, start: int) -> int | None:
        """Cut tokens off that end the reply, unless the text speaks of them."""
        text, run_end = self.text, after(TURN_END, self.text, start, KNOWN)
        rest = text[skip_space(text, run_end) :][:LONGEST]
        may_end = not rest or (
            not self.final
            and (VENDOR_MARK_BEGUN.match(rest) or any(end.startswith(rest) for end in PLAIN_ENDS))
        )
        spoken_of = self._shows_marks or start == 0 or text[start - 1] == " "
        if text[start - 1] == "\n":  # a list of tokens, or one that a colon announces
            before = text[max(0, start - LONGEST) : start].rstrip()
            spoken_of |= "\n" in text[start:run_end] or _LISTED.search(before) is not None
        if not may_end or spoken_of or context.closer_at(text, start, self.final, self.floor):
            self._shows_marks = True
            return run_end
        if not self.final:
            return None
        self.end = start
        return len(text)

    def _judge_fence(self, start: int) -> Candidate | int | None:
        """Judge a code fence: a candidate if a fenced format may begin, else code to skip."""
        fence = _FENCE.match(self.text, start)
        if fence is None or not self._starts_line(start):
            return start + 3
        run, info, end = fence["run"], fence["info"].strip(), fence.end()
        if end == len(self.text) and not self.final and len(info) < _INFO:
            return None
        if self.text.startswith("`", end):
            return end  # inline code in three backticks
        rows = ROWS.get("```" + info.lower(), []) if run[0] == "`" else []
        if possible := self._possible(rows, start, end):
            return Candidate(start, end, possible, run)
        self._skipped = _fence_end(run)
        return end

    def _possible(self, rows: list[Format], start: int, end: int) -> tuple[Format, ...]:
        """Return the rows whose calls may begin here."""
        return tuple(
            row
            for row in rows
            if (self.tools or row.cleans)
            and row.name not in self._off
            and (row.where is not Where.LINE or self._starts_line(start))
            and (row.follow is None or row.follow(self.text, end, self.tools))
        )


def _up_to(closer: str) -> re.Pattern[str]:
    """Skip up to ``closer``; if that is a single character, at most to the line's end."""
    if len(closer) == 1:
        return re.compile(f"(?P<end>[{re.escape(closer)}\n])")
    begun = "|".join(re.escape(closer[:size]) for size in range(len(closer) - 1, 0, -1))
    return re.compile(rf"(?P<end>{re.escape(closer)})|(?:{begun})\Z")


def _fence_end(run: str) -> re.Pattern[str]:
    mark = re.escape(run[0])
    end = rf"{mark}{{{len(run)},}}[ \t]*(?=\n)"
    return re.compile(rf"^[ \t]*(?:(?P<end>{end})|{mark}*[ \t]*\Z)", re.MULTILINE)
