"""Blocks of messages known again by their bytes, so that what came before isn't parsed once more.

A client that sends its transcript anew with every turn mostly writes it as it did before. So of a
block of messages that was read, its length, a hash and the last few bytes are kept. Where the next
body holds the same bytes in the same place, they are the same messages, and only what is behind
them has to be read. Whatever isn't exactly so is read as if nothing was known.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import orjson

from .blocks import KNOWN, Blocks, dumped, is_systems
from .key_places import places
from .messages import BLOCK, Messages, Part

NAME: Final = "beginnings"  # in the log, and in the counter of faults
_LEAST: Final = 4096  # bytes; a shorter body is read in no time
_LOOK: Final = 512  # bytes by which a block is looked up: 32 messages have some 900 at least
_END: Final = 16
_ALIKE: Final = 64  # that look the same, as those of one agent's tasks may; the newest
# Who makes many alike must not make another's body be hashed again and again: so often at most.
_HASHED: Final = 3
_SCANNED: Final = 64  # blocks at most that a body's own parser goes through, which is slower
# Bytes in which the first message that isn't the system's has to end; mostly it does soon.
_LEAD: Final = (4096, 256 * 1024)
_KEY: Final = b'"messages"'
_OPENED: Final = re.compile(rb"\s{0,16}:\s{0,16}\[")
_SPACE: Final = re.compile(r"[ \t\n\r]*")
# Stands for the key `messages` where a body is read from its midst; nobody can send it.
_REST: Final = secrets.token_hex(16)


class _Block(NamedTuple):
    """Bytes of a block that was read, the comma behind it among them.

    ``end``: the last few of ``size``. ``name``: the block's in :class:`Blocks`.
    """

    size: int
    end: bytes
    digest: int
    name: int


class Beginnings:
    """Reads bodies, as far as they are new. Bounded; threads may share one."""

    def __init__(self, known: int = KNOWN) -> None:
        self._most = known
        self._known: OrderedDict[int, tuple[_Block, ...]] = OrderedDict()  # by how they begin
        self._count = 0
        self._lock = threading.Lock()

    def body(self, raw: bytes) -> dict[str, Any] | None:
        """The request in a body that has blocks which came before; None: read it whole.

        Its ``messages`` are :class:`Messages`, no list.
        """
        if len(raw) < _LEAST or not self._known:
            return None
        search = _Search(raw)
        for opened, begun in _beginnings(raw):
            at, parts = begun, []
            while block := self._find(search, at):
                parts.append(Part(raw, at, at + block.size - 1, block.name))
                at += block.size
            fields = _fields(raw[:opened]) if parts else None
            if fields is None:
                continue
            try:
                lead = orjson.loads(b"[%b]" % raw[opened : begun - 1])
                rest = orjson.loads(b"".join((b'{"', _REST.encode(), b'":[', raw[at:])))
            except orjson.JSONDecodeError:
                return None
            messages = rest.pop(_REST)
            if not messages or "messages" in rest:  # `[…,]`, which is no JSON; a second list
                return None
            fields["messages"] = Messages(lead, parts, messages)
            return {**fields, **rest}
        return None

    def learn(self, raw: bytes, blocks: Blocks) -> None:
        """Keep how the blocks of a request stand in its body, which was read."""
        if not blocks.written:
            return
        search, messages = _Search(raw), blocks.messages
        new = list(zip(blocks.names[-len(blocks.written) :], blocks.written, strict=True))
        if type(messages) is Messages:
            self._learn_from(search, messages.parts[-1].end + 1, new)
            return
        for _, begun in _beginnings(raw):
            if self._learn_from(search, begun, new):
                return

    def _learn_from(self, search: _Search, at: int, new: Sequence[tuple[int, bytes]]) -> bool:
        """Whether any of these blocks, by name and as they are written, stands there."""
        begun, raw = at, search.raw
        for name, written in new:
            block = self._find(search, at)
            if block is None or block.name != name:
                end = search.behind(at, written)
                if end is None:
                    break
                block = _Block(end - at, raw[end - _END : end], hash(raw[at:end]), name)
                self._keep(hash(raw[at : at + _LOOK]), block)
            at += block.size
        return at > begun

    def _find(self, search: _Search, at: int) -> _Block | None:
        """The block that stands there, if it is known."""
        key = hash(search.raw[at : at + _LOOK])
        for block in self._known.get(key, ()):
            if search.has(block, at):
                self._keep(key, block)
                return block
        return None

    def _keep(self, key: int, block: _Block) -> None:
        """As the one that was found last; the oldest go where it is too many."""
        with self._lock:
            before = self._known.pop(key, ())
            others = [one for one in before if one != block][: _ALIKE - 1]
            self._known[key] = (block, *others)
            self._count += 1 + len(others) - len(before)
            while self._count > self._most:
                self._count -= len(self._known.popitem(last=False)[1])


class _Search:
    """A look for blocks in a body, with what it may cost."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._digests: dict[tuple[int, int], int] = {}
        self._to_hash = _HASHED * len(raw)
        self._to_scan = _SCANNED
        self._text = ""

    def has(self, block: _Block, at: int) -> bool:
        """Whether a block stands there. No where too much was compared already."""
        end = at + block.size
        if not self.raw.startswith(block.end, end - len(block.end)):
            return False
        digest = self._digests.get((at, end))
        if digest is None:
            if self._to_hash < block.size:
                return False
            self._to_hash -= block.size
            digest = self._digests[at, end] = hash(self.raw[at:end])
        return digest == block.digest

    def behind(self, at: int, written: bytes) -> int | None:
        """Where it goes on behind a block and a comma; None where they don't stand there.

        ``written``: it as JSON, compact as most clients write.
        """
        end = at + len(written) - 2
        if self.raw.startswith(written[1:-1], at):
            return end + 1 if self.raw[end : end + 1] == b"," else None
        if not self._to_scan:
            return None
        self._to_scan -= 1
        try:
            end = self._scanned(at)
            found = orjson.loads(b"[%b]" % self.raw[at : end - 1])
        except (ValueError, IndexError, RecursionError):
            return None
        return end if dumped(found) == written else None

    def _scanned(self, at: int) -> int:
        """Where it goes on behind a block. Raises ValueError, IndexError, RecursionError."""
        # A character for each byte: what strings hold is of no account here.
        text = self._text = self._text or self.raw.decode("latin-1")
        for _ in range(BLOCK):
            _, at = _message(text, at)
        return at


class _Ended(ValueError):
    """A list has no more messages."""


def _beginnings(raw: bytes) -> Iterator[tuple[int, int]]:
    """Where a request's messages may begin, and where those behind the system's do."""
    for opened in places(raw, _KEY, _OPENED):
        behind = _behind_lead(raw, opened)
        if behind is not None:
            yield opened, behind


def _behind_lead(raw: bytes, at: int) -> int | None:
    """Where messages go on behind the system's, if any do."""
    for size in _LEAD:
        text = raw[at : at + size].decode("latin-1")
        end = after = 0
        try:
            message, after = _message(text, 0)
            while is_systems(message):
                end = after
                message, after = _message(text, end)
            return at + end
        except _Ended:
            break
        except (ValueError, IndexError, RecursionError):
            continue  # perhaps only cut
    return None


def _fields(raw: bytes) -> dict[str, Any] | None:
    """The fields before the list that these bytes end in, if that is the request's own."""
    try:
        found: dict[str, Any] = orjson.loads(raw + b"]}")
    except orjson.JSONDecodeError:
        return None
    return found


def _message(text: str, at: int) -> tuple[Any, int]:
    """A message, and where it goes on behind it and a comma.

    Raises ValueError, IndexError, RecursionError where there is none that every parser reads alike;
    of those, _Ended where no comma follows.
    """
    message, at = _DECODER.raw_decode(text, _behind_space(text, at))
    at = _behind_space(text, at)
    if text[at] != ",":
        raise _Ended
    return message, at + 1


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key twice, of which some take the first and some the last")
    return found


def _whole_number(text: str) -> int:
    if len(text) > len("-9223372036854775807"):
        raise ValueError("a number that some round")
    return int(text)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_once, parse_int=_whole_number)
