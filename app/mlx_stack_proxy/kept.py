"""JSON that stays in memory."""

from __future__ import annotations


def kept(data: bytes) -> bytes:
    """A copy of what ``orjson.dumps`` gave, for keeping.

    It writes into a buffer of some 4 kB and cuts that to length; with glibc the rest stays
    unusable beside each result that is kept: a digest of 100 bytes takes 4,120.
    """
    return bytes(memoryview(data))
