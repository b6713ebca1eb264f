"""Beginnings of request bodies, known again by their bytes, so that what came before isn't parsed.

A client that sends its transcript anew with every turn mostly writes it as it did before. So where
the blocks of a request's messages stand in its body is kept (a length, a hash and the last few
bytes), and the next body is compared with that: as far as it is the same, it was valid JSON, and
only what is behind it has to be read. Whatever isn't exactly so is read as if nothing was known.
"""

from __future__ import annotations

import itertools
import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from .blocks import BLOCK, KNOWN, Blocks, dumped
from .messages import Known, Messages, Part

# Beginnings that look alike at first, as the transcripts of one agent's tasks may: the newest.
_ALIKE: Final = 64
_LEAST: Final = 4096  # bytes; a shorter body is read in no time
# A head has 13 bytes or more, a block of messages with a role and a content some 900.
_LOOK_HEAD, _LOOK = 13, 512
_END: Final = 16
_MESSAGES: Final = re.compile(rb'"messages"\s*:\s*\[')
_KEYS_TRIED: Final = 4  # of that name, before the one that isn't inside of something
_SPACE: Final = re.compile(r"[ \t\n\r]*")
# Stands for the key `messages` where a body is read from its midst; nobody can send it.
_REST: Final = secrets.token_hex(16)
_DECODER: Final = json.JSONDecoder()


class _Piece(NamedTuple):
    """Bytes that were read before.

    ``end``: the last few of ``size``. ``name``: that of the block. Of a head, which ends behind the
    system's messages: ``lead`` is how many those are, ``opened`` where they begin.
    """

    size: int
    end: bytes
    digest: int
    name: int = 0
    lead: int = 0
    opened: int = 0


class Beginnings:
    """Finds again what was read before. Bounded; threads may share one."""

    def __init__(self, known: int = KNOWN) -> None:
        self._most = known
        # By how they begin. A block may follow whatever ends in a comma.
        self._known: OrderedDict[int, tuple[_Piece, ...]] = OrderedDict()
        self._count = 0

    def body(self, raw: bytes) -> dict[str, Any] | None:
        """The request in a body that begins as one before; None where it has to be read whole.

        Its ``messages`` are :class:`Messages`, no list.
        """
        if len(raw) < _LEAST:
            return None
        head = self._find(hash(raw[:_LOOK_HEAD]), raw, 0)
        if head is None:
            return None
        at = head.size
        parts = [Part(raw, head.opened, at - 1, head.lead)] if head.lead else []
        names = []
        while block := self._find(hash(raw[at : at + _LOOK]), raw, at):
            parts.append(Part(raw, at, at + block.size - 1, BLOCK))
            names.append(block.name)
            at += block.size
        if not names:
            return None
        try:
            rest = orjson.loads(b"".join((b'{"', _REST.encode(), b'":[', raw[at:])))
        except orjson.JSONDecodeError:
            return None
        messages = rest.pop(_REST)
        if not messages or "messages" in rest:  # `[…,]`, which is no JSON; a second list
            return None
        fields = orjson.loads(raw[: head.opened] + b"]}")
        fields["messages"] = Messages(parts, messages, Known(head.lead, names, at))
        return {**fields, **rest}

    def learn(self, raw: bytes, blocks: Blocks) -> None:
        """Keep where the blocks of a request stand in its body, which was read."""
        if not blocks.written:
            return
        body, messages = _Body(raw), blocks.messages
        if isinstance(messages, Messages):
            at, start = messages.known.at, messages.before
        else:
            head = _head(body, blocks)
            if head is None:
                return
            self._keep(hash(raw[:_LOOK_HEAD]), head)
            at, start = head.size, head.lead
        for name, written in zip(blocks.names[-len(blocks.written) :], blocks.written, strict=True):
            end = body.behind(at, messages[start : start + BLOCK], written)
            if end is None:
                return
            piece = _Piece(end - at, raw[end - _END : end], hash(raw[at:end]), name)
            self._keep(hash(raw[at : at + _LOOK]), piece)
            at, start = end, start + BLOCK

    def _find(self, key: int, raw: bytes, at: int) -> _Piece | None:
        """What stands there, of what was read before."""
        for piece in self._known.get(key, ()):
            end = at + piece.size
            alike = raw.startswith(piece.end, end - len(piece.end))
            if alike and hash(raw[at:end]) == piece.digest:
                self._keep(key, piece)
                return piece
        return None

    def _keep(self, key: int, piece: _Piece) -> None:
        """As the one that was found last; the oldest go where it is too many."""
        before = self._known.pop(key, ())
        others = [one for one in before if one != piece][: _ALIKE - 1]
        self._known[key] = (piece, *others)
        self._count += 1 + len(others) - len(before)
        while self._count > self._most:
            self._count -= len(self._known.popitem(last=False)[1])


class _Body:
    """A body that was read as JSON, and where messages stand in it."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._text = ""

    def behind(self, at: int, messages: Sequence[Any], written: bytes) -> int | None:
        """Where it goes on behind these and a comma; None where they don't stand there.

        ``written``: they as JSON, compact as most clients write.
        """
        end = at + len(written) - 2
        if self.raw.startswith(written[1:-1], at):
            return end + 1 if self.raw[end : end + 1] == b"," else None
        found = self._scanned(at, len(messages))
        if found is None or orjson.loads(b"[%b]" % self.raw[at : found - 1]) != messages:
            return None
        return found

    def _scanned(self, at: int, count: int) -> int | None:
        # A character for each byte: what strings hold is of no account here.
        text = self._text = self._text or self.raw.decode("latin-1")
        try:
            for _ in range(count):
                _, at = _DECODER.raw_decode(text, _behind_space(text, at))
                at = _behind_space(text, at)
                if text[at] != ",":
                    return None
                at += 1
        except (ValueError, IndexError, RecursionError):
            return None
        return at


def _head(body: _Body, blocks: Blocks) -> _Piece | None:
    raw = body.raw
    for found in itertools.islice(_MESSAGES.finditer(raw), _KEYS_TRIED):
        opened = found.end()
        if not _is_head(raw[:opened]):
            continue
        lead = list(blocks.messages[: blocks.lead])
        size = body.behind(opened, lead, dumped(lead)) if lead else opened
        if size is None:
            return None
        end = raw[max(size - _END, 0) : size]
        return _Piece(size, end, hash(raw[:size]), lead=len(lead), opened=opened)
    return None


def _is_head(raw: bytes) -> bool:
    """Whether these bytes end in the list of messages that is the request's own."""
    try:
        orjson.loads(raw + b"]}")
    except orjson.JSONDecodeError:
        return False
    return True


def _behind_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at
