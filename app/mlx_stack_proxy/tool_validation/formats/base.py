"""What every format is made of: the text being read, the calls found in it, a row of the table."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from ...frozen import frozen
from ...wire.json_text import Unreadable
from ...wire.lenient_json import Reader as JsonReader
from ..tools import ToolSet

# Characters that failed readings may look at, in all, before the rest of a reply is taken as text.
# Successful readings are not counted: they consume what they read, so they are linear anyway.
READING_BUDGET = 2_000_000
# More calls than this in one reply are no plan but a loop; the rest of the reply stays text.
MAX_CALLS = 256
# How much of the text before a place is looked at. The same for a whole text and for a stream.
WINDOW = 400

# What is left behind calls where a server doesn't strip it: ends of messages, closing tags.
_TAIL = re.compile(
    r"(?:\s*+(?:</tool_calls?>|</?s>|<\|(?:im_end|eot_id|eom_id|end|return|call|endoftext"
    r"|end_of_text|end_message|stop|END_OF_TURN_TOKEN)\|>|<｜end▁of▁sentence｜>|<end_of_turn>"
    r"|<turn\|>|<start_function_response>|<\|END_ACTION\|>))*+"
)


class Exhausted(Exception):
    """The reading budget is used up: what follows stays text."""


@frozen
class Call:
    """A call as written: `name` not yet matched to a tool, `arguments` JSON text (or raw text)."""

    name: str
    arguments: str


@frozen
class Block:
    """A stretch of text that holds calls; without any, one that is not to be searched for them.

    `end` is the index after it, `text` what of the inside is prose for the reader of the reply.
    """

    end: int
    calls: tuple[Call, ...]
    text: str = ""


class Source:
    """The text of a reply and the tools of its request, with searches that stay linear in all.

    `floor`: the index behind reasoning and calls; what stands before it says nothing.
    """

    __slots__ = ("_found", "budget", "floor", "text", "tools")

    def __init__(self, text: str, tools: ToolSet, floor: int = 0) -> None:
        self.text = text
        self.tools = tools
        self.floor = floor
        self.budget = READING_BUDGET
        self._found: dict[str, tuple[int, int]] = {}

    def find(self, needle: str, start: int) -> int:
        """Like `text.find`; remembers the last answer, so a missing closer is looked for once."""
        known = self._found.get(needle)
        if known is not None:
            since, at = known
            if since <= start and (at < 0 or start <= at):
                return at
        at = self.text.find(needle, start)
        self._found[needle] = (start, at)
        return at

    def find_first(self, needles: tuple[str, ...], start: int) -> int:
        """The lowest index of any of `needles`, or the length of the text where there is none."""
        hits = [at for at in (self.find(needle, start) for needle in needles) if at >= 0]
        return min(hits) if hits else len(self.text)

    def spend(self, characters: int) -> None:
        """Count characters that a reading looked at in vain. Raises Exhausted at the limit."""
        self.budget -= characters
        if self.budget < 0:
            raise Exhausted

    def is_whole_reply(self, start: int, end: int) -> bool:
        """Whether nothing but blanks stands before `start` and behind `end`, reasoning aside."""
        behind = behind_tail(self.text, end)
        return begins_reply(self.text, start, self.floor) and not self.text[behind:].strip()


def behind_tail(text: str, pos: int) -> int:
    """The index behind what a server left after a call that ends at `pos`."""
    return behind(_TAIL.match(text, pos), pos)


def begins_reply(text: str, pos: int, floor: int = 0) -> bool:
    """Whether nothing but some blanks stands between `floor` and `pos`."""
    return pos - floor < WINDOW and not text[floor:pos].strip()


class Where(enum.Enum):
    """Where in a reply a format's opener counts; never in quotes, inline code and reasoning."""

    MARK = "mark"  # anywhere
    LINE = "line"  # only at the start of a line
    JSON = "json"  # no mark: only where the calls are the whole reply
    FENCE = "fence"  # the opening line of a code fence


Reader = Callable[[Source, int], Block | None]
One = Callable[[Source, int], "tuple[list[Call], int] | None"]  # calls, and the index behind them
Follow = Callable[[str, int, ToolSet], bool]


@frozen
class Format:
    """One row of the table.

    `name` is the label for metrics. A call of this format begins with one of `openers`. `read`
    gets the index of the opener and returns the block, or None where it is no call; it may raise
    whatever it likes. `follow` judges early, by the text after the opener (its index is given),
    whether a call may begin: False must hold for every longer text too.
    """

    name: str
    openers: tuple[str, ...]
    read: Reader
    where: Where = Where.MARK
    follow: Follow | None = None


def one_of(text: str, pos: int, wanted: tuple[str, ...]) -> bool:
    """Whether one of `wanted` stands at `pos`, or may once more text has come."""
    if text.startswith(wanted, pos):
        return True
    rest = text[pos : pos + max(map(len, wanted), default=0)]
    return pos + len(rest) == len(text) and any(item.startswith(rest) for item in wanted)


def in_marks(one: One, begin: str = "", end: str = "", last: str = "") -> Reader:
    """A reader for calls behind `begin`, each with `end` behind it, and `last` behind them all.

    The three are patterns; any of them may be missing in a text.
    """
    first, closer, finish = (re.compile(f"(?:{pattern})?") for pattern in (begin, end, last))

    def read(src: Source, start: int) -> Block | None:
        calls: list[Call] = []
        at = behind(first.match(src.text, start), start)
        while len(calls) < MAX_CALLS and (found := one(src, at)) is not None:
            calls += found[0]
            at = behind(closer.match(src.text, found[1]), found[1])
        return Block(behind(finish.match(src.text, at), at), tuple(calls)) if calls else None

    return read


def behind(found: re.Match[str] | None, pos: int) -> int:
    """The index behind what was found at `pos`."""
    return found.end() if found else pos


# Single values: JSON as models write it, and objects' JSON text

BRACKETS = frozenset({"missing_closer", "extra_closer"})
_SPACE = re.compile(r"\s*")


def skip_space(text: str, pos: int) -> int:
    """The index of the first character from `pos` on that is not whitespace."""
    return behind(_SPACE.match(text, pos), pos)


def dumps(value: Any) -> str:
    """JSON text as models write it: unescaped Unicode. Raises TypeError for what JSON lacks."""
    return json.dumps(value, ensure_ascii=False)


def object_of(members: Iterable[tuple[str, Any]]) -> str:
    """An object's JSON text. A key that comes twice stays twice: the check says so."""
    return "{" + ", ".join(f"{dumps(key)}: {dumps(value)}" for key, value in members) + "}"


def json_object(text: str) -> dict[str, Any] | None:
    """The object whose JSON a text is; None where it is anything else."""
    try:
        value = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def json_members(src: Source, pos: int, mark: str = "") -> tuple[dict[str, Any], int] | None:
    """The members of the JSON object at `pos`, and the index after it; None where there is none."""
    found = json_value(src, pos, mark)
    return found if found is not None and isinstance(found[0], dict) else None


def json_value(src: Source, pos: int, mark: str = "") -> tuple[Any, int] | None:
    """The JSON value at `pos` and the index after it; None where it can't be read.

    Also with what models write instead: single quotes, Python's literals, a trailing comma, raw
    line breaks, keys without quotes; `mark` stands around Gemma's texts. Not with a bracket
    missing, which the check of arguments judges, and not where one key has two values.
    """
    reader = JsonReader(src.text, pos, mark=mark)
    try:
        value = reader.value()
    except (Unreadable, RecursionError):
        src.spend(max(reader.position - pos, 0) + 1)
        return None
    if not BRACKETS.isdisjoint(reader.used):
        src.spend(reader.position - pos)
        return None
    return value, reader.position
