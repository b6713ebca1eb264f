"""A client's parameter schema, reduced to what can be checked.

Schemas come from agent frameworks and are often odd: types that do not exist (``"any"``,
``"dict"``), tuples in the old spelling, ``required: true`` inside a property, references that lead
nowhere. A strict compiler refuses such a schema as a whole. Here each keyword is looked at by
itself: what is well formed is kept, old spellings become the draft's own, the rest is left out and
counted. What is no constraint in JSON Schema (annotations, ``format``, unknown keywords) is left
out silently.

Leaving out must only ever let more calls pass. Inside ``not``, ``oneOf``, ``if`` and their like it
would do the opposite, so a schema from which anything was left out loses those too.

References are followed inside the schema only, each target becoming one entry of ``$defs``; nothing
is ever fetched. A schema whose references run in a circle without consuming anything of the value,
or fan out into thousands of subschemas, is not checked: no validator would come back from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from app.tool_calls.json_types import JSON_TYPES, TYPE_ALIASES, is_count, is_number, is_of_type
from app.tool_calls.references import look_up

from ..frozen import frozen

MAX_DEPTH: Final = 64
MAX_NODES: Final = 20_000
MAX_DEFINITIONS: Final = 500
# How many subschemas one value may be held against at one place, references written out.
MAX_FAN_OUT: Final = 2_000
MAX_CHAIN: Final = 32

_DRAFTS: Final = ("draft-04", "draft-06", "draft-07", "2019-09", "2020-12")
_REF_ALONE: Final = ("draft-04", "draft-06", "draft-07")  # nothing beside a `$ref` counts there
_COUNTS: Final = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
     "minContains", "maxContains"}
)  # fmt: skip
_BOUNDS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_SUBSCHEMAS: Final = frozenset(
    {"additionalProperties", "additionalItems", "unevaluatedItems", "unevaluatedProperties",
     "propertyNames", "contains", "not", "if", "then", "else"}
)  # fmt: skip
_SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_SCHEMA_MAPS: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
# Where a subschema that lets more pass makes the whole let less pass.
_CONTRARY: Final = frozenset(
    {"not", "if", "then", "else", "maxContains", "unevaluatedItems", "unevaluatedProperties"}
)
# A keyword lost → the keyword that would now also judge what the lost one took care of.
_REST_OF: Final = {
    "properties": "additionalProperties",
    "patternProperties": "additionalProperties",
    "prefixItems": "items",
    "items": "additionalItems",
}


@frozen
class Cleaned:
    """What is left of a schema: `schema` compiles, `unchecked` counts the parts left out."""

    schema: dict[str, Any]
    draft: str
    unchecked: int


def clean(
    schema: object, *, whole_object: bool = True, pattern_ok: Callable[[str], bool] | None = None
) -> Cleaned:
    """The checkable part of `schema`, which may be anything at all; never raises.

    `whole_object` says that the value is always an object (a call's arguments), so a root `type`
    that excludes objects is a constraint no one can meet, and is left out. `pattern_ok` says
    whether the regex engine takes a pattern.
    """
    cleaner = _Cleaner(schema, _draft(schema), pattern_ok or (lambda _: True))
    root = cleaner.run(whole_object)
    if cleaner.loosened and cleaner.contrary:
        unchecked = cleaner.unchecked
        cleaner = _Cleaner(schema, cleaner.draft, cleaner.pattern_ok, distrust=True)
        root = cleaner.run(whole_object)
        cleaner.unchecked = max(cleaner.unchecked, unchecked)
    return Cleaned(root, cleaner.draft, cleaner.unchecked)


def _draft(schema: object) -> str:
    declared = schema.get("$schema") if isinstance(schema, dict) else None
    if isinstance(declared, str):
        for draft in _DRAFTS:
            if draft in declared:
                return draft
    return "2020-12"


@dataclass(slots=True)
class _Cleaner:
    whole: object
    draft: str
    pattern_ok: Callable[[str], bool]
    distrust: bool = False  # leave out everything in `_CONTRARY`, read `oneOf` as `anyOf`
    unchecked: int = 0
    nodes: int = 0
    loosened: bool = False  # the result lets more pass than the schema does
    contrary: bool = False  # … and has keywords for which that is dangerous
    definitions: dict[str, Any] = field(default_factory=dict)
    # Reference as written → its name in `definitions`; None where it leads nowhere.
    targets: dict[str, str | None] = field(default_factory=dict)
    waiting: list[tuple[str, object]] = field(default_factory=list)

    def run(self, whole_object: bool) -> dict[str, Any]:
        if self.whole is None or self.whole is True or self.whole == []:
            return {}  # missing, or what PHP writes for an empty object: anything goes
        root = self.node(self.whole, 0)
        while self.waiting:  # not by recursion: chains of references may be long
            name, target = self.waiting.pop()
            self.definitions[name] = self.node(target, 0)
        if not isinstance(root, dict):
            return {} if root is True or whole_object else {"not": {}}
        if whole_object and root.get("type", "object") != "object" and "object" not in root["type"]:
            del root["type"]
            self._skip()
        if self.definitions:  # without references there are no circles, and as many nodes as seen
            if len(self.definitions) > MAX_DEFINITIONS or self._weight(root, ()) > MAX_FAN_OUT:
                self._skip()
                return {}
            root["$defs"] = self.definitions
        return root

    def node(self, schema: object, depth: int) -> dict[str, Any] | bool:
        """The checkable part of one subschema."""
        if isinstance(schema, bool):
            return schema if self.draft != "draft-04" else ({} if schema else {"not": {}})
        self.nodes += 1
        if not isinstance(schema, dict) or depth > MAX_DEPTH or self.nodes > MAX_NODES:
            return self._skip()
        out: dict[str, Any] = {}
        if "$ref" in schema:
            reference = self._reference(schema["$ref"])
            if reference is not None:
                out["$ref"] = reference
            if self.draft in _REF_ALONE:
                return out
        lost: list[str] = []
        for keyword, value in schema.items():
            if keyword not in _KNOWN:
                continue  # annotations, unknown keywords, and the reference
            try:
                self._keyword(keyword, value, schema, out, depth)
            except _Unusable:
                self._skip()
                lost.append(keyword)
        for keyword in lost:
            out.pop(_REST_OF.get(keyword, ""), None)
        self._agree(schema, out)
        return out

    def _skip(self) -> dict[str, Any]:
        self.unchecked += 1
        self.loosened = True
        return {}

    def _keyword(
        self, keyword: str, value: Any, schema: dict[str, Any], out: dict[str, Any], depth: int
    ) -> None:
        """Put `keyword` into `out`, in today's spelling; raise `_Unusable` for nonsense."""
        if keyword == "type":
            out[keyword] = _types(value)
            return
        if keyword in _CONTRARY or keyword == "oneOf":
            self.contrary = True
            if self.distrust:
                if keyword != "oneOf" or "anyOf" in schema:
                    return
                keyword = "anyOf"
        if keyword in _COUNTS:
            out[keyword] = _usable(value, is_count(value))
        elif keyword in _BOUNDS:
            self._bound(keyword, value, schema, out)
        elif keyword in _SUBSCHEMAS:
            _usable(value, isinstance(value, bool | dict))
            closed = value is False and keyword.startswith("additional")
            out[keyword] = False if closed else self.node(value, depth + 1)
        elif keyword in _SCHEMA_LISTS:
            _usable(value, isinstance(value, list) and bool(value))
            out[keyword] = [self.node(sub, depth + 1) for sub in value]
        elif keyword in _SCHEMA_MAPS:
            _usable(value, isinstance(value, dict) and all(isinstance(key, str) for key in value))
            kept = {key: self.node(sub, depth + 1) for key, sub in value.items()}
            if keyword == "patternProperties":
                _usable(value, all(self.pattern_ok(pattern) for pattern in value))
            out[keyword] = kept
        elif keyword == "items":
            self._items(value, schema, out, depth)
        elif keyword in ("dependencies", "dependentRequired"):
            self._dependencies(keyword, value, out, depth)
        elif keyword == "enum":  # an empty one refuses everything, which no tool means
            out[keyword] = _distinct(_usable(value, isinstance(value, list) and bool(value)))
        elif keyword in _PLAIN:
            out[keyword] = _usable(value, _PLAIN[keyword](value))
        elif keyword == "pattern":
            out[keyword] = _usable(value, isinstance(value, str) and self.pattern_ok(value))
        elif keyword == "required":
            _required(value, out)
        elif keyword in ("$dynamicRef", "$recursiveRef"):
            raise _Unusable

    def _bound(self, keyword: str, value: Any, schema: dict[str, Any], out: dict[str, Any]) -> None:
        if isinstance(value, bool) and keyword.startswith("exclusive"):
            # Draft 4: a flag beside the plain bound. False says nothing in any draft.
            plain = schema.get("m" + keyword[len("exclusiveM") :])
            if value:
                _usable(plain, is_number(plain))
                out[keyword] = True if self.draft == "draft-04" else plain
            return
        flag_expected = self.draft == "draft-04" and keyword.startswith("exclusive")
        out[keyword] = _usable(value, is_number(value) and not flag_expected)

    def _items(self, value: Any, schema: dict[str, Any], out: dict[str, Any], depth: int) -> None:
        if isinstance(value, bool) and self.draft == "draft-04":
            raise _Unusable
        if not isinstance(value, list):
            out["items"] = self.node(_usable(value, isinstance(value, bool | dict)), depth + 1)
            return
        subs = [self.node(sub, depth + 1) for sub in _usable(value, bool(value))]
        if self.draft != "2020-12":
            out["items"] = subs
            return
        # The tuple's old spelling: `items: [...]`, what follows under `additionalItems`.
        out["prefixItems"] = subs
        rest = schema.get("additionalItems")
        if isinstance(rest, bool | dict):
            out["items"] = self.node(rest, depth + 1)

    def _dependencies(self, keyword: str, value: Any, out: dict[str, Any], depth: int) -> None:
        _usable(value, isinstance(value, dict) and all(isinstance(key, str) for key in value))
        names = {key: list(dict.fromkeys(sub)) for key, sub in value.items() if _is_names(sub)}
        rest = {key: sub for key, sub in value.items() if key not in names}
        if keyword == "dependentRequired":
            _usable(value, not rest)
        schemas = {key: self.node(sub, depth + 1) for key, sub in rest.items()}
        if self.draft in _REF_ALONE:
            # Before draft 6 an empty list is not allowed; it asks for nothing anyway.
            out[keyword] = {**{key: sub for key, sub in names.items() if sub}, **schemas}
        else:  # split in two since 2019-09
            out["dependentRequired"] = {**out.get("dependentRequired", {}), **names}
            if schemas:
                out["dependentSchemas"] = {**schemas, **out.get("dependentSchemas", {})}

    def _reference(self, reference: object) -> str | None:
        if not isinstance(reference, str):
            self._skip()
            return None
        if reference not in self.targets:
            target = look_up(self.whole, reference)
            if target is None:
                self.targets[reference] = None
            else:
                name = self.targets[reference] = f"r{len(self.targets)}"
                self.definitions[name] = True
                self.waiting.append((name, target))
        known = self.targets[reference]
        if known is None:
            self._skip()
            return None
        return f"#/$defs/{known}"

    def _agree(self, schema: dict[str, Any], out: dict[str, Any]) -> None:
        """`enum` and `type` that contradict each other, and OpenAPI's `nullable`."""
        if "enum" in out and "type" in out:
            kinds = [out["type"]] if isinstance(out["type"], str) else out["type"]
            if not any(is_of_type(value, kind) for value in out["enum"] for kind in kinds):
                # `{"type": "integer", "enum": ["1", "2"]}`: nothing could ever be right.
                del out["type"], out["enum"]
                self._skip()
        if schema.get("nullable") is True:
            self.loosened = True
            if "type" in out:
                kinds = [out["type"]] if isinstance(out["type"], str) else out["type"]
                out["type"] = [*kinds, *(["null"] if "null" not in kinds else [])]
            if "enum" in out and None not in out["enum"]:
                out["enum"] = [*out["enum"], None]

    def _weight(self, schema: object, trail: tuple[str, ...]) -> int:
        """How many subschemas judge one value; more than `MAX_FAN_OUT` for a circle."""
        weights: dict[str, int] = {}

        def weigh(schema: object, trail: tuple[str, ...]) -> int:
            if not isinstance(schema, dict):
                return 1
            total = 1 + sum(weigh(sub, trail) for sub in _in_place(schema))
            reference = schema.get("$ref")
            if reference is not None:
                name = reference.rsplit("/", 1)[-1]
                if name in trail or len(trail) > MAX_CHAIN:
                    return MAX_FAN_OUT + 1
                if name not in weights:
                    weights[name] = weigh(self.definitions[name], (*trail, name))
                total += weights[name]
            return min(total, MAX_FAN_OUT + 1)

        heaviest = weigh(schema, trail)
        for name in self.definitions:
            heaviest = max(heaviest, weigh(self.definitions[name], (name,)))
        return heaviest


class _Unusable(Exception):
    """A keyword whose value JSON Schema does not allow."""


def _usable(value: Any, condition: bool) -> Any:
    if not condition:
        raise _Unusable
    return value


def _in_place(schema: dict[str, Any]) -> list[Any]:
    """The subschemas that judge the same value as `schema` does."""
    subs = [schema[key] for key in ("not", "if", "then", "else") if key in schema]
    for key in ("allOf", "anyOf", "oneOf"):
        subs.extend(schema.get(key, ()))
    for key in ("dependentSchemas", "dependencies"):
        subs.extend(schema.get(key, {}).values())
    return subs


def _required(value: Any, out: dict[str, Any]) -> None:
    if isinstance(value, list):
        names = list(dict.fromkeys(name for name in value if isinstance(name, str)))
        if names:  # draft 4 allows no empty list, and it asks for nothing
            out["required"] = names
        _usable(value, _is_names(value))
    else:  # draft 3's `required: true` sits inside the property
        _usable(value, value is False or value is None)


def _types(value: Any) -> str | list[str]:
    if isinstance(value, str) and value in JSON_TYPES:
        return value
    listed = [value] if isinstance(value, str) else value
    _usable(listed, isinstance(listed, list) and bool(listed))
    kinds = [TYPE_ALIASES.get(kind.lower()) if isinstance(kind, str) else None for kind in listed]
    known = list(dict.fromkeys(kind for kind in kinds if kind is not None))
    _usable(known, None not in kinds)
    return known[0] if len(known) == 1 else known


def _distinct(values: list[Any]) -> list[Any]:
    """`values` without repetitions, which the older drafts forbid; 1 and 1.0 are one value."""
    seen: dict[Any, Any] = {}
    for value in values:
        simple = value is None or isinstance(value, str | int | float)
        key = (isinstance(value, bool), value) if simple else repr(value)
        seen.setdefault(key, value)
    return list(seen.values())


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


# Keywords that need no more than a look at their value.
_PLAIN: Final[dict[str, Callable[[Any], bool]]] = {
    "const": lambda _: True,
    "multipleOf": lambda value: is_number(value) and value > 0,
    "uniqueItems": lambda value: isinstance(value, bool),
}

_KNOWN: Final = (
    _COUNTS | _BOUNDS | _SUBSCHEMAS | _SCHEMA_LISTS | _SCHEMA_MAPS | _CONTRARY | _PLAIN.keys()
    | {"items", "enum", "dependencies", "dependentRequired", "pattern", "required", "type"}
    | {"$dynamicRef", "$recursiveRef"}
)  # fmt: skip
