"""Strings on which a regular expression is slow, derived from its own parse tree.

A backtracking engine is slow where a repeat can give back what it took, or where a search begins
anew at each place. Both show on a long text that one repeat accepts, with an end that fails.
:func:`attacks` makes such texts for each repeat of a pattern: what leads to the repeat, what it
accepts, many times, and the end. :func:`slowest` measures how the time grows with their length.
"""

from __future__ import annotations

import re
import re._compiler as compiler  # type: ignore[import-not-found]
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import signal
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

SMALL, LARGE = 250, 2_000  # characters of a pumped text
# The most growth of the cost for eight times the text: linear is 8, quadratic is 64. It is ignored
# where the larger text costs less than `CHEAP` for each character.
MOST_GROWTH = 32
CHEAP = 4e-7  # seconds
LIMIT = 0.5  # seconds of CPU for one text
MOST_PUMPS = 6  # texts tried for one repeat's body
_ENDS = ("", "\x00", "!\n", "\n\x00")
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_LONG = 9  # a repeat that may run at least so often is attacked

Anything = re.Pattern[str] | re.Pattern[bytes]


class TooSlow(Exception):
    """A text took longer than ``LIMIT``."""


def slowest(
    pattern: Anything, methods: frozenset[str] = frozenset({"finditer"})
) -> tuple[float, str] | None:
    """Return the first growth beyond ``MOST_GROWTH``, and its text; None if there is none.

    The growth is the cost of ``LARGE`` characters by that of ``SMALL``. ``methods``: the methods of
    the pattern to measure.
    """

    def run(_: Anything, text: Any) -> None:
        for method in methods:
            found = getattr(pattern, method)(text)
            if method == "finditer":
                for _ in found:
                    pass

    for unit, prefix, end in attacks(pattern):
        growth = _growth(pattern, run, prefix, unit, end)
        if growth > MOST_GROWTH:
            return growth, f"{prefix!r} + {unit!r} * n + {end!r}"
    return None


def _growth(
    pattern: Anything, run: Callable[[Anything, Any], None], prefix: str, unit: str, end: str
) -> float:
    def cost(size: int) -> float:
        text: Any = prefix + unit * max(1, size // len(unit)) + end
        if isinstance(pattern.pattern, bytes):
            text = text.encode("latin-1", "replace")
        return seconds(lambda: run(pattern, text))

    try:
        cost(40)  # an exponential pattern exceeds `LIMIT` here already
        large = cost(LARGE)
        if large < CHEAP * LARGE:
            return 0.0
        large = min(large, *(cost(LARGE) for _ in range(2)))
        small = min(cost(SMALL) for _ in range(5))
    except TooSlow:
        return float("inf")
    return 0.0 if large < CHEAP * LARGE else large / small


def seconds(work: Callable[[], None]) -> float:
    """Return the CPU seconds of ``work``. Raises ``TooSlow`` beyond ``LIMIT``.

    It sets a signal handler, and so runs in the main thread only.
    """

    def over(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, over)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        start = time.thread_time()
        work()
        return time.thread_time() - start
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def attacks(pattern: Anything) -> Iterator[tuple[str, str, str]]:
    """Yield attacks: the text to repeat, the text before it, and the text after it."""
    source: Any = pattern.pattern
    tree = parser.parse(source, pattern.flags)
    maker = _Maker(_alphabet(tree, pattern.flags, isinstance(source, bytes)), pattern.flags)
    seen = set()
    for prefix, body in maker.repeats(list(tree), ""):
        for text in islice(maker.variants(body), MOST_PUMPS):
            for attack in ((text, prefix), (prefix + text, ""), (prefix + text * 3, "")):
                if attack[0] and attack not in seen:
                    seen.add(attack)
                    yield from ((*attack, end) for end in _ENDS)


class _Maker:
    """Makes texts that parts of a parse tree accept; look-arounds count as empty."""

    def __init__(self, alphabet: list[str], flags: int) -> None:
        self._alphabet = alphabet
        self._flags = flags
        self._groups: dict[int, str] = {}  # the last text of each group, for back-references

    def repeats(self, tree: list[Any], prefix: str) -> Iterator[tuple[str, list[Any]]]:
        """Yield each long repeat's body, with a text that leads to it."""
        for op, argument in tree:
            if op in _REPEATS and (argument[1] is codes.MAXREPEAT or argument[1] >= _LONG):
                yield prefix, list(argument[2])
            for part in _parts(op, argument):
                yield from self.repeats(list(part), prefix)
            prefix += next(self.variants([(op, argument)]), "")

    def variants(self, tree: list[Any]) -> Iterator[str]:
        """Yield a few short texts that ``tree`` accepts."""
        if not tree:
            yield ""
            return
        for head in islice(self._one(*tree[0]), 8):
            for rest in islice(self.variants(tree[1:]), 2 if len(tree) > 2 else 8):
                yield head + rest

    def _one(self, op: Any, argument: Any) -> Iterator[str]:
        if op is codes.LITERAL:
            yield chr(argument)
        elif op in (codes.ANY, codes.NOT_LITERAL, codes.IN):
            yield from filter(_accepts(op, argument, self._flags), self._alphabet)
        elif op in _REPEATS:
            least, most, body = argument
            for text in self.variants(list(body)):
                yield text * max(least, min(1, most))
            if least == 0:
                yield ""
        elif op is codes.SUBPATTERN:
            for text in self.variants(list(argument[3])):
                if argument[0] is not None:
                    self._groups[argument[0]] = text
                yield text
        elif op is codes.ATOMIC_GROUP:
            yield from self.variants(list(argument))
        elif op is codes.BRANCH:
            for branch in argument[1]:
                yield from islice(self.variants(list(branch)), 2)
        elif op is codes.GROUPREF:
            yield self._groups.get(argument, "")
        else:
            yield ""


def _alphabet(tree: Any, flags: int, latin: bool) -> list[str]:
    """Return characters for the pattern's classes, one for each set of classes that share it."""
    chars = dict.fromkeys("a0 \n._-\"'A\t<é!" if not latin else "a0 \n._-\"'A\t<!")
    classes = [_accepts(op, argument, flags) for op, argument in _classes(tree, chars)]
    found: dict[tuple[bool, ...], str] = {}
    for char in chars:
        found.setdefault(tuple(accepts(char) is not None for accepts in classes), char)
    return list(found.values())


def _classes(tree: Any, chars: dict[str, None]) -> Iterator[tuple[Any, Any]]:
    for op, argument in tree:
        if op is codes.LITERAL:
            chars[chr(argument)] = None
            yield op, argument
        elif op in (codes.IN, codes.NOT_LITERAL, codes.ANY):
            if op is codes.IN:
                for kind, value in argument:
                    if kind is codes.LITERAL:
                        chars[chr(value)] = None
                    elif kind is codes.RANGE:
                        chars[chr(value[0])] = None
            elif op is codes.NOT_LITERAL:
                chars[chr(argument)] = None
            yield op, argument
        else:
            for part in _parts(op, argument):
                yield from _classes(part, chars)


def _parts(op: Any, argument: Any) -> Iterator[Any]:
    if op in _REPEATS:
        yield argument[2]
    elif op is codes.SUBPATTERN:
        yield argument[3]
    elif op is codes.ATOMIC_GROUP:
        yield argument
    elif op is codes.BRANCH:
        yield from argument[1]
    elif op in (codes.ASSERT, codes.ASSERT_NOT):
        yield argument[1]


def _accepts(op: Any, argument: Any, flags: int) -> Callable[[str], object]:
    """Return whether one node of a parse tree, alone, accepts a character: as a function of it.

    Case counts, and a dot accepts no end of line.
    """
    node = parser.SubPattern(parser.State(), [(op, argument)])
    return compiler.compile(node, flags & re.UNICODE).fullmatch
