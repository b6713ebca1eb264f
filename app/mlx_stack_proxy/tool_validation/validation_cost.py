"""Count a validator's work on a value before it runs.

A validator visits a pair of subschema and value once for each way that leads there. If alternatives
descend into the same value, the visits grow exponentially with the value's depth, and
``jsonschema-rs`` can't be interrupted. ``Visits`` counts them by dynamic programming: it examines
each pair once, and a pair costs one visit plus those of the pairs that it leads to. So the limit is
one of steps, not of seconds. The count is the worst case, where every alternative is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

from .clean_schema import LISTS, MAPS, ONE

MAX_VISITS: Final = 1_000_000  # in one validation; some 50 ns each
MAX_PAIRS: Final = 50_000  # examined by one count; about 1 µs each
MAX_FAN_OUT: Final = 2_000  # subschemas that apply to one value, with references expanded

# Keywords whose subschemas apply to each member or item of a value.
_OF_PARTS: Final = frozenset(
    {"additionalProperties", "unevaluatedProperties", "propertyNames", "patternProperties",
     "items", "unevaluatedItems", "contains"}
)  # fmt: skip

Schema = dict[str, Any]


class TooCostly(Exception):
    """Counting itself would examine more than ``MAX_PAIRS`` pairs."""


class Visits:
    """Counts the visits that validating a value costs; keeps the counts of pairs."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        # Visits by the ids of subschema and value, which both outlive the count.
        self._known: dict[tuple[int, int], int] = {}

    def count(self, schema: object, value: Any) -> int:
        """Return how many pairs of subschema and value a validator visits.

        More than ``MAX_VISITS`` for a reference that leads back to itself. Raises ``TooCostly`` if
        the count needs more than ``MAX_PAIRS`` pairs.
        """
        if not isinstance(schema, dict):
            return 1
        pair = (id(schema), id(value))
        if pair not in self._known:
            if len(self._known) >= MAX_PAIRS:
                raise TooCostly
            self._known[pair] = MAX_VISITS + 1  # counts if the pair leads back to itself
            total = 1 + sum(self.count(sub, part) for sub, part in self._judged(schema, value))
            # The validator finds the unevaluated parts by a second pass.
            unevaluated = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
            self._known[pair] = 2 * total if unevaluated else total
        return self._known[pair]

    def _judged(self, schema: Schema, value: Any) -> Iterator[tuple[Any, Any]]:
        """Yield each subschema that applies to ``value`` or a part of it, with that part."""
        name = _target(schema)
        if name is not None:
            yield self._definitions[name], value
        members = value.values() if isinstance(value, dict) else value
        parts = members if isinstance(value, dict | list) else ()
        for keyword, held in schema.items():
            if keyword == "properties":
                names = held.keys() & value.keys() if isinstance(value, dict) else ()
                yield from ((held[name], value[name]) for name in names)
            elif keyword == "prefixItems":
                yield from zip(held, parts, strict=False)
            elif keyword in _OF_PARTS:
                yield from product(_under(keyword, held), parts)
            else:
                yield from ((sub, value) for sub in _under(keyword, held))


def fans_out(schema: Schema, definitions: Mapping[str, Any]) -> bool:
    """Whether more than ``MAX_FAN_OUT`` subschemas apply to one value, as in a reference circle.

    Repairs expand references, and would not come back from such a schema.
    """
    visits = Visits(definitions)
    try:
        parts = (schema, *definitions.values())
        return any(visits.count(part, None) > MAX_FAN_OUT for part in parts)
    except (TooCostly, RecursionError):
        return True


def _target(schema: Schema) -> str | None:
    reference = schema.get("$ref")
    return None if reference is None else reference.rsplit("/", 1)[-1]


def _under(keyword: str, held: Any) -> list[Any]:
    """Return the subschemas under a keyword."""
    if keyword in ONE:
        return [held]
    if keyword in MAPS:
        return list(held.values())
    return held if keyword in LISTS else []
