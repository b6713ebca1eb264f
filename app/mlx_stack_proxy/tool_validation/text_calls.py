"""Finds tool calls that a model wrote as text, and turns them into real calls.

``Holdback`` reads a reply that is still arriving, ``rescue`` a whole one, through a ``Holdback``.
A ``Scanner`` finds the places where a call may begin; the formats that may begin there, rows of
``formats/table.py``, are tried in order. The judgement is conservative: only names of the request's
tools count, and never inside reasoning, quotes, code or an example. A text without calls comes back
unchanged, except for tokens at its end with which templates end a turn, and for the marks of a
format that has channels for text. These are removed from any reply, even if no tools are offered.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from ..wire.call import Call
from .formats.base import (
    LEFTOVER_MARKS,
    MAX_CALLS,
    WINDOW,
    Exhausted,
    Source,
    Where,
    after,
    begins_reply,
    json_object,
    skip_space,
)
from .formats.python_calls import follow_whole
from .formats.scanner import Candidate, Scanner
from .formats.table import KNOWN, SIGN, SPECIAL, TRIGGER, begins_calls
from .tools import ToolSet

# Each chunk makes the scanner check the undecided text again. If it exceeds this many characters,
# all text waits for the reply's end; more blanks at the reply's beginning flow instead.
PATIENCE = 1_024
MAX_THOUGHT = 8_000  # characters at the end of reasoning that are searched for calls
MAX_MARKS = 8  # the last marks in it that are tried
NONE: frozenset[str] = frozenset()


class Rescued(Struct, frozen=True):
    """The calls of a text, in order, and the text around them."""

    calls: tuple[Call, ...]  # with names as the request has them; arguments: raw text if unreadable
    # The whole text, unchanged, if there are no calls; else the non-blank pieces before, between
    # and after the calls.
    content: str
    # Names of calls, in a marked format or next to known calls, that no tool of the request has.
    # A block with a known call is completely removed from `content`, any other block stays.
    unknown: tuple[str, ...] = ()
    # The first name of unmarked calls that no tool of the request has; "": there is none.
    unoffered: str = ""


def rescue(text: str, tools: ToolSet, off: frozenset[str] = NONE) -> Rescued:
    """Split ``text`` into its calls and the text around them; ``off``: formats to leave out.

    Never raises.
    """
    if is_prose(text, tools):
        return Rescued((), text)
    return _Collector(Scanner(text, tools, off), 0).collect()


def is_prose(text: str, tools: ToolSet) -> bool:
    """Whether a whole text has no sign of a call, nor of anything else that is removed."""
    if not tools:
        return SIGN.search(text) is None
    start = skip_space(text, 0)
    bare = text.startswith("{", start) or follow_whole(text, start, tools)
    return not bare and SPECIAL.search(text) is None


def rescue_cut(text: str, tools: ToolSet, off: frozenset[str] = NONE) -> Rescued:
    """Like ``rescue``, for a text cut by a length limit: drop text that may be half a call.

    The last call counts as complete only if its arguments are a JSON object that the model closed
    itself: after tags or keywords more might have followed, and half a file must not be written.
    """
    rescued = rescue(text, tools, off)
    content = rescued.content
    half = Scanner(content, tools, off=off).advance(final=True) if tools else None
    if half is not None and all(row.where is Where.MARK for row in half.rows):
        content = content[: half.start]
    return Rescued(whole_calls(rescued, text), content, rescued.unknown)


def rescue_thought(thought: str, tools: ToolSet, off: frozenset[str] = NONE) -> Rescued:
    """Return the marked calls that end a reasoning text, and the reasoning before them.

    Any other text stays reasoning.
    """
    searched = max(0, len(thought) - MAX_THOUGHT)
    marks = (mark for mark in TRIGGER.finditer(thought, searched) if begins_calls(mark[0]))
    for mark in deque(marks, MAX_MARKS):
        rescued = rescue(thought[mark.start() :], tools, off)
        if rescued.calls and not rescued.content.strip() and not rescued.unknown:
            return replace(rescued, content=thought[: mark.start()])
    return Rescued((), thought)


def whole_calls(rescued: Rescued, text: str) -> tuple[Call, ...]:
    """Return the calls of a cut text, without a last one that may be incomplete."""
    if not rescued.calls:
        return ()
    earlier, last_call = rescued.calls[:-1], rescued.calls[-1]
    end = 0  # index after the arguments of the earlier calls
    for call in earlier:
        index = text.find(call.arguments, end)
        end = index + len(call.arguments) if index >= 0 else end
    if last_call.arguments == "{}":  # the formats also make `{}` of missing arguments
        end = max(end, text.find(last_call.name, end))
    written = text.find(last_call.arguments, end) >= 0
    return rescued.calls if written and json_object(last_call.arguments) is not None else earlier


class Holdback:
    """Lets a reply's text through as it arrives, unless the text may become a call.

    Prose flows at once. The possible beginning of a mark waits until more text has decided it;
    from a mark on, all text waits for ``finish``. Whitespace at the reply's beginning waits for
    the next character.

    However a text is split into deltas, the results of ``feed`` and the content of ``finish`` add
    up to ``rescue(text).content``, and the calls are the same.
    """

    __slots__ = ("_held", "_is_prose", "_nothing_flowed", "_scanner", "_special")

    def __init__(self, tools: ToolSet, off: frozenset[str] = NONE) -> None:
        self._scanner = Scanner("", tools, off=off)
        self._special = SPECIAL if tools else SIGN
        self._nothing_flowed = True  # no text has flowed yet: at most whitespace is decided
        self._is_prose = False  # all text is decided, and no unmarked call may begin
        self._held: list[str] | None = None  # deltas that wait for the reply's end

    def feed(self, delta: str) -> str:
        """Add the next delta; return the text that may flow now, "" while it may become a call."""
        scanner = self._scanner
        if self._held is not None:
            self._held.append(delta)
            return ""
        if self._is_prose and self._special.search(delta) is None:
            # The usual case: no mark can begin in this delta.
            scanner.extend(delta)
            scanner.pos = len(scanner.text)
            if scanner.pos > 4 * WINDOW:
                scanner.trim(WINDOW)
            return delta
        start = self._start()
        scanner.extend(delta)
        scanner.advance(final=False)
        if len(scanner.text) - scanner.pos > PATIENCE:
            self._held = []
        flowing = scanner.text[start : scanner.pos]
        if self._nothing_flowed and (
            not flowing or (flowing.isspace() and len(flowing) <= PATIENCE)
        ):
            return ""
        self._nothing_flowed = False
        self._is_prose = scanner.idle
        # Later decisions look back at the last characters. Trimming copies the text, so trim
        # rarely.
        if scanner.pos > 4 * WINDOW:
            scanner.trim(WINDOW)
        return flowing

    def finish(self) -> Rescued:
        """Return the calls in the text still held, and the text around them; call it once."""
        start = self._start()
        self._scanner.extend("".join(self._held or ()))
        return _Collector(self._scanner, start).collect()

    def _start(self) -> int:
        """Return the index of the first character that has not flowed."""
        return 0 if self._nothing_flowed else self._scanner.pos


class _Collector:
    """Reads all calls of a complete text."""

    def __init__(self, scanner: Scanner, start: int) -> None:
        self._scanner = scanner
        self._src = Source(scanner.text, scanner.tools)
        self._start = start  # index of the first character that has not flowed
        self._last_end = start  # index after the last call
        self._pieces: list[str] = []  # the text around the calls so far
        self._calls: list[Call] = []
        self._unknown: list[str] = []
        self._unoffered = ""

    def collect(self) -> Rescued:
        scanner = self._scanner
        candidate = scanner.advance(final=True)
        # Whether only blanks of the reply have flowed before a call may begin.
        begins = candidate is not None and begins_reply(scanner.text, candidate.start)
        with suppress(Exhausted):
            while candidate is not None and len(self._calls) < MAX_CALLS:
                self._src.floor = scanner.floor
                self._forget_reasoning()
                self._take(candidate)
                candidate = scanner.advance(final=True)
            self._forget_reasoning()
        text = scanner.text if scanner.end < 0 else scanner.text[: scanner.end]
        unknown = tuple(dict.fromkeys(self._unknown))
        if not self._pieces:
            return Rescued((), text[self._start :], unknown, self._unoffered)
        self._pieces.append(text[self._last_end :])
        first_piece, *others = self._pieces
        if begins and (first_piece.lstrip() == ">" or _is_leftover(first_piece)):
            first_piece = ""
        content = first_piece + "".join(piece for piece in others if not _is_leftover(piece))
        return Rescued(tuple(self._calls), content, unknown)

    def _forget_reasoning(self) -> None:
        """Drop the calls before an end of reasoning: they were reasoning, so their text stays.

        This happens only for a closing tag without an opening one, which the chat template has
        written.
        """
        if self._scanner.reasoning_end > self._last_end and self._pieces:
            self._pieces.clear()
            self._calls.clear()
            self._unknown.clear()
            self._unoffered = ""
            self._src.ends = None
            self._last_end = self._start
        self._scanner.reasoning_end = -1

    def _take(self, candidate: Candidate) -> None:
        """Add the calls of the first format that reads a block; skip a block without calls."""
        scanner, tools = self._scanner, self._src.tools
        for row in candidate.rows:
            try:
                block = row.read(self._src, candidate.start)
            except Exhausted:
                raise
            except Exception:  # a reader may raise anything
                block = None
            if block is None or block.end <= candidate.start:
                continue
            # A model can escape half a character, which an error could not be encoded with.
            names = [call.name.encode("utf-8", "replace").decode() for call in block.calls]
            named = list(zip(map(tools.tool_named, names), names, block.calls, strict=True))
            known = [Call(name, call.arguments, format=row.name) for name, _, call in named if name]
            unknown = [given for name, given, _ in named if name is None and tools]
            if known or row.where is Where.MARK:
                self._unknown += unknown
            elif unknown:
                self._unoffered = self._unoffered or unknown[0]
            if known or block.cleaned:
                self._pieces.append(scanner.text[self._last_end : candidate.start])
                if block.text:
                    self._pieces.append(block.text)
                self._calls += known
                self._src.ends = row.ends
                end = after(LEFTOVER_MARKS, scanner.text, block.end, KNOWN) if known else block.end
                self._last_end = scanner.pos = scanner.floor = end
            else:
                scanner.reject(candidate)
                scanner.pos = max(scanner.pos, block.end)
            return
        scanner.reject(candidate)


def _is_leftover(piece: str) -> bool:
    """Whether the text around calls is only blanks and leftover marks."""
    return not piece[after(LEFTOVER_MARKS, piece, 0) :].strip()
