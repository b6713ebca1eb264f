"""Calls that a model writes as text, repeated: found while the text comes, in every known format.

What the proxy reads as calls (``app/tool_calls``) is counted as those calls. What it doesn't, since
no tools are offered or nobody would run them, is counted as text: ``<tool_call>…</tool_call>``, LM
Studio's ``[TOOL_REQUEST]…[END_TOOL_REQUEST]``, Harmony's ``commentary to=…`` without its tokens,
ReAct's ``Action:``, and the generic ``⏺ Name: …``, where the first 50 characters are enough.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ....core.call_keys import canonical
from ....core.reply import ToolCall
from ....frozen import frozen
from ....tool_calls.formats.base import Tools, Where
from ....tool_calls.formats.harmony import CHANNEL
from ....tool_calls.formats.table import FORMATS
from ....tool_calls.text_calls import FoundCall, Holdback, Rescued, rescue, whole_calls
from ....unique import call_id
from .calls import Repeats
from .seen import PROBE, Seen

GENERIC_CHARS = 50
MOST_CALLS = 128  # a text with more is no longer read while it comes: it will be refused anyway
# A text is read for calls anew when it has grown by a quarter and its end has been there before, or
# has doubled: linear in all. Each time that finds nothing it waits longer.
_GROWTH, _MOST_GROWTH = 1.25, 2.0
# A text at whose beginning the reading gave up will hardly say more when it is longer.
_EXHAUSTED_GROWTH = 4

# Openers that prose doesn't have; a reply without any is never read. Bare JSON and Python lists
# count at the beginning of a reply only, which is where models write them.
_OPENERS = sorted(
    {
        opener
        for row in FORMATS
        for opener in row.openers
        if row.where not in (Where.LINE, Where.JSON) and opener != "```"
    }
    | {
        "Action:",
        "call:",
        "commentary to=",
        "to=functions.",
        "⏺",
        ">>>",
        "tool_code",
        '"name"',
        '"tool"',
        '"function"',
    }
)
_OPENER = re.compile("|".join(map(re.escape, _OPENERS)) + r"|\A\s*\[")
_OVERLAP = max(map(len, _OPENERS)) - 1
# Each has one of these, which is much faster to see.
_SIGNS = re.compile("[" + re.escape("".join({o[0] for o in _OPENERS if not o[0].isalpha()})) + "]")
_WORDS = tuple(opener for opener in _OPENERS if opener[0].isalpha())

# Looked for one by one: an expression of so many choices is tried at each sign.
_SIGNED = tuple(opener for opener in _OPENERS if not opener[0].isalpha())

# Calls between two marks.
_MARKED = (("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"), ("<tool_call>", "</tool_call>"))
_HARMONY = re.compile(r"commentary to=(?:functions\.)?([\w.-]{1,64})[^{\n]{0,80}\{")
_REACT = re.compile(
    r"^[ \t]*Action:[ \t]*+([^\n]++)\n++[ \t]*+Action Input:([^\n]*)(?=\n)", re.MULTILINE
)
_GENERIC = re.compile(
    rf"^[ \t]*⏺[ \t]*(?=(\w[\w .-]{{0,40}}):)(?:([^\n]{{{GENERIC_CHARS}}})|([^\n]+)(?=\n))",
    re.MULTILINE,
)
# What agents besides run: code, and tags that hold tags.
_RUN = re.compile(
    r"^[ \t]*(?:```|<code>|<function|<([a-z]\w{0,40})>\s*<[a-z])", re.MULTILINE | re.IGNORECASE
)
_ID = re.compile(r'"(?:id|call_id|tool_call_id)"\s*:\s*(?:"[^"]*"|\d+)\s*,?')
_NAME = re.compile(r'"(?:name|tool)"\s*:\s*"([^"]{1,64})"')
_DECODER = json.JSONDecoder()


@frozen
class Shortened:
    """What is kept of a text with too many calls: calls made real, or text alone."""

    text: str
    calls: tuple[ToolCall, ...]
    tool: str
    formats: tuple[str, ...] = ()


class WrittenCalls:
    """The text of one choice, read for repeated calls.

    ``tools`` gives, once it is needed, the tools that calls as text are made real calls of, by
    name; empty: none are.
    """

    __slots__ = (
        "_due",
        "_exempt",
        "_growth",
        "_most",
        "_read",
        "_reading",
        "_seen",
        "_text",
        "_tools",
        "begun",
    )

    def __init__(self, most: int, exempt: Sequence[str], tools: Callable[[], Tools]) -> None:
        self._most = most
        self._exempt = exempt
        self._tools = tools
        self._text = ""
        self._seen = Seen()
        self._reading: Holdback | None = None
        self._read = 0  # characters
        self._due = (0, 0)  # the sizes from which on it is read again: if it repeats; anyway
        self._growth = _GROWTH
        self.begun = False  # an opener has come

    def feed(self, piece: str, *, now: bool = False) -> str | None:
        """The tool (if known, else "") whose call is one too many now; None while there is none.

        ``now``: read it in any case.
        """
        text, self._text = self._text, ""
        text += piece  # grows where it stands, for nothing else holds it
        self._text = text
        size = len(text)
        if not self.begun:
            self.begun = _holds_opener(text[-len(piece) - _OVERLAP :])
            if not self.begun:
                return None
        if size < self._due[0] and not now:
            return None
        anyway = now or size >= self._due[1]
        if not anyway and not self._repeats(text):
            return None
        self._wait(1)
        if not anyway:
            self._growth = min(self._growth * _GROWTH, _MOST_GROWTH)
        found = self._shortened(text, self._so_far(text), cut=True)
        return found.tool if found is not None else None

    def has_begun(self, rest: str) -> bool:
        """Whether an opener has come; ``rest``: what was not fed, behind all that was."""
        return self.begun or _holds_opener(self._text[-_OVERLAP:] + rest)

    def _so_far(self, text: str) -> Rescued:
        """As ``rescue`` of the text, but for the content; what was decided is not read again."""
        if self._reading is None:
            self._reading = Holdback(self._tools())
        self._reading.feed(text[self._read :])
        self._read = len(text)
        return self._reading.peek()

    def _wait(self, factor: int) -> None:
        size = factor * len(self._text)
        self._due = int(size * self._growth), int(size * _MOST_GROWTH)

    def _repeats(self, text: str) -> bool:
        """Whether the text's end has been there too often, and a call began since the last time."""
        if not self._seen.may_repeat(text):
            return False
        probe = text[-PROBE:]
        before = text.rfind(probe, 0, -1)
        if before < 0 or not _is_in(text, probe, self._most + 1):
            return False
        return _OPENER.search(text, before) is not None

    def shortened(self, text: str, *, cut: bool) -> Shortened | None:
        """``text`` without the calls that are too many; None: there are none.

        ``cut``: more was to come, so the last call may be half of one.
        """
        return self._shortened(text, rescue(text, self._tools()), cut=cut)

    def _shortened(self, text: str, found: Rescued, *, cut: bool) -> Shortened | None:
        tools = self._tools()
        repeats = Repeats(self._most, self._exempt)
        calls = _whole(found, text, tools) if cut else found.calls
        kept = repeats.kept(ToolCall(call_id(), c.name, c.arguments) for c in calls)
        if len(calls) >= MOST_CALLS:
            self._due = sys.maxsize, sys.maxsize
        elif found.exhausted:
            self._wait(_EXHAUSTED_GROWTH)
        if repeats.tool:
            formats = tuple(one.format for one in calls[: len(kept)])
            # Behind the first call of a cut text stands at best half a call.
            content = Holdback(tools).feed(text) if cut else found.content
            return Shortened(content, tuple(kept), repeats.tool, formats)
        counts: Counter[str] = Counter()
        at = fences = 0
        for start, tool, unit in sorted(_units(text, known=bool(tools))):
            fences += text.count("```", at, start)
            at = start
            if tool in self._exempt or fences % 2:
                continue
            counts[unit] += 1
            if counts[unit] > self._most:
                return Shortened(text[:start].rstrip(), (), tool)
        return None


def _is_in(text: str, probe: str, times: int) -> bool:
    """As ``text.count(probe) >= times``, from the end on."""
    stop = len(text)
    for _ in range(times):
        stop = text.rfind(probe, 0, stop)
        if stop < 0:
            return False
    return True


def _holds_opener(text: str) -> bool:
    """As ``_OPENER`` would say."""
    for word in _WORDS:
        if word in text:
            return True
    if _SIGNS.search(text) is None:
        return False
    for opener in _SIGNED:
        if opener in text:
            return True
    return text.lstrip().startswith("[")


def before_calls(text: str) -> tuple[str, list[str]]:
    """What a text says before its first call, whoever runs it, and the tools called, if known."""
    found = [(start, tool) for start, tool, _ in _units(f"{text}\n", known=False)]
    found += [(match.start(), match[1] or "") for match in _RUN.finditer(text)]
    if not found:
        return text, []
    return text[: min(found)[0]].rstrip(), [tool for _, tool in sorted(found) if tool]


def _whole(found: Rescued, text: str, tools: Tools) -> tuple[FoundCall, ...]:
    """The whole calls of a text that is not over; also of a list of them that is still open."""
    calls = whole_calls(found, text)
    if calls or not text.lstrip().startswith("["):
        return calls
    upto = max(text.rfind(")"), text.rfind("}")) + 1
    return rescue(text[:upto] + "]", tools).calls


def _units(text: str, *, known: bool) -> Iterator[tuple[int, str, str]]:
    """(start, tool's name as far as known, what equal calls share) of each call in the text.

    ``known``: those that ``rescue`` can read have been read by it; what it left is no call.
    """
    for opener, closer in _MARKED if not known else ():
        start = text.find(opener)
        while start >= 0 and (end := text.find(closer, start)) >= 0:
            call = _ID.sub("", text[start + len(opener) : end])
            name = _NAME.search(call)
            yield start, name[1] if name else "", canonical(call)
            start = text.find(opener, end)
    if "commentary to=" in text:
        matches = list(_HARMONY.finditer(text))
        ends = [*(match.start() for match in matches), len(text)]
        for match, end in zip(matches, ends[1:], strict=True):
            try:  # in a text of its own: an error counts the lines before it
                value, _ = _DECODER.raw_decode(text[match.end() - 1 : end])
            except (ValueError, RecursionError):
                continue  # not whole, or no JSON
            before = match.start() - len(CHANNEL)
            start = before if text.startswith(CHANNEL, max(before, 0)) else match.start()
            yield start, match[1], match[1] + canonical(value)
    for match in _REACT.finditer(text) if "Action Input:" in text and not known else ():
        yield match.start(), match[1].strip(), " ".join(match.group().split())
    for match in _GENERIC.finditer(text) if "⏺" in text else ():
        yield match.start(), match[1].strip(), (match[2] or match[3]).strip()
