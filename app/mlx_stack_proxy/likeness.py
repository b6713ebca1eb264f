"""How alike two texts are, by digests of bounded size that several processes can share.

A text's shingles are all its runs of 5 and of 9 characters. Of each length the digest keeps the 256
with the smallest hashes, which are a fair sample. An edit of L characters changes L + 4 of the
5-character shingles and L + 8 of the 9-character ones, so that L = 2 x the first - the second, for
any number of edits. The result is exact for texts of up to some 250 characters. Parts that swap
places change shingles but no characters: if the edits are fewer than the places that changed, the
share of changed shingles counts instead. Of a long text only its beginning and end count.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from hashlib import blake2b
from struct import pack, unpack
from typing import Final, NamedTuple
from zlib import crc32

_WIDTHS: Final = (5, 9)
_KEPT: Final = 256  # shingles of each width
_END: Final = 2_048  # characters of a text's beginning, and of its end
_NEXT: Final = 0x9E3779B1  # parts a shingle's second occurrence from its first


class Digest(NamedTuple):
    """A text, reduced to what is compared."""

    text: int  # a digest of the whole text
    size: int  # characters
    shingles: tuple[frozenset[int], ...]  # by width

    def dumped(self) -> str:
        parts = [b64encode(pack(f"<{len(some)}I", *some)).decode() for some in self.shingles]
        return " ".join((str(self.text), str(self.size), *parts))


def loaded(dumped: str) -> Digest:
    """Parse the result of :meth:`Digest.dumped`. Raises ``ValueError`` for anything else."""
    text, size, *parts = dumped.split(" ")
    packed = [b64decode(part) for part in parts]
    shingles = [frozenset(unpack(f"<{len(p) // 4}I", p[: len(p) & ~3])) for p in packed]
    return Digest(int(text), int(size), tuple(shingles))


def digest(text: str) -> Digest:
    text = " ".join(text.split())
    ends = text if len(text) <= 2 * _END else text[:_END] + text[-_END:]
    shingles = tuple([_shingles(ends, width) for width in _WIDTHS])
    whole = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return Digest(int.from_bytes(whole, "little"), len(text), shingles)


def _shingles(text: str, width: int) -> frozenset[int]:
    counts = Counter([text[at : at + width] for at in range(max(len(text) - width + 1, 1))])
    hashes = [crc32(shingle.encode("utf-8", "surrogatepass")) for shingle in counts]
    again = [
        (first + n * _NEXT) & 0xFFFFFFFF
        for first, count in zip(hashes, counts.values(), strict=True)
        for n in range(1, count)
    ]
    return frozenset(sorted(hashes + again)[:_KEPT])


def alike(one: Digest, other: Digest, least: float = 0.0) -> float:
    """Return the share of the text that is equal, from 0 to 1.

    Return 0 without a closer look if the lengths' ratio is under ``least``.
    """
    if one.text == other.text:
        return 1.0
    if not one.size or not other.size or len(one.shingles) != len(other.shingles):
        return 0.0
    lengths = min(one.size, other.size) / max(one.size, other.size)
    if lengths < least:
        return 0.0
    short, long = map(_compared, one.shingles, other.shingles)
    changed = 2 * short.changed / short.all - long.changed / long.all
    is_whole = all(len(some) < _KEPT for some in (*one.shingles, *other.shingles))
    characters, places = 2 * short.changed - long.changed, (long.changed - short.changed) / 8
    if is_whole and 2 * characters < places:  # an edit is one character at least
        changed = long.changed / long.all
    return max(0.0, min(1.0 - changed, lengths))


class _Compared(NamedTuple):
    """Shingles of two texts; shared ones count twice in ``all``."""

    changed: int  # in only one of the texts
    all: int


def _compared(one: frozenset[int], other: frozenset[int]) -> _Compared:
    """Compare the shingles as far down as both were kept; what both have was kept by both."""
    ends = [max(some) if len(some) >= _KEPT else 2**32 for some in (one, other)]
    counted = len(one) + len(other)
    if ends[0] != ends[1]:
        longer, end = (one, ends[1]) if ends[0] > ends[1] else (other, ends[0])
        counted -= sum([n > end for n in longer])
    return _Compared(counted - 2 * len(one & other), counted)
