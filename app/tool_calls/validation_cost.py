"""How much work a validator has with a value, counted before it runs.

A validator visits each pair of a subschema and a value below it as often as there are ways to get
there. Where alternatives descend into the same value, that is exponential in the value's depth, and
`jsonschema-rs` can't be stopped. The number of visits is known without making them: each pair is
looked at once, and counts the sum of what it leads to. So a bound on visits is held exactly, in
steps and not in seconds.

Counted is the most that may happen: that no alternative fits before the last one is tried. An error
holds a copy of its value and, below `anyOf` and `oneOf`, the errors of all branches. Those are
what explaining costs, and are counted with the size of what is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_VISITS: Final = 1_000_000  # of one check; some 50 ns each
MAX_EXPLAINING: Final = 20_000  # visits below alternatives, with copies; some 5 µs each
MAX_PAIRS: Final = 50_000  # looked at so as to count; about 1 µs each
# A schema of fewer subschemas than this, references written out, costs little for any value.
MAX_UNFOLDED: Final = 1_000
_VALUES_A_STEP: Final = 64  # of a copy; as many as a visit costs

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_IN_PLACE: Final = ("not", "if", "then", "else")
_IN_PLACE_MAPS: Final = ("dependentSchemas", "dependencies")
_OF_EACH_MEMBER: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_OF_EACH_ITEM: Final = ("additionalItems", "unevaluatedItems", "contains")

Schema = dict[str, Any]


class TooCostly(Exception):
    """The bound on work is reached."""


def unfolded(schema: object, definitions: Mapping[str, Any]) -> int:
    """The number of subschemas with references written out; above `MAX_UNFOLDED` for a circle."""
    known: dict[str, int] = {}

    def count(schema: object) -> int:
        if not isinstance(schema, dict):
            return 1
        total = 1 + sum(map(count, _subschemas(schema)))
        name = _target(schema)
        if name is not None:
            if name not in known:
                known[name] = MAX_UNFOLDED + 1  # where it leads back to itself
                known[name] = count(definitions.get(name, True))
            total += known[name]
        return min(total, MAX_UNFOLDED + 1)

    try:
        return count(schema)
    except RecursionError:  # a chain of hundreds of references
        return MAX_UNFOLDED + 1


def has_alternatives(schema: Schema, definitions: Mapping[str, Any]) -> bool:
    """Whether an error may hold the errors of branches."""

    def search(schema: object) -> bool:
        if not isinstance(schema, dict):
            return False
        return not schema.keys().isdisjoint(_ALTERNATIVES) or any(map(search, _subschemas(schema)))

    return search(schema) or any(map(search, definitions.values()))


class Visits:
    """The visits that checking `value` costs; with `explaining`, what its errors cost.

    Raises `TooCostly` where counting itself takes more than `MAX_PAIRS`.
    """

    def __init__(self, definitions: Mapping[str, Any], *, explaining: bool = False) -> None:
        self._definitions = definitions
        self._explaining = explaining
        self._known: dict[tuple[int, int, bool], int] = {}  # by identity: both outlive the count
        self._sizes: dict[int, int] = {}

    def count(self, schema: object, value: Any, *, copied: bool = False) -> int:
        """`copied`: a failure here becomes part of the error of an `anyOf` or `oneOf`."""
        if not isinstance(schema, dict):
            return self._weight(value, copied)
        pair = (id(schema), id(value), copied)
        known = self._known.get(pair)
        if known is None:
            if len(self._known) >= MAX_PAIRS:
                raise TooCostly
            self._known[pair] = 0
            known = self._known[pair] = self._visits(schema, value, copied)
        return known

    def _visits(self, schema: Schema, value: Any, copied: bool) -> int:
        total = self._weight(value, copied)
        for sub in _in_place(schema):
            total += self.count(sub, value, copied=copied)
        for key in _ALTERNATIVES:
            for sub in schema.get(key, ()):
                total += self.count(sub, value, copied=True)
        name = _target(schema)
        if name is not None:
            total += self.count(self._definitions.get(name, True), value, copied=copied)
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            total *= 2  # what was evaluated is found out by a second pass
        if isinstance(value, dict):
            parts = _members(schema, value)
        elif isinstance(value, list):
            parts = _items(schema, value)
        else:
            return total
        for sub, part in parts:
            total += self.count(sub, part, copied=copied)
        return total

    def _weight(self, value: Any, copied: bool) -> int:
        if not self._explaining:
            return 1
        return 1 + self._size(value) // _VALUES_A_STEP if copied else 0

    def _size(self, value: Any) -> int:
        """How many values are in `value`; a long string counts as several."""
        if isinstance(value, str):
            return 1 + len(value) // _VALUES_A_STEP
        if not isinstance(value, dict | list):
            return 1
        known = self._sizes.get(id(value))
        if known is None:
            parts = value.values() if isinstance(value, dict) else value
            known = self._sizes[id(value)] = 1 + sum(map(self._size, parts))
        return known


def _target(schema: Schema) -> str | None:
    reference = schema.get("$ref")
    return None if reference is None else reference.rsplit("/", 1)[-1]


def _in_place(schema: Schema) -> Iterator[Any]:
    """Subschemas that judge the same value; but for the alternatives and the reference."""
    for key in _IN_PLACE:
        if key in schema:
            yield schema[key]
    yield from schema.get("allOf", ())
    for key in _IN_PLACE_MAPS:
        yield from schema.get(key, {}).values()


def _members(schema: Schema, value: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Each subschema that may judge a member, and the member."""
    properties = schema.get("properties", {})
    for key, sub in properties.items():
        if key in value:
            yield sub, value[key]
    rest = [schema[key] for key in _OF_EACH_MEMBER if isinstance(schema.get(key), dict)]
    rest += schema.get("patternProperties", {}).values()
    for sub in rest:
        for part in value.values():
            yield sub, part


def _items(schema: Schema, value: list[Any]) -> Iterator[tuple[Any, Any]]:
    """Each subschema that may judge an element, and the element."""
    items = schema.get("items")
    first = items if isinstance(items, list) else schema.get("prefixItems", ())
    yield from zip(first, value, strict=False)
    rest = [schema[key] for key in _OF_EACH_ITEM if isinstance(schema.get(key), dict)]
    for sub in [*rest, *([items] if isinstance(items, dict) else [])]:
        for part in value:
            yield sub, part


def _subschemas(schema: Schema) -> Iterator[Any]:
    """All subschemas of one schema, whatever they judge; not what it refers to."""
    yield from _in_place(schema)
    for key in (*_ALTERNATIVES, "prefixItems"):
        yield from schema.get(key, ())
    for key in ("properties", "patternProperties"):
        yield from schema.get(key, {}).values()
    for key in ("items", *_OF_EACH_MEMBER, *_OF_EACH_ITEM):
        subs = schema.get(key, [])
        yield from subs if isinstance(subs, list) else [subs]
