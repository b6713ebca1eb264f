"""Reduce a client's parameter schema to the part that can be checked.

Agent frameworks send odd schemas: types that do not exist (``"any"``, ``"dict"``), older drafts,
``required: true`` inside a property, references that lead nowhere. A strict compiler refuses such a
schema as a whole. So the cleaner judges each keyword by itself: it keeps a constraint that is well
formed in draft 2020-12, and leaves out the others and everything that constrains nothing
(annotations, ``format``, unknown keywords).

Leaving a constraint out must only let more calls pass. Inside ``not``, ``oneOf``, ``if`` and the
like it may let fewer pass. So a schema that lost a constraint is cleaned once more, without these
keywords (and with ``anyOf`` for ``oneOf``).

A reference is replaced by what it points at in the same schema; nothing is ever fetched. One inside
``LEVELS`` others constrains nothing, so the result is a finite tree: the work of the validator and
of the repairs grows with the sizes of schema and value alone, not with a value's depth.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import jsonschema_rs

from .json_types import JSON_TYPES, TYPE_ALIASES, is_of_type

MAX_DEPTH: Final = 64
MAX_NODES: Final = 5_000
# How many references are followed inside each other: the first number with which the result is
# small enough.
LEVELS: Final = (6, 3, 1, 0)
MAX_PATTERN: Final = 1_000  # characters
_REGEX_BYTES: Final = 1_000_000  # limit on one compiled pattern
REGEX: Final = jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES)

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


def clean(schema: object, *, whole_object: bool = True) -> dict[str, Any]:
    """Return the checkable part of ``schema``, which may be any value. Never raises.

    ``whole_object``: the value is always an object (a call's arguments). No call could meet a root
    ``type`` that excludes objects, so such a ``type`` is left out.
    """
    for levels in LEVELS:
        cleaner = _Cleaner(schema, levels)
        root = cleaner.run(whole_object)
        if cleaner.nodes <= MAX_NODES:
            break
    return _Cleaner(schema, levels, distrust=True).run(whole_object) if cleaner.loosened else root


@lru_cache(maxsize=4_096)
def _compiles(text: str) -> bool:
    """Whether the validator accepts a schema of one keyword, given as JSON text."""
    try:
        jsonschema_rs.Draft202012Validator(json.loads(text), pattern_options=REGEX)
    except Exception:  # ValidationError, or an error of the regex engine
        return False
    return True


def pattern_compiles(pattern: object) -> bool:
    """Whether the linear-time regex engine accepts ``pattern``."""
    short = isinstance(pattern, str) and len(pattern) <= MAX_PATTERN
    return short and _compiles(json.dumps({"pattern": pattern}))


def _types(value: object) -> str | list[str] | None:
    """Return a ``type``'s value with aliases replaced; None if one of its names is unknown."""
    if isinstance(value, str):
        return value if value in JSON_TYPES else TYPE_ALIASES.get(value.lower())
    kinds = [_types(kind) for kind in value] if isinstance(value, list) else []
    names = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))
    return names if kinds and None not in kinds else None


# Constraints without subschemas.
_PLAIN: Final = frozenset(
    {"const", "required", "multipleOf", "uniqueItems", "dependentRequired", "minimum", "maximum",
     "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
     "minProperties", "maxProperties", "minContains", "maxContains"}
)  # fmt: skip
# Constraints that are never checked: to leave them out makes the schema looser.
_UNKNOWN_TO_US: Final = frozenset({"$dynamicRef", "$recursiveRef", "dependencies"})
_CONSTRAINTS: Final = (
    _PLAIN | _UNKNOWN_TO_US | ONE | LISTS | MAPS | frozenset({"type", "enum", "pattern"})
)


def _is_checkable(keyword: str, value: Any) -> bool:
    """Whether a constraint is well formed; of subschemas under it, only the outer shape counts."""
    if keyword == "type":
        return _types(value) is not None
    if keyword in ONE:
        return isinstance(value, bool | dict)
    if keyword in LISTS or keyword == "enum":
        return isinstance(value, list) and bool(value)
    if keyword in MAPS:
        named = isinstance(value, dict) and all(isinstance(name, str) for name in value)
        return named and (keyword != "patternProperties" or all(map(pattern_compiles, value)))
    if keyword == "pattern":
        return pattern_compiles(value)
    return keyword in _PLAIN and _compiles(json.dumps({keyword: value}))


@dataclass(slots=True)
class _Cleaner:
    """One pass over one schema."""

    whole: object  # the schema as the client sent it
    levels: int  # references that may still be followed inside each other
    distrust: bool = False  # leave out everything in `_CONTRARY`, read `oneOf` as `anyOf`
    nodes: int = 0  # subschemas visited so far
    loosened: bool = False  # the result lets more pass than the schema does

    def run(self, whole_object: bool) -> dict[str, Any]:
        root = self.node(self.whole, 0)
        if not isinstance(root, dict):
            return {}
        if whole_object and "object" not in root.get("type", "object"):
            del root["type"]
            self.loosened = True
        return root

    def node(self, schema: object, depth: int) -> dict[str, Any] | bool:
        """Return the checkable part of one subschema."""
        if isinstance(schema, bool):
            return schema
        self.nodes += 1
        if not isinstance(schema, dict) or depth > MAX_DEPTH or self.nodes > MAX_NODES:
            self.loosened = True
            return {}
        out: dict[str, Any] = {}
        lost: list[str] = []
        for raw_keyword, value in schema.items():
            keyword = "anyOf" if self.distrust and raw_keyword == "oneOf" else raw_keyword
            if keyword not in _CONSTRAINTS or (self.distrust and keyword in _CONTRARY):
                continue
            elif _is_checkable(keyword, value):
                out[keyword] = self._kept(keyword, value, depth + 1)
            else:
                lost.append(keyword)
        for keyword in lost:
            self.loosened = True
            out.pop(_REST_OF.get(keyword, ""), None)
        self._agree(schema, out)
        return self._with_target(schema["$ref"], out, depth) if "$ref" in schema else out

    def _kept(self, keyword: str, value: Any, depth: int) -> Any:
        if keyword in ONE:
            return self.node(value, depth)
        if keyword in LISTS:
            return [self.node(sub, depth) for sub in value]
        if keyword in MAPS:
            return {name: self.node(sub, depth) for name, sub in value.items()}
        if keyword == "type":
            return _types(value)
        return value

    def _with_target(
        self, reference: object, out: dict[str, Any], depth: int
    ) -> dict[str, Any] | bool:
        """Return ``out`` together with the subschema at which ``reference`` points."""
        target = look_up(self.whole, reference) if isinstance(reference, str) else None
        if target is None or self.levels == 0:
            self.loosened = True
            return out
        self.levels -= 1
        cleaned = self.node(target, depth + 1)
        self.levels += 1
        return {**out, "allOf": [*out.get("allOf", ()), cleaned]} if out else cleaned

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


def look_up(root: object, reference: str) -> dict[str, Any] | bool | None:
    """Return the subschema at which a reference into the schema itself points; else None."""
    base, _, pointer = reference.partition("#")
    own_id = str(root.get("$id", "")) if isinstance(root, dict) else ""
    if (base and base != own_id.partition("#")[0]) or (pointer and not pointer.startswith("/")):
        return None
    target: object = root
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict):
            target = target.get(key)
        elif isinstance(target, list) and key.isdecimal() and int(key[:9]) < len(target):
            target = target[int(key[:9])]
        else:
            return None
    return target if isinstance(target, bool | dict) else None
