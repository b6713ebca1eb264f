"""A client's parameter schema, reduced to what can be checked.

Schemas come from agent frameworks and are often odd: types that do not exist (``"any"``,
``"dict"``), older drafts, ``required: true`` inside a property, references that lead nowhere. A
strict compiler refuses such a schema as a whole. Here each keyword is looked at by itself: what is
well formed in draft 2020-12 is kept, the rest is left out, as is always what is no constraint there
(annotations, ``format``, unknown keywords).

Leaving out must only ever let more calls pass. Inside ``not``, ``oneOf``, ``if`` and their like it
would do the opposite, so a schema from which a constraint was left out loses those too.

References are followed inside the schema only, each target becoming one entry of ``$defs``; nothing
is ever fetched.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import unquote

import jsonschema_rs

from .json_types import JSON_TYPES, TYPE_ALIASES, is_of_type

MAX_DEPTH: Final = 64
MAX_NODES: Final = 20_000
MAX_PATTERN: Final = 1_000  # characters
_REGEX_BYTES: Final = 1_000_000  # what one compiled pattern may weigh
REGEX: Final = jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES)

# The keywords under which one subschema stands, a list of them, or one for each name.
ONE: Final = frozenset(
    {"items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties",
     "propertyNames", "contains", "not", "if", "then", "else"}
)  # fmt: skip
LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
# Where a subschema that lets more pass makes the whole let less pass.
_CONTRARY: Final = frozenset(
    {"not", "if", "then", "else", "maxContains", "unevaluatedItems", "unevaluatedProperties"}
)
# A keyword lost → the keyword that would now also judge what the lost one took care of.
_REST_OF: Final = {
    "properties": "additionalProperties",
    "patternProperties": "additionalProperties",
    "prefixItems": "items",
}


def clean(schema: object, *, whole_object: bool = True) -> dict[str, Any]:
    """The checkable part of `schema`, which may be anything at all; it compiles. Never raises.

    `whole_object` says that the value is always an object (a call's arguments), so a root `type`
    that excludes objects is a constraint no one can meet, and is left out.
    """
    cleaner = _Cleaner(schema)
    root = cleaner.run(whole_object)
    return _Cleaner(schema, distrust=True).run(whole_object) if cleaner.loosened else root


@lru_cache(maxsize=4_096)
def _compiles(text: str) -> bool:
    """Whether the validator takes a schema of one keyword, given as JSON."""
    try:
        jsonschema_rs.Draft202012Validator(json.loads(text), pattern_options=REGEX)
    except Exception:  # ValidationError, or what its engine raises
        return False
    return True


def pattern_compiles(pattern: object) -> bool:
    """Whether the linear regex engine takes `pattern`."""
    short = isinstance(pattern, str) and len(pattern) <= MAX_PATTERN
    return short and _compiles(json.dumps({"pattern": pattern}))


def _types(value: object) -> str | list[str] | None:
    """The types that `value` names, by their right names; None where one of them is unknown."""
    if isinstance(value, str):
        return value if value in JSON_TYPES else TYPE_ALIASES.get(value.lower())
    kinds = [_types(kind) for kind in value] if isinstance(value, list) else []
    known = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, str)))
    return known if kinds and None not in kinds else None


# Keywords without subschemas that constrain, and some that nothing here follows.
_PLAIN: Final = frozenset(
    {"const", "required", "multipleOf", "uniqueItems", "dependentRequired", "minimum", "maximum",
     "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems",
     "minProperties", "maxProperties", "minContains", "maxContains"}
)  # fmt: skip
_UNKNOWN_TO_US: Final = frozenset({"$dynamicRef", "$recursiveRef", "dependencies"})
_CONSTRAINTS: Final = (
    _PLAIN | _UNKNOWN_TO_US | ONE | LISTS | MAPS | frozenset({"type", "enum", "pattern"})
)


def _is_checkable(keyword: str, value: Any) -> bool:
    """Whether a constraint can be checked by; where subschemas stand under it, by their shape."""
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
    whole: object
    distrust: bool = False  # leave out everything in `_CONTRARY`, read `oneOf` as `anyOf`
    nodes: int = 0
    loosened: bool = False  # the result lets more pass than the schema does
    definitions: dict[str, Any] = field(default_factory=dict)
    # Reference as written → its name in `definitions`; None where it leads nowhere.
    targets: dict[str, str | None] = field(default_factory=dict)
    waiting: list[tuple[str, object]] = field(default_factory=list)

    def run(self, whole_object: bool) -> dict[str, Any]:
        root = self.node(self.whole, 0)
        while self.waiting:  # not by recursion: chains of references may be long
            name, target = self.waiting.pop()
            self.definitions[name] = self.node(target, 0)
        if not isinstance(root, dict):
            return {}
        if whole_object and "object" not in root.get("type", "object"):
            del root["type"]
            self.loosened = True
        if self.definitions:
            root["$defs"] = self.definitions
        return root

    def node(self, schema: object, depth: int) -> dict[str, Any] | bool:
        """The checkable part of one subschema."""
        if isinstance(schema, bool):
            return schema
        self.nodes += 1
        if not isinstance(schema, dict) or depth > MAX_DEPTH or self.nodes > MAX_NODES:
            self.loosened = True
            return {}
        out: dict[str, Any] = {}
        lost: list[str] = []
        for given, value in schema.items():
            keyword = "anyOf" if self.distrust and given == "oneOf" else given
            if keyword == "$ref":
                self._refer(value, out)
            elif keyword not in _CONSTRAINTS or (self.distrust and keyword in _CONTRARY):
                continue
            elif _is_checkable(keyword, value):
                out[keyword] = self._kept(keyword, value, depth + 1)
            else:
                lost.append(keyword)
        for keyword in lost:
            self.loosened = True
            out.pop(_REST_OF.get(keyword, ""), None)
        self._agree(schema, out)
        return out

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

    def _refer(self, reference: object, out: dict[str, Any]) -> None:
        key = str(reference)
        if key not in self.targets:
            target = look_up(self.whole, reference) if isinstance(reference, str) else None
            self.targets[key] = None if target is None else f"r{len(self.targets)}"
            if target is not None:
                self.waiting.append((f"r{len(self.targets) - 1}", target))
        name = self.targets[key]
        if name is None:
            self.loosened = True
        else:
            out["$ref"] = f"#/$defs/{name}"

    def _agree(self, schema: dict[str, Any], out: dict[str, Any]) -> None:
        """`enum` and `type` that contradict each other, and OpenAPI's `nullable`."""
        kinds = [out["type"]] if isinstance(out.get("type"), str) else out.get("type", [])
        options = out.get("enum", []) if kinds else []
        if options and not any(is_of_type(one, kind) for one in options for kind in kinds):
            # `{"type": "integer", "enum": ["1", "2"]}`: nothing could ever be right.
            del out["type"], out["enum"]
            self.loosened = True
        if schema.get("nullable") is True:
            if "type" in out:
                out["type"] = list(dict.fromkeys([*kinds, "null"]))
            if "enum" in out:
                out["enum"] = [*out["enum"], None]


def look_up(whole: object, reference: str) -> dict[str, Any] | bool | None:
    """What a reference into the schema itself points at; None for all others."""
    base, _, pointer = reference.partition("#")
    own = str(whole.get("$id", "")) if isinstance(whole, dict) else ""
    if (base and base != own.partition("#")[0]) or (pointer and not pointer.startswith("/")):
        return None
    found: object = whole
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and int(key[:9]) < len(found):
            found = found[int(key[:9])]
        else:
            return None
    return found if isinstance(found, bool | dict) else None
