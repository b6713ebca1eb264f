"""The parts of every format: the text being read, the calls found in it, a row of the table.

A format is a ``Format`` row: the openers with which its calls begin, and a reader. The reader gets
a ``Source`` and the index of an opener, and returns a ``Block`` of calls or None. A failed reading
is charged to the source's budget by the characters that it examined, so hostile text can't make
the readers examine the same characters again and again.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Container, Iterable
from typing import Any

from msgspec import Struct

from ...wire.call import Call
from ...wire.json_reader import JsonReader
from ...wire.json_text import Unreadable, write
from ..tools import ToolSet

# Characters that failed readings of one reply may examine; after that, the rest of the reply stays
# text. Successful readings are free: they consume what they read, so they are linear anyway.
READING_BUDGET = 2_000_000
# More calls than this in one reply are a loop, not a plan; the rest of the reply stays text.
MAX_CALLS = 256
# How many characters before a position are considered, in a whole text and in a stream alike.
WINDOW = 400

# A pattern of the tags that close a call or a value in formats with tags.
CLOSING_TAG = r"</(?:tool_calls?|function|invoke|parameter|arg_value)>"
# The opening lines of fences that contain only calls.
FENCES = ("```tool_code", "```tool_call", "```tool_calls")
# Any vendor's template token: each year brings new ones.
LONGEST_MARK = 44
VENDOR_MARK = r"<[|｜][^\s<>|｜]{1,40}[|｜]>|\[\|\w{1,40}\|\]"
# The end of a text that may continue as such a token.
VENDOR_MARK_BEGUN = re.compile(r"(?:<(?:[|｜][^\s<>|｜]{0,40}[|｜]?)?|\[(?:\|\w{0,40}\|?)?)\Z")
# Templates end a turn with a token, or with one of these, which at a text's end are always
# leftovers of the server.
PLAIN_ENDS = ("</s>", "<end_of_turn>", "<turn|>", "<seed:eos>", "[e~[")
TURN_END = re.compile(rf"{VENDOR_MARK}|{'|'.join(map(re.escape, PLAIN_ENDS))}")
# These, closing tags, and other leftovers of servers after calls.
LEFTOVER_MARKS = re.compile(
    rf"{TURN_END.pattern}|{CLOSING_TAG}|</(?:function_calls?|tool_use|use_tool|use_mcp_tool)>|<s>"
    r"|<start_function_response>"
)


Reading = tuple[list[Call], int] | None  # calls, and the index after them
Head = re.Match[str]  # what precedes a call's arguments
Stop = re.Pattern[str]  # marks that end a call


class Exhausted(Exception):
    """The reading budget is used up: the rest of the reply stays text."""


class Block(Struct, frozen=True):
    """A stretch of text that a reader has read."""

    end: int  # the index after the block
    calls: tuple[Call, ...]  # with names as the model wrote them; none: the scanner skips the block
    text: str = ""  # prose inside the block, which stays in the reply's content
    cleaned: bool = False  # `text` replaces the block, though it has no calls


class Source:
    """The text of a reply and the tools of its request; searches take linear time in total.

    ``floor``: the index after the last reasoning or call; no decision looks before it.
    """

    __slots__ = ("_searches", "budget", "ends", "floor", "text", "tools")

    def __init__(self, text: str, tools: ToolSet) -> None:
        self.text = text
        self.tools = tools
        self.floor = 0
        # The last marked format's marks that close calls: a call before one is an echo.
        self.ends: Stop | None = None
        self.budget = READING_BUDGET  # characters that failed readings may still examine
        # Needle → where its last search began, and the index found (-1: none).
        self._searches: dict[str | re.Pattern[str], tuple[int, int]] = {}

    def find(self, needle: str | re.Pattern[str], start: int) -> int:
        """Like ``text.find``; caches the last result, so a missing closer is searched only once."""
        cached = self._searches.get(needle)
        if cached is not None:
            searched_from, index = cached
            if searched_from <= start and (index < 0 or start <= index):
                return index
        if isinstance(needle, str):
            index = self.text.find(needle, start)
        else:
            match = needle.search(self.text, start)
            index = match.start() if match else -1
        self._searches[needle] = (start, index)
        return index

    def find_stop(self, stop: re.Pattern[str], start: int) -> int:
        """Return the index of the next mark; the text's length if there is none."""
        index = self.find(stop, start)
        return index if index >= 0 else len(self.text)

    def spend(self, characters: int) -> None:
        """Charge characters that a failed reading examined; raise ``Exhausted`` at the limit."""
        self.budget -= characters
        if self.budget < 0:
            raise Exhausted

    def is_whole_reply(self, start: int, end: int) -> bool:
        """Whether only blanks, reasoning and leftover marks surround ``start`` to ``end``."""
        echoes = self.ends is not None and self.ends.match(self.text, skip_space(self.text, end))
        tail_end = end if echoes else after(LEFTOVER_MARKS, self.text, end)
        return begins_reply(self.text, start, self.floor) and not self.text[tail_end:].strip()


def after(marks: Stop, text: str, pos: int, but: Container[str] = ()) -> int:
    """Return the index after consecutive ``marks`` at ``pos``, none of which is in ``but``."""
    while (mark := marks.match(text, skip_space(text, pos))) and mark[0] not in but:
        pos = mark.end()
    return pos


def begins_reply(text: str, pos: int, floor: int = 0) -> bool:
    """Whether only blanks, fewer than ``WINDOW``, separate ``floor`` and ``pos``.

    A ``>`` right before ``pos``, the end of an otherwise lost mark, counts as a blank.
    """
    return pos - floor < WINDOW and text[floor:pos].lstrip() in ("", ">")


class Where(enum.Enum):
    """Where in a reply a format's opener counts: never in quotes, inline code or reasoning."""

    MARK = "mark"  # anywhere
    LINE = "line"  # only at the start of a line
    JSON = "json"  # a bracket without a mark: only if the calls are the whole reply
    FENCE = "fence"  # the opening line of a code fence
    FIRST_FENCE = "first fence"  # one that begins the reply


Reader = Callable[[Source, int], Block | None]  # gets the index of the opener
Follow = Callable[[str, int, ToolSet], bool]  # gets the text, and the index after the opener


class Format(Struct, frozen=True):
    """One row of the table."""

    name: str  # the label for metrics
    openers: tuple[str, ...]  # a call begins with one of these
    read: Reader  # returns None if no call stands there; may raise any exception
    where: Where = Where.MARK
    # Whether a call may begin, by the text after the opener so far. False is final: it must hold
    # for every longer text, too.
    follow: Follow | None = None
    ends: Stop | None = None  # the marks that close a call
    cleans: bool = False  # whether the reader also removes a format's marks from plain text


def one_of(text: str, pos: int, words: tuple[str, ...]) -> bool:
    """Whether one of ``words`` is at ``pos``, or may be there once more text has arrived."""
    if text.startswith(words, pos):
        return True
    tail = text[pos : pos + max(map(len, words), default=0)]
    return pos + len(tail) == len(text) and any(item.startswith(tail) for item in words)


_PLAIN_TAG = re.compile(r"<\w+>")
_WORD = re.compile(r"[^\s<>(){}\[\]\"'`]+")
_AFTER_NAME = re.compile(r"[({\[<]|[\w.-]++(?:=|\Z)|\Z")


def follow_mark(text: str, pos: int, tools: ToolSet) -> bool:
    """Whether a call may follow a mark: any text, unless the mark is a tag that prose may mention.

    Such a tag must be followed by JSON, a tag, or a name; the name by a bracket, a tag or ``key=``.
    """
    if _PLAIN_TAG.fullmatch(text, text.rfind("<", max(0, pos - 40), pos), pos) is None:
        return True
    index = skip_space(text, pos)
    if index == len(text) or text[index] in "[{<\"'`":
        return True
    name = _WORD.match(text, index)
    return name is not None and bool(_AFTER_NAME.match(text, skip_space(text, name.end())))


NEVER = "(?!)"  # a pattern that matches nothing
# Reads what follows a call's head. The pattern of marks limits arguments that can't be parsed.
Body = Callable[[Source, Head, Stop], Reading]


def marked(
    name: str,
    openers: tuple[str, ...],
    head: str,
    body: Body,
    ends: str = NEVER,
    *,
    stop: str = NEVER,
    around: str = NEVER,
    where: Where = Where.MARK,
    follow: Follow | None = follow_mark,
) -> Format:
    """Make the row of a format with marks: calls of a head, a body and closing marks each.

    ``head``, ``ends`` and ``stop`` are patterns: what stands before a call's arguments (the group
    ``name`` is the tool's); the marks that close a call, each of which may be missing; and further
    marks before which arguments that can't be read end. ``around``: marks that close all calls.
    """
    heads = re.compile(head)
    stops = re.compile(f"{ends}|{stop}")
    closer = re.compile(f"{ends}|{around}")

    def read(src: Source, start: int) -> Block | None:
        def read_one(pos: int) -> Reading:
            pos = skip_space(src.text, pos)
            if pos > start and src.text.startswith(openers, pos):
                return None  # the next call is a block of its own
            match = heads.match(src.text, pos)
            reading = body(src, match, stops) if match else None
            if reading is None:
                return None
            calls, end = reading
            while closing := closer.match(src.text, skip_space(src.text, end)):
                end = closing.end()
            return calls, end

        calls, end = read_all(read_one, start)
        return Block(end, tuple(calls)) if calls else None

    return Format(name, openers, read, where, follow, re.compile(ends))


def read_all(read_one: Callable[[int], Reading], start: int) -> tuple[list[Call], int]:
    """Return consecutive calls from ``start`` on, and the index after them."""
    calls: list[Call] = []
    end = start
    while len(calls) < MAX_CALLS and (reading := read_one(end)) is not None:
        calls += reading[0]
        end = reading[1]
    return calls, end


def alternatives(*marks: str) -> str:
    """Return a pattern for one of these marks."""
    return "|".join(map(re.escape, marks))


def end_or(match: re.Match[str] | None, pos: int) -> int:
    """Return the index after a match at ``pos``; ``pos`` if there is no match."""
    return match.end() if match else pos


# Single values: JSON as models write it, and the JSON text of objects

BRACKETS = frozenset({"missing_closer", "extra_closer"})
_SPACE = re.compile(r"\s*")


def skip_space(text: str, pos: int) -> int:
    """Return the index of the first character from ``pos`` on that is not whitespace."""
    return end_or(_SPACE.match(text, pos), pos)


def object_of(members: Iterable[tuple[str, Any]]) -> str:
    """Return an object's JSON text. A repeated key stays repeated, for the check to report."""
    return "{" + ", ".join(f"{write(key)}: {write(value)}" for key, value in members) + "}"


def json_object(text: str) -> dict[str, Any] | None:
    """Return the object in strict JSON ``text``; None for any other text."""
    try:
        value = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_members(src: Source, pos: int, mark: str = "") -> tuple[dict[str, Any], int] | None:
    """Read the JSON object at ``pos``: its members and the index after it; None if there is none.

    The reading is lenient (see ``wire.json_reader``; ``mark`` is Gemma's quotation mark), except
    for brackets, which the check of arguments judges, and for a key with two values.
    """
    reader = JsonReader(src.text, pos, mark=mark)
    try:
        value = reader.value()
    except (Unreadable, RecursionError):
        src.spend(max(reader.position - pos, 0) + 1)
        return None
    if not isinstance(value, dict) or not BRACKETS.isdisjoint(reader.used):
        src.spend(reader.position - pos)
        return None
    return value, reader.position
