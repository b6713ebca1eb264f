"""Reduces a client's parameter schema to the part that can be checked.

Agent frameworks send odd schemas: types that do not exist (``"any"``, ``"dict"``), older drafts,
``required: true`` inside a property, dangling references. A strict compiler rejects such a schema
as a whole. So the cleaner judges each keyword by itself: it keeps a constraint that is well formed
in draft 2020-12, converts draft 7's tuples and ``dependencies`` to that draft, and drops the others
and everything that constrains nothing (annotations, ``format``, unknown keywords).

A dropped constraint must only let more calls pass. Inside ``not``, ``oneOf``, ``if`` and the like
it may let fewer pass. So a schema that lost a constraint is cleaned once more, without these
keywords (and with ``anyOf`` for ``oneOf``).

A reference is replaced by its target in the same schema; nothing is ever fetched. A reference
inside ``LEVELS`` others constrains nothing, so the result is a finite tree: the work of the
validator and of the repairs grows with the sizes of schema and value only, not with a value's
depth.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import jsonschema_rs

from .references import References
from .repair.variants import is_of_type

MAX_DEPTH: Final = 64
MAX_NODES: Final = 5_000
# How many nested references are followed: the first number for which the result is small enough.
LEVELS: Final = (6, 3, 1, 0)
MAX_PATTERN: Final = 1_000  # characters
LARGEST_PATTERN: Final = 1024 * 1024  # bytes that one compiled pattern may take
SMALLEST_PATTERN: Final = 4 * 1024  # the smallest number of bytes that a pattern counts
# Bytes that all compiled patterns of one schema may take: 12 ms of compiling.
PATTERN_BYTES: Final = 2 * LARGEST_PATTERN

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
# Names that generators of tool schemas use for JSON's types (Python, Java, BFCL, Gemini).
_TYPE_NAMES: Final = {
    "string": "str text char",
    "number": "float double decimal",
    "integer": "int long short",
    "boolean": "bool",
    "object": "dict map hashmap",
    "array": "list tuple arraylist",
    "null": "none nonetype",
}
_TYPES: Final = {
    name: kind for kind, names in _TYPE_NAMES.items() for name in (kind, *names.split())
}
# The kind of a constraint's value: a subschema, a list of them, one for each name, or none.
_KEYWORDS: Final = {
    **dict.fromkeys(
        ("items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
         "propertyNames", "contains", "not", "if", "then", "else"), "one"),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), "list"),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), "map"),
    **dict.fromkeys(
        ("const", "required", "dependentRequired", "uniqueItems", "multipleOf", "minimum",
         "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems",
         "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"), "plain"),
    **dict.fromkeys(("$recursiveRef", "dependencies"), "never checked"),
    "type": "type", "enum": "enum", "pattern": "pattern",
}  # fmt: skip
_LOST: Final = object()  # replaces the value of a malformed constraint
# Keywords through which a looser subschema can make the whole schema stricter.
_INVERTING: Final = frozenset(
    {"not", "if", "then", "else", "maxContains", "unevaluatedItems", "unevaluatedProperties"}
)
# Dropped keyword → the keyword that would now apply to the parts that the dropped one covered.
_FALLBACK: Final = {
    "properties": "additionalProperties",
    "patternProperties": "additionalProperties",
    "prefixItems": "items",
}


@dataclass(slots=True)
class Patterns:
    """The regular expressions of one schema, which share ``PATTERN_BYTES``."""

    left: int = PATTERN_BYTES  # bytes
    skipped: bool = False  # a pattern was left out because too few bytes were left
    _fits: dict[str, bool] = field(default_factory=dict)

    def take(self, pattern: object) -> bool:
        """Whether ``pattern`` can be checked: the linear-time engine supports it, and it fits."""
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
            return False
        if pattern not in self._fits:
            # The engine compiles no part of what occurs zero times.
            is_regex = _compiles(f"(?:{pattern}){{0}}", SMALLEST_PATTERN)
            self._fits[pattern] = is_regex and self._has_room(pattern)
        return self._fits[pattern]

    def _has_room(self, pattern: str) -> bool:
        """Compile with growing limits; charge the last limit to the budget, fit or not."""
        limit = tried = SMALLEST_PATTERN
        while limit <= min(self.left, LARGEST_PATTERN):
            if _compiles(pattern, limit):
                self.left -= limit
                return True
            limit, tried = 2 * limit, limit
        self.left -= min(self.left, tried)
        self.skipped = True
        return False


def _compiles(pattern: str, limit: int) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=regex(limit))
    except Exception:  # ValidationError, or an error of the regex engine
        return False
    return True


def regex(limit: int = LARGEST_PATTERN) -> jsonschema_rs.RegexOptions:
    """Return the linear-time engine, in which a pattern takes at most ``limit`` bytes."""
    return jsonschema_rs.RegexOptions(size_limit=limit, dfa_size_limit=limit)


def clean(
    schema: object, *, whole_object: bool = True, patterns: Patterns | None = None
) -> dict[str, Any]:
    """Return the checkable part of ``schema``, which may be any value. Never raises.

    ``whole_object``: the value is always an object (a call's arguments). No call could satisfy a
    root ``type`` that excludes objects, so such a ``type`` is dropped. ``patterns``: the budget of
    the schema's patterns.
    """
    patterns, references = patterns or Patterns(), References(schema)
    for levels in LEVELS:
        cleaner = _Cleaner(references, levels, patterns)
        root = cleaner.run(schema, whole_object)
        if cleaner.nodes <= MAX_NODES:
            break
    if not cleaner.loosened:
        return root
    return _Cleaner(references, levels, patterns, distrust=True).run(schema, whole_object)


@dataclass(slots=True)
class _Cleaner:
    """One pass over one schema."""

    references: References  # of the original schema
    levels: int  # nested references that may still be followed
    patterns: Patterns
    distrust: bool = False  # drop everything in `_INVERTING`, treat `oneOf` as `anyOf`
    nodes: int = 0  # subschemas visited so far
    loosened: bool = False  # the result accepts more than the schema does

    def run(self, schema: object, whole_object: bool) -> dict[str, Any]:
        root = self.node(schema, 0, self.references.root)
        if not isinstance(root, dict):
            return {}
        if whole_object and "object" not in root.get("type", "object"):
            del root["type"]
            self.loosened = True
        return root

    def node(self, schema: object, depth: int, outer: Any) -> dict[str, Any] | bool:
        """Return the checkable part of one subschema; ``outer`` resolves references to it."""
        if isinstance(schema, bool):
            return schema
        self.nodes += 1
        if not isinstance(schema, dict) or depth > MAX_DEPTH or self.nodes > MAX_NODES:
            self.loosened = True
            return {}
        if "$ref" in schema and self.references.are_alone:
            schema = {"$ref": schema["$ref"]}
        schema, scope = _as_2020(schema), self.references.inside(schema, outer) if depth else outer
        out: dict[str, Any] = {}
        for raw_keyword, value in schema.items():
            keyword = "anyOf" if self.distrust and raw_keyword == "oneOf" else raw_keyword
            if keyword in _KEYWORDS and not (self.distrust and keyword in _INVERTING):
                out[keyword] = self._kept(keyword, value, depth + 1, scope)
        for keyword in [keyword for keyword, value in out.items() if value is _LOST]:
            self.loosened = True
            for gone in (keyword, _FALLBACK.get(keyword, "")):
                out.pop(gone, None)
        self._resolve_contradictions(schema, out)
        references = [schema[keyword] for keyword in ("$ref", "$dynamicRef") if keyword in schema]
        targets = [self._target(reference, depth + 1, scope) for reference in references]
        if len(targets) == 1 and not out:
            return targets[0]
        return {**out, "allOf": [*out.get("allOf", ()), *targets]} if targets else out

    def _kept(self, keyword: str, value: Any, depth: int, scope: Any) -> Any:
        """Return the checkable part of a constraint; ``_LOST`` if it is malformed."""
        match _KEYWORDS[keyword], value:
            case "one", bool() | dict():
                return self.node(value, depth, scope)
            case "list", [_, *_]:
                return [self.node(sub, depth, scope) for sub in value]
            case "map", dict() if all(isinstance(name, str) for name in value):
                if keyword != "patternProperties" or all(map(self.patterns.take, value)):
                    return {name: self.node(sub, depth, scope) for name, sub in value.items()}
            case "type", _:
                return _types(value)
            case ("enum", list()) | ("pattern", str()):
                return value if keyword == "enum" or self.patterns.take(value) else _LOST
            case "plain", _:
                with suppress(Exception):  # not JSON, such as a lone surrogate
                    if jsonschema_rs.meta.is_valid({"$schema": _DRAFT, keyword: value}):
                        return value
        return _LOST

    def _target(self, reference: object, depth: int, scope: Any) -> dict[str, Any] | bool:
        """Return the checkable part of the subschema to which ``reference`` points."""
        found = self.references.find(reference, scope)
        if found is None or self.levels == 0:
            self.loosened = True
            return {}
        self.levels -= 1
        cleaned = self.node(found[0], depth, found[1])
        self.levels += 1
        return cleaned

    def _resolve_contradictions(self, schema: dict[str, Any], out: dict[str, Any]) -> None:
        """Drop ``enum`` and ``type`` that contradict each other; apply OpenAPI's ``nullable``."""
        kinds = [out["type"]] if isinstance(out.get("type"), str) else out.get("type", [])
        options = out.get("enum", []) if kinds else []
        if options and not any(is_of_type(option, kind) for option in options for kind in kinds):
            # `{"type": "integer", "enum": ["1", "2"]}`: no value could ever be valid.
            del out["type"], out["enum"]
            self.loosened = True
        if schema.get("nullable") is True:
            if "type" in out:
                out["type"] = list(dict.fromkeys([*kinds, "null"]))
            if "enum" in out:
                out["enum"] = [*out["enum"], None]


def _types(value: object) -> Any:
    """Return a ``type``'s value with aliases replaced; ``_LOST`` if it has an unknown name."""
    if isinstance(value, str):
        return _TYPES.get(value.lower(), _LOST)
    kinds = [_types(kind) for kind in value] if isinstance(value, list) else []
    sound = kinds and all(isinstance(kind, str) for kind in kinds)
    return list(dict.fromkeys(kinds)) if sound else _LOST


def _as_2020(schema: dict[str, Any]) -> dict[str, Any]:
    """Convert draft 7's tuples and ``dependencies`` to draft 2020-12."""
    items, dependencies = schema.get("items"), schema.get("dependencies")
    if isinstance(items, list):
        rest = {"items": schema["additionalItems"]} if "additionalItems" in schema else {}
        schema = {key: value for key, value in schema.items() if key != "items"} | rest
        schema |= {"prefixItems": items} if items else {}
    if isinstance(dependencies, dict):
        names = {name: sub for name, sub in dependencies.items() if isinstance(sub, list)}
        subs = {name: sub for name, sub in dependencies.items() if name not in names}
        schema = {key: value for key, value in schema.items() if key != "dependencies"}
        schema["dependentRequired"] = {**names, **schema.get("dependentRequired", {})}
        schema["dependentSchemas"] = {**subs, **schema.get("dependentSchemas", {})}
    return schema
