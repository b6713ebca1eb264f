"""How alike two texts are, by digests of bounded size that several processes can share.

A text's shingles are all its runs of 5 characters, and all of 9; of each kind the digest keeps the
256 with the smallest hashes, a fair sample. One edit of L characters changes L + 4 shingles of 5
and L + 8 of 9: so twice the first less the second are L, however many edits there are. Up to some
250 characters that is exact. Of a long text its beginning and its end count.
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
    """Read what :meth:`Digest.dumped` wrote. Raises ``ValueError`` for anything else."""
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


def alike(one: Digest, other: Digest) -> float:
    """Return the share of the text that is equal, from 0 to 1."""
    if one.text == other.text:
        return 1.0
    if not one.size or not other.size or len(one.shingles) != len(other.shingles):
        return 0.0
    short, long = map(_changed, one.shingles, other.shingles)
    lengths = min(one.size, other.size) / max(one.size, other.size)
    return max(0.0, min(1.0 - (2 * short - long), lengths))


def _changed(one: frozenset[int], other: frozenset[int]) -> float:
    """Return the share of shingles that only one has, as far down as both were kept."""
    most = min(max(some) if len(some) >= _KEPT else 2**32 for some in (one, other))
    both = sum([n <= most for n in one & other])
    union = sum([n <= most for n in one | other])
    return 1.0 - 2 * both / (both + union)
