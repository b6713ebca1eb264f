"""Valid calls that still say nothing: empty names, placeholders, leaked call markup.

Only required string parameters that must name something are looked at (see `vocabulary`), or whose
schema gives them an enum, a format, a pattern or a minimal length. A schema that allows the empty
string (in its enum, default or description) is believed. A value that stands in the conversation is
never a placeholder, and neither is one that the schema itself names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from app.tool_calls.leaks import KEY_MARKUP, MAX_NAMED, leak, left_behind, may_hold_markup
from app.tool_calls.names import words
from app.tool_calls.placeholders import is_placeholder
from app.tool_calls.references import look_up
from app.tool_calls.vocabulary import SEARCHING, Vocabulary, may_be_blank, names_types

from ..frozen import frozen

MAX_PLAN_DEPTH: Final = 6
MAX_PLACEHOLDER: Final = 80  # characters; longer values are no placeholders

# Says whether a value stands in the conversation.
Lookup = Callable[[str], bool]

_MAY_BE_EMPTY: Final = re.compile(
    r"\b(?:may|can|could|should|will) be (?:left )?(?:empty|blank|omitted)"
    r"|\bleave (?:it |this |them )?(?:empty|blank|out)"
    r"|\b(?:left|if|or|is|when|an?) (?:empty|blank)\b"
    r"|\b(?:empty|blank) (?:string|for|to|means|if|when|value|is)\b"
    r"|\boptional\b|(?<!\w)(?:\"\"|'')",
    re.IGNORECASE,
)
_MUST_NOT_BE: Final = re.compile(
    r"(?:\bnot|\bcannot|n't|\bnever|\bnon)\b[\w \-,]{0,24}\b(?:empty|blank)\b", re.IGNORECASE
)


@frozen
class Named:
    """A required string that must name something, and what its schema allows it all the same."""

    key: str
    values: frozenset[str]  # that the schema names
    nullable: bool  # "" is nothing, as null would be
    blank: bool  # a space is a value
    of_types: bool  # "string" is a value

    def is_missing(self, text: str) -> bool:
        """Whether nothing stands there where something has to."""
        if text.isspace():
            return not self.blank
        return not text and not self.nullable

    def allows(self, text: str) -> bool:
        """Whether a placeholder's text is a value here."""
        return text in self.values or (self.of_types and text.strip().casefold() == "string")


@frozen
class Plan:
    """Where to look in an object of one schema: made once, walked for each call."""

    strings: tuple[Named, ...] = ()
    objects: tuple[tuple[str, Plan], ...] = ()
    arrays: tuple[tuple[str, Plan], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.strings or self.objects or self.arrays)


@dataclass(slots=True)
class _Planner:
    root: object
    vocabulary: Vocabulary
    nodes: int = 0
    named: set[str] = field(default_factory=set)

    def plan(self, schema: object, depth: int = 0) -> Plan:
        self.nodes += 1
        node = self._resolved(schema)
        properties = node.get("properties")
        if not isinstance(properties, dict) or depth > MAX_PLAN_DEPTH or self.nodes > 2_000:
            return Plan()
        listed = node.get("required")
        required = listed if isinstance(listed, list) else []
        strings, objects, arrays = [], [], []
        for key, raw in properties.items():
            sub = self._resolved(raw)
            if key in required and self._must_name(key, sub):
                strings.append(self._named(key, sub))
            elif isinstance(sub.get("properties"), dict):
                objects.append((key, self.plan(sub, depth + 1)))
            elif isinstance(sub.get("items"), dict):
                arrays.append((key, self.plan(sub["items"], depth + 1)))
        return Plan(
            tuple(strings),
            tuple((key, plan) for key, plan in objects if plan),
            tuple((key, plan) for key, plan in arrays if plan),
        )

    def _resolved(self, schema: object) -> dict[str, Any]:
        """`schema` behind its references, and behind the one real branch of an optional."""
        nullable = False
        for _ in range(MAX_PLAN_DEPTH):
            if not isinstance(schema, dict):
                return {}
            reference = schema.get("$ref")
            branches = schema.get("anyOf", schema.get("oneOf"))
            if isinstance(reference, str):
                schema = look_up(self.root, reference)
            elif isinstance(branches, list) and "properties" not in schema:
                real = [
                    branch
                    for branch in branches
                    if not (isinstance(branch, dict) and branch.get("type") == "null")
                ]
                if len(real) != 1 or not isinstance(real[0], dict):
                    return schema
                nullable = nullable or len(real) < len(branches)
                schema = {
                    **{k: v for k, v in schema.items() if k not in ("anyOf", "oneOf")},
                    **real[0],
                }
            else:
                return {**schema, "nullable": True} if nullable else schema
        return {}

    def _named(self, key: str, schema: dict[str, Any]) -> Named:
        return Named(
            key,
            frozenset(_named_values(schema)),
            nullable=_is_nullable(schema),
            blank=may_be_blank(key),
            of_types=names_types(key),
        )

    def _must_name(self, key: str, schema: dict[str, Any]) -> bool:
        kind = schema.get("type")
        kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list) else []
        if not any(str(name).lower() in ("string", "str") for name in kinds):
            return False
        if "" in _named_values(schema) or schema.get("minLength") == 0:
            return False
        description = _description(schema)
        if _MAY_BE_EMPTY.search(description) and not _MUST_NOT_BE.search(description):
            return False
        if any(schema.get(keyword) for keyword in ("enum", "format", "pattern", "minLength")):
            return True
        return self.vocabulary.must_name(key)


def make_plan(schema: object, vocabulary: Vocabulary) -> Plan:
    """The plan for the schema as the client sent it (descriptions count); never raises."""
    return _Planner(schema, vocabulary).plan(schema)


def _description(schema: dict[str, Any]) -> str:
    return str(schema.get("description", ""))[:2_000]


def _is_nullable(schema: dict[str, Any]) -> bool:
    """Whether the schema takes null, so that "" may stand for it: not where it has a format.

    OpenAI's strict mode makes each parameter required, and those that were optional nullable.
    """
    kind = schema.get("type")
    null = (
        schema.get("nullable") is True
        or (isinstance(kind, list) and "null" in kind)
        or schema.get("default", "") is None
    )
    return null and not schema.get("format") and not _MUST_NOT_BE.search(_description(schema))


def _named_values(schema: dict[str, Any]) -> list[str]:
    """The strings that a schema itself names as values."""
    named: list[Any] = [schema.get("default"), schema.get("const"), schema.get("example")]
    for keyword in ("enum", "examples"):
        listed = schema.get(keyword)
        named.extend(listed if isinstance(listed, list) else ())
    return [value for value in named if isinstance(value, str)]


@frozen
class Implausible:
    """One value that says nothing. `kind`: empty_value, placeholder or leaked_markup."""

    kind: str
    path: str
    value: str


def implausible(value: dict[str, Any], plan: Plan, known: Lookup) -> Iterator[Implausible]:
    """What in a valid object is empty or a placeholder where it must name something."""
    for named in plan.strings:
        text = value.get(named.key)
        if not isinstance(text, str):
            continue
        if named.is_missing(text):
            yield Implausible("empty_value", named.key, text)
        elif (
            len(text) <= MAX_PLACEHOLDER
            and is_placeholder(text, named.key)
            and not named.allows(text)
            and not known(text)
        ):
            yield Implausible("placeholder", named.key, text)
    for key, plan_inside in plan.objects:
        inside = value.get(key)
        if isinstance(inside, dict):
            for found in implausible(inside, plan_inside, known):
                yield Implausible(found.kind, f"{key}.{found.path}", found.value)
    for key, plan_inside in plan.arrays:
        inside = value.get(key)
        for at, item in enumerate(inside if isinstance(inside, list) else ()):
            if isinstance(item, dict):
                for found in implausible(item, plan_inside, known):
                    yield Implausible(found.kind, f"{key}[{at}].{found.path}", found.value)


def leaked_markup(
    value: dict[str, Any], vocabulary: Vocabulary, known: Lookup
) -> Implausible | None:
    """Tool-call markup inside a parameter's name, or in the value of one that isn't free text."""
    stack: list[tuple[str, Any, bool]] = [("", value, True)]
    while stack:
        path, item, checked = stack.pop()
        if isinstance(item, dict):
            for key, sub in item.items():
                if "<" in key and KEY_MARKUP.search(key):
                    return Implausible("leaked_markup", path, key)
                stack.append((key, sub, vocabulary.must_name(key)))
        elif isinstance(item, list):
            stack.extend((path, sub, checked) for sub in item)
        elif isinstance(item, str) and checked and _holds_leak(item, path, vocabulary, known):
            return Implausible("leaked_markup", path, item)
    return None


def _holds_leak(item: str, parameter: str, vocabulary: Vocabulary, known: Lookup) -> bool:
    if not may_hold_markup(item):
        return False
    if len(item) <= MAX_NAMED:
        searching = not SEARCHING.union(("query",)).isdisjoint(words(parameter))
        found = leak(item, searching)
        if found and not known(found):
            return True
    return _is_left_behind(item, vocabulary.holds(parameter), known)


def _is_left_behind(item: str, holds: str, known: Lookup) -> bool:
    """Whether a marker was left in `item`. A path is known only as a whole, a marker by itself."""
    marker = left_behind(item, holds)
    return bool(marker) and not known(item if holds == "place" else marker)
