"""Reduce a client's parameter schema to the part that can be checked.

Agent frameworks send odd schemas: types that do not exist (``"any"``, ``"dict"``), older drafts,
``required: true`` inside a property, references that lead nowhere. A strict compiler refuses such a
schema as a whole. So the cleaner judges each keyword by itself: it keeps a constraint that is well
formed in draft 2020-12, writes draft 7's tuples and ``dependencies`` as that draft has them, and
leaves out the others and everything that constrains nothing (annotations, ``format``, unknown
keywords).

Leaving a constraint out must only let more calls pass. Inside ``not``, ``oneOf``, ``if`` and the
like it may let fewer pass. So a schema that lost a constraint is cleaned once more, without these
keywords (and with ``anyOf`` for ``oneOf``).

A reference is replaced by what it points at in the same schema; nothing is ever fetched. One inside
``LEVELS`` others constrains nothing, so the result is a finite tree: the work of the validator and
of the repairs grows with the sizes of schema and value alone, not with a value's depth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import jsonschema_rs

from .references import References
from .repair.variants import is_of_type

MAX_DEPTH: Final = 64
MAX_NODES: Final = 5_000
# How many references are followed inside each other: the first number with which the result is
# small enough.
LEVELS: Final = (6, 3, 1, 0)
MAX_PATTERN: Final = 1_000  # characters
LARGEST_PATTERN: Final = 1024 * 1024  # bytes that one pattern may take compiled
SMALLEST_PATTERN: Final = 4 * 1024  # bytes that every pattern counts at least
# Bytes that all patterns of one schema may take compiled, which is 12 ms of compiling.
PATTERN_BYTES: Final = 2 * LARGEST_PATTERN

_DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
JSON_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})

# Names that generators of tool schemas write for JSON's types (Python, Java, BFCL, Gemini).
TYPE_ALIASES: Final = {
    "string": "string", "str": "string", "text": "string", "char": "string",
    "number": "number", "float": "number", "double": "number", "decimal": "number",
    "integer": "integer", "int": "integer", "long": "integer", "short": "integer",
    "boolean": "boolean", "bool": "boolean",
    "object": "object", "dict": "object", "map": "object", "hashmap": "object",
    "array": "array", "list": "array", "tuple": "array", "arraylist": "array",
    "null": "null", "none": "null", "nonetype": "null",
}  # fmt: skip
# Keywords whose value is one subschema, a list of subschemas, or a subschema for each name.
ONE: Final = frozenset(
    {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
     "propertyNames", "contains", "not", "if", "then", "else"}
)  # fmt: skip
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
# Keywords by which a looser subschema can make the whole schema stricter.
_CONTRARY: Final = frozenset(
    {"not", "if", "then", "else", "maxContains", "unevaluatedItems", "unevaluatedProperties"}
)
# Lost keyword → the keyword that would now apply to the parts that the lost one covered.
_REST_OF: Final = {
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
        """Whether ``pattern`` can be checked: the linear-time engine knows it, and it fits."""
        if not isinstance(pattern, str) or len(pattern) > MAX_PATTERN:
            return False
        if pattern not in self._fits:
            # The engine compiles nothing of what occurs zero times.
            is_regex = _compiles(f"(?:{pattern}){{0}}", SMALLEST_PATTERN)
            self._fits[pattern] = is_regex and self._has_room(pattern)
        return self._fits[pattern]

    def _has_room(self, pattern: str) -> bool:
        """Compile with ever larger limits; take the last limit off the budget, fit or not."""
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
    """Return the linear-time engine, in which a pattern takes ``limit`` bytes at most."""
    return jsonschema_rs.RegexOptions(size_limit=limit, dfa_size_limit=limit)


def clean(
    schema: object, *, whole_object: bool = True, patterns: Patterns | None = None
) -> dict[str, Any]:
    """Return the checkable part of ``schema``, which may be any value. Never raises.

    ``whole_object``: the value is always an object (a call's arguments). No call could meet a root
    ``type`` that excludes objects, so such a ``type`` is left out. ``patterns``: what the schema's
    patterns may take.
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


def _types(value: object) -> str | list[str] | None:
    """Return a ``type``'s value with aliases replaced; None if one of its names is unknown."""
    if isinstance(value, str):
        return value if value in JSON_TYPES else TYPE_ALIASES.get(value.lower())
    kinds = [_types(kind) for kind in value] if isinstance(value, list) else []
    names = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))
    return names if kinds and None not in kinds else None


# Constraints without subschemas.
_PLAIN: Final = frozenset(
    {"const", "required", "dependentRequired", "uniqueItems", "multipleOf", "minimum", "maximum",
     "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
     "minProperties", "maxProperties", "minContains", "maxContains"}
)  # fmt: skip
# Constraints that are never checked: to leave them out makes the schema looser.
_UNKNOWN_TO_US: Final = frozenset({"$recursiveRef", "dependencies"})
_REFERENCES: Final = ("$ref", "$dynamicRef")
_CONSTRAINTS: Final = (
    _PLAIN | _UNKNOWN_TO_US | ONE | LISTS | MAPS | frozenset({"type", "enum", "pattern"})
)


def _is_checkable(keyword: str, value: Any, patterns: Patterns) -> bool:
    """Whether a constraint is well formed; of subschemas under it, only the outer shape counts."""
    if keyword == "type":
        return _types(value) is not None
    if keyword in ONE:
        return isinstance(value, bool | dict)
    if keyword in LISTS or keyword == "enum":
        return isinstance(value, list) and (bool(value) or keyword == "enum")
    if keyword in MAPS:
        named = isinstance(value, dict) and all(isinstance(name, str) for name in value)
        return named and (keyword != "patternProperties" or all(map(patterns.take, value)))
    if keyword == "pattern":
        return patterns.take(value)
    try:
        return keyword in _PLAIN and jsonschema_rs.meta.is_valid(
            {"$schema": _DRAFT, keyword: value}
        )
    except Exception:  # no JSON, such as a lone surrogate
        return False


@dataclass(slots=True)
class _Cleaner:
    """One pass over one schema."""

    references: References  # of the schema as the client sent it
    levels: int  # references that may still be followed inside each other
    patterns: Patterns
    distrust: bool = False  # leave out everything in `_CONTRARY`, read `oneOf` as `anyOf`
    nodes: int = 0  # subschemas visited so far
    loosened: bool = False  # the result lets more pass than the schema does

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
        lost: list[str] = []
        for raw_keyword, value in schema.items():
            keyword = "anyOf" if self.distrust and raw_keyword == "oneOf" else raw_keyword
            if keyword not in _CONSTRAINTS or (self.distrust and keyword in _CONTRARY):
                continue
            elif _is_checkable(keyword, value, self.patterns):
                out[keyword] = self._kept(keyword, value, depth + 1, scope)
            else:
                lost.append(keyword)
        for keyword in lost:
            self.loosened = True
            out.pop(_REST_OF.get(keyword, ""), None)
        self._agree(schema, out)
        targets = [
            self._target(schema[keyword], depth + 1, scope)
            for keyword in _REFERENCES
            if keyword in schema
        ]
        if len(targets) == 1 and not out:
            return targets[0]
        return {**out, "allOf": [*out.get("allOf", ()), *targets]} if targets else out

    def _kept(self, keyword: str, value: Any, depth: int, scope: Any) -> Any:
        if keyword in ONE:
            return self.node(value, depth, scope)
        if keyword in LISTS:
            return [self.node(sub, depth, scope) for sub in value]
        if keyword in MAPS:
            return {name: self.node(sub, depth, scope) for name, sub in value.items()}
        if keyword == "type":
            return _types(value)
        return value

    def _target(self, reference: object, depth: int, scope: Any) -> dict[str, Any] | bool:
        """Return the checkable part of the subschema at which ``reference`` points."""
        found = self.references.find(reference, scope)
        if found is None or self.levels == 0:
            self.loosened = True
            return {}
        self.levels -= 1
        cleaned = self.node(found[0], depth, found[1])
        self.levels += 1
        return cleaned

    def _agree(self, schema: dict[str, Any], out: dict[str, Any]) -> None:
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


def _as_2020(schema: dict[str, Any]) -> dict[str, Any]:
    """Write draft 7's tuples and ``dependencies`` as draft 2020-12 has them."""
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
