"""Merges the fields that only the client reads from a stream's chunks.

Strings are concatenated, lists extended, objects merged; of any other type the last value counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

# Strings that are not concatenated: servers send them whole, perhaps repeatedly, perhaps empty.
_WHOLE_STRINGS: Final = frozenset(
    {"role", "id", "type", "object", "model", "format", "signature", "name", "finish_reason"}
)


def merged(pieces: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the pieces of an object; linear in their size."""
    values: dict[str, list[Any]] = {}
    for piece in pieces:
        for key, value in piece.items():
            present = values.setdefault(key, [])
            if value is not None:
                present.append(value)
    return {key: _joined(key, present) for key, present in values.items()}


def merged_chunks(
    chunks: Iterable[Mapping[str, Any]],
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """Merge the unknown fields of chunks (``Delta.more``).

    Return the top level's fields, of which the last values count, and for each choice's index its
    fields with those of its ``delta``.
    """
    top: dict[str, Any] = {}
    choices: dict[int, list[Mapping[str, Any]]] = {}
    for chunk in chunks:
        top |= chunk
        for choice in chunk.get("choices", ()):
            choices.setdefault(choice["index"], []).append(choice)
    top.pop("choices", None)
    return top, {index: {"delta": {}, **merged(pieces)} for index, pieces in choices.items()}


def _joined(key: str, values: list[Any]) -> Any:
    """Join the values of a field; only values of the last value's type count."""
    if not values:
        return None
    kind = type(values[-1])
    alike = [value for value in values if type(value) is kind]
    if kind is str:
        return next(filter(None, reversed(alike)), "") if key in _WHOLE_STRINGS else "".join(alike)
    if kind is dict:
        return merged(alike)
    if kind is list:
        return [item for value in alike for item in value]
    return values[-1]
