"""Tool calls that a model wrote as text, made real calls.

`rescue` reads a whole reply, `Holdback` one that is still coming. The formats are rows of
`formats/table.py`. What is a call is judged conservatively: only names of the request's tools,
never inside reasoning, quotes, code or an example; a text without calls comes back untouched.
"""

from __future__ import annotations

from ..frozen import frozen
from .formats.base import (
    MAX_CALLS,
    WINDOW,
    Block,
    Exhausted,
    Format,
    Source,
    Where,
    behind_tail,
    json_object,
)
from .formats.scanner import Candidate, Scanner
from .formats.table import SPECIAL
from .tools import ToolSet

# Characters that may wait for a decision before they wait for the end of the reply instead, and
# blank ones at its beginning before they flow: each chunk looks at what waits for a decision.
PATIENCE = 1_024
NONE: frozenset[str] = frozenset()


@frozen
class FoundCall:
    """A call found in a text.

    `name` is the tool's name as the request has it, `arguments` what a real call would carry:
    the JSON text of an object, or the raw text where it does not parse. `format` is the name of
    the row of the table, a bounded label for a metric.
    """

    name: str
    arguments: str
    format: str


@frozen
class Rescued:
    """The calls of a text, in order, and the text around them.

    Without calls, `content` is the whole text, unchanged. With calls, the text before the first
    is kept as it is (dropped where it is blank), and what stands between and behind them likewise;
    blank pieces there are dropped. `unknown` are names that were called in a marked format though
    the request has no such tool, or beside known calls in one block: such a block goes as a whole,
    any other stays in `content`.
    """

    calls: tuple[FoundCall, ...]
    content: str
    unknown: tuple[str, ...] = ()


def rescue(text: str, tools: ToolSet, off: frozenset[str] = NONE) -> Rescued:
    """The calls in `text`, by the formats of the table but those `off`, and the rest of it.

    Never raises.
    """
    holdback = Holdback(tools, off)
    flowed = holdback.feed(text)
    rest = holdback.finish()
    return Rescued(rest.calls, flowed + rest.content, rest.unknown)


def rescue_cut(text: str, tools: ToolSet, off: frozenset[str] = NONE) -> Rescued:
    """As `rescue`, for a text that a length limit cut: what may be half a call is left out.

    The last call is whole only where its arguments are a JSON object, closed by its own bracket:
    of tags and keywords more might have come, and half a file must not be written.
    """
    found = rescue(text, tools, off)
    content = found.content
    half = Scanner(content, tools, off=off).advance(final=True) if tools else None
    if half is not None and all(row.where is Where.MARK for row in half.rows):
        content = content[: half.start]
    return Rescued(whole_calls(found, text), content, found.unknown)


def whole_calls(found: Rescued, text: str) -> tuple[FoundCall, ...]:
    """The calls of a text that was cut, without what may be half a call."""
    if not found.calls:
        return ()
    before, last = found.calls[:-1], found.calls[-1]
    behind = 0  # the arguments of those before
    for call in before:
        at = text.find(call.arguments, behind)
        behind = at + len(call.arguments) if at >= 0 else behind
    if last.arguments == "{}":  # which also stands for none at all
        behind = max(behind, text.find(last.name, behind))
    written = text.find(last.arguments, behind) >= 0
    return found.calls if written and json_object(last.arguments) is not None else before


class Holdback:
    """Text that is coming, let through as long as it cannot become a call.

    Prose flows at once. What may be the beginning of a marker waits until it is one or is not;
    from a marker on, everything waits for `finish`. Whitespace at the very beginning of a reply
    waits for what follows it.

    However a text is cut into deltas, what `feed` gave and the content that `finish` gives are
    together `rescue(text).content`, and the calls are the same.
    """

    __slots__ = ("_blank", "_held", "_off", "_scanner", "_waits")

    def __init__(self, tools: ToolSet, off: frozenset[str] = NONE) -> None:
        self._scanner = Scanner("", tools, off=off)
        self._off = not tools
        self._blank = True  # nothing but whitespace has come
        self._waits = False  # for the end of the reply
        self._held: list[str] = []  # deltas that do so, not yet in the scanner's text

    def feed(self, delta: str) -> str:
        """What of the text up to and with `delta` may flow now: "" while it may become a call."""
        if self._off:
            return delta
        if self._waits:
            self._held.append(delta)
            return ""
        scanner = self._scanner
        if not self._blank and scanner.idle and SPECIAL.search(delta) is None:
            # Plain prose, the usual case: nothing in it can begin anything.
            scanner.extend(delta)
            scanner.pos = len(scanner.text)
            self._trim()
            return delta
        start = self._start()
        scanner.extend(delta)
        scanner.advance(final=False)
        self._waits = len(scanner.text) - scanner.pos > PATIENCE
        flowing = scanner.text[start : scanner.pos]
        if self._blank and (not flowing or (flowing.isspace() and len(flowing) <= PATIENCE)):
            return ""
        self._blank = False
        self._trim()
        return flowing

    def finish(self) -> Rescued:
        """The calls in what is still held, and the rest of it as content."""
        if self._off:
            return Rescued((), "")
        scanner = self._scanner
        start = self._start()
        scanner.extend("".join(self._held))
        self._held.clear()
        self._off = True
        return _Collector(scanner, start, self._blank).collect()

    def _start(self) -> int:
        """The index of the first character that has not flowed."""
        return 0 if self._blank else self._scanner.pos

    def _trim(self) -> None:
        # What is behind is kept as far as a later decision looks back; cut rarely, it copies.
        if self._scanner.pos > 4 * WINDOW:
            self._scanner.trim(WINDOW)


def _calls(src: Source, row: Format, start: int) -> tuple[Block | None, list[FoundCall], list[str]]:
    """The block that `row` reads at `start`, its calls of known tools, and its unknown names.

    A block without calls is text in which none is to be looked for.
    """
    try:
        block = row.read(src, start)
    except Exhausted:
        raise
    except Exception:
        return None, [], []
    if block is None or block.end <= start:
        return None, [], []
    known: list[FoundCall] = []
    unknown: list[str] = []
    for call in block.calls:
        name = src.tools.meant(call.name)
        if name is None:
            unknown.append(call.name)
        else:
            known.append(FoundCall(name, call.arguments, row.name))
    return block, known, unknown


class _Collector:
    """Reads all calls of a text whose end has come."""

    def __init__(self, scanner: Scanner, start: int, blank: bool) -> None:
        self._scanner = scanner
        self._src = Source(scanner.text, scanner.tools)
        self._start = start
        self._blank = blank
        self._last = start
        self._pieces: list[str] = []
        self._calls: list[FoundCall] = []
        self._unknown: list[str] = []

    def collect(self) -> Rescued:
        scanner = self._scanner
        try:
            while len(self._calls) < MAX_CALLS:
                candidate = scanner.advance(final=True)
                self._src.floor = scanner.floor
                self._forget_reasoning()
                if candidate is None:
                    break
                self._take(candidate)
        except Exhausted:
            pass
        whole = scanner.text[self._start :]
        unknown = tuple(dict.fromkeys(self._unknown))
        if not self._calls:
            return Rescued((), whole, unknown)
        self._pieces.append(scanner.text[self._last :])
        first, *others = self._pieces
        if self._blank and not first.strip():
            first = ""
        content = first + "".join(piece for piece in others if piece.strip())
        return Rescued(tuple(self._calls), content, unknown)

    def _forget_reasoning(self) -> None:
        """Calls before the end of reasoning were thoughts: their text stays."""
        if self._scanner.reasoning_end > self._last and self._pieces:
            self._pieces.clear()
            self._calls.clear()
            self._unknown.clear()
            self._last = self._start
        self._scanner.reasoning_end = -1

    def _take(self, candidate: Candidate) -> None:
        scanner = self._scanner
        for row in candidate.rows:
            block, known, unknown = _calls(self._src, row, candidate.start)
            if block is None:
                continue
            if known or row.where is Where.MARK:
                self._unknown += unknown
            if known:
                self._pieces.append(scanner.text[self._last : candidate.start])
                if block.text:
                    self._pieces.append(block.text)
                self._calls += known
                scanner.pos = scanner.floor = behind_tail(scanner.text, block.end)
                self._last = scanner.pos
            else:
                scanner.reject(candidate)
                scanner.pos = max(scanner.pos, block.end)
            return
        scanner.reject(candidate)
