"""How much work a validator has with a value, counted before it runs.

A validator visits each pair of a subschema and a value below it as often as there are ways to get
there. Where alternatives descend into the same value, that is exponential in the value's depth, and
`jsonschema-rs` can't be stopped. The number of visits is known without making them: each pair is
looked at once, and counts the sum of what it leads to. So a bound on visits is held exactly, in
steps and not in seconds. Counted is the most that may happen: that no alternative fits before the
last one is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

from .clean_schema import LISTS, MAPS, ONE

MAX_VISITS: Final = 1_000_000  # of one check; some 50 ns each
MAX_PAIRS: Final = 50_000  # looked at so as to count; about 1 µs each
MAX_FAN_OUT: Final = 2_000  # subschemas that judge one value, references written out

_OF_PARTS: Final = frozenset(
    {"additionalProperties", "unevaluatedProperties", "propertyNames", "patternProperties",
     "items", "unevaluatedItems", "contains"}
)  # fmt: skip

Schema = dict[str, Any]


class TooCostly(Exception):
    """The bound on counting is reached."""


class Visits:
    """The visits that checking a value costs."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[tuple[int, int], int] = {}  # by identity: both outlive the count

    def count(self, schema: object, value: Any) -> int:
        """How often a subschema is held against a value; above `MAX_VISITS` for a circle.

        Raises `TooCostly` where counting itself takes more than `MAX_PAIRS`.
        """
        if not isinstance(schema, dict):
            return 1
        pair = (id(schema), id(value))
        if pair not in self._known:
            if len(self._known) >= MAX_PAIRS:
                raise TooCostly
            self._known[pair] = MAX_VISITS + 1  # where it leads back to itself
            total = 1 + sum(self.count(sub, part) for sub, part in self._judged(schema, value))
            # What was evaluated is found out by a second pass.
            unevaluated = "unevaluatedProperties" in schema or "unevaluatedItems" in schema
            self._known[pair] = 2 * total if unevaluated else total
        return self._known[pair]

    def _judged(self, schema: Schema, value: Any) -> Iterator[tuple[Any, Any]]:
        """Each subschema that may judge `value` or a part of it, and what it judges."""
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
    """Whether more than `MAX_FAN_OUT` subschemas judge one value, as in a circle of references.

    Mending writes references out, and would not come back from such a schema.
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
    """The subschemas that stand under a keyword."""
    if keyword in ONE:
        return [held]
    if keyword in MAPS:
        return list(held.values())
    return held if keyword in LISTS else []
