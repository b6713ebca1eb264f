"""Find the subschema at which a reference points, within one schema; nothing is ever fetched.

A subschema with an ``$id`` is a resource: it has a URI of its own, against which the references and
the pointers inside it are read. ``$anchor``, ``$dynamicAnchor`` and draft 7's ``{"$id": "#name"}``
name a place in their resource. Up to draft 7, nothing that stands next to a ``$ref`` counts. A
*scope* is the URIs of the resources on the way to a subschema, outermost first, as ``$dynamicRef``
needs it; the last one is where the subschema lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote, urljoin

MAX_SUBSCHEMAS: Final = 5_000  # searched for names
MAX_URI: Final = 4_000  # characters: a longer one names nothing

# Keywords whose value is one subschema, a list of subschemas, or a subschema for each name.
ONE: Final = frozenset(
    {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
     "propertyNames", "contains", "not", "if", "then", "else"}
)  # fmt: skip
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
# Further places of subschemas.
_ONE: Final = ONE | {"additionalItems", "contentSchema"}
_LISTS: Final = LISTS | {"items"}  # draft 7's tuples
_MAPS: Final = MAPS | {"$defs", "definitions", "dependencies"}

Scope = tuple[str, ...]
Target = tuple[dict[str, Any] | bool, Scope]


class References:
    """The named subschemas of one schema, which are searched at the first reference by name."""

    def __init__(self, whole: object) -> None:
        self.whole = whole
        self.scope: Scope = inner_scope(whole, ("",))  # of the whole schema
        self._resources: dict[str, object] = {}
        self._anchors: dict[tuple[str, str], Target] = {}
        self._dynamic: set[tuple[str, str]] = set()
        self._keywords: set[str] = set()

    @property
    def are_alone(self) -> bool:
        """Whether a ``$ref`` is all that counts in its subschema, by draft or by shape."""
        self._search()
        draft = self.whole.get("$schema") if isinstance(self.whole, dict) else None
        if isinstance(draft, str):
            return "/draft-0" in draft
        return "definitions" in self._keywords and "$defs" not in self._keywords

    def find(self, keyword: str, reference: object, scope: Scope) -> Target | None:
        """Return where a ``$ref`` or ``$dynamicRef`` inside ``scope`` points; None if nowhere."""
        if not isinstance(reference, str) or len(reference) > MAX_URI:
            return None
        uri, _, fragment = _join(scope[-1], reference).partition("#")
        self._search()
        if fragment and not fragment.startswith("/"):
            name = unquote(fragment)
            if keyword == "$dynamicRef" and (uri, name) in self._dynamic:
                uri = next((outer for outer in scope if (outer, name) in self._dynamic), uri)
            return self._entered(self._anchors.get((uri, name)), scope)
        found = None
        if uri in self._resources:
            found = _follow(self._resources[uri], fragment, uri)
        if found is None and uri == scope[-1]:  # it may be meant from the root, as if without `$id`
            found = _follow(self.whole, fragment, self.scope[-1])
        return self._entered(found, scope)

    def _entered(self, found: Target | None, scope: Scope) -> Target | None:
        """Put the target's own resources on top of the scope of the reference."""
        if found is None:
            return None
        target, inner = found
        return target, (*scope, *(uri for uri in inner[-1:] if uri != scope[-1]))

    def _search(self) -> None:
        """Note each resource and each anchor, once; the first one of a name counts."""
        if self._resources:
            return
        self._resources[""] = self.whole
        waiting: list[tuple[Any, Scope]] = [(self.whole, ("",))]
        for schema, outer in waiting:
            if not isinstance(schema, dict) or len(waiting) > MAX_SUBSCHEMAS:
                continue
            scope = inner_scope(schema, outer)
            self._keywords.update(schema)
            self._resources.setdefault(scope[-1], schema)
            for keyword, name in _names(schema):
                self._anchors.setdefault((scope[-1], name), (schema, scope))
                if keyword == "$dynamicAnchor":
                    self._dynamic.add((scope[-1], name))
            waiting += ((sub, scope[-1:]) for sub in _subschemas(schema))


def inner_scope(schema: object, outer: Scope) -> Scope:
    """Return the scope inside ``schema``, which lies in ``outer``."""
    own = schema.get("$id") if isinstance(schema, dict) else None
    if not isinstance(own, str) or len(own) + len(outer[-1]) > MAX_URI:
        return outer
    uri = _join(outer[-1], own).partition("#")[0]
    return outer if uri == outer[-1] else (*outer, uri)


def _join(base: str, reference: str) -> str:
    if not reference.startswith("#"):  # `urljoin` joins nothing to URNs
        try:
            return urljoin(base, reference)
        except ValueError:
            return reference
    return base + reference


def _names(schema: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for keyword in ("$anchor", "$dynamicAnchor"):
        if isinstance(name := schema.get(keyword), str):
            yield keyword, name
    if isinstance(own := schema.get("$id"), str) and len(own) > 1 and own[0] == "#":
        yield "$id", own[1:]


def _subschemas(schema: dict[str, Any]) -> Iterator[Any]:
    for keyword, value in schema.items():
        if keyword in _MAPS and isinstance(value, dict):
            yield from value.values()
        elif keyword in _LISTS and isinstance(value, list):
            yield from value
        elif keyword in _ONE:
            yield value


def _follow(resource: object, pointer: str, uri: str) -> Target | None:
    """Return the subschema at a JSON pointer into ``resource``, with its scope."""
    target: object = resource
    scope: Scope = (uri,)
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict):
            target = target.get(key)
        elif isinstance(target, list) and key.isdecimal() and int(key[:9]) < len(target):
            target = target[int(key[:9])]
        else:
            return None
        scope = inner_scope(target, scope)
    return (target, scope) if isinstance(target, bool | dict) else None
