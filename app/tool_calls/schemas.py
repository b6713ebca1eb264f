"""The tools of a request, compiled once for each content and kept in bounded caches.

`jsonschema-rs` decides. Its regex engine runs in linear time, so no pattern can hang the process;
patterns which that engine does not know (look-around, back-references) are left out by
`clean_schema` and counted. Nothing is fetched, formats are not asserted. It runs only where
`validation_cost` has counted that checking, and explaining, come to an end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import jsonschema_rs
import orjson

from app.tool_calls.clean_schema import clean
from app.tool_calls.explain import UNEXPLAINED
from app.tool_calls.recent import Recent
from app.tool_calls.validation_cost import (
    MAX_EXPLAINING,
    MAX_UNFOLDED,
    MAX_VISITS,
    TooCostly,
    Visits,
    has_alternatives,
    unfolded,
)

MAX_TOOL_SETS: Final = 128
MAX_SCHEMAS: Final = 1_024
# Of JSON, in each cache: a larger tool list is compiled each time. What is made of it weighs more.
MAX_CACHED_BYTES: Final = 4_000_000
MAX_PATTERN: Final = 1_000  # characters
_REGEX_BYTES: Final = 1_000_000  # what one compiled pattern may weigh

_VALIDATORS: Final[Mapping[str, Any]] = {
    "draft-04": jsonschema_rs.Draft4Validator,
    "draft-06": jsonschema_rs.Draft6Validator,
    "draft-07": jsonschema_rs.Draft7Validator,
    "2019-09": jsonschema_rs.Draft201909Validator,
    "2020-12": jsonschema_rs.Draft202012Validator,
}


class CompiledSchema:
    """One schema, as the client sent it (`raw`) and as it is checked (`schema`).

    `unchecked` counts the parts that could not be checked; `declared` are the names of the root's
    parameters.
    """

    def __init__(self, raw: Any, *, whole_object: bool = True) -> None:
        cleaned = clean(raw, whole_object=whole_object, pattern_ok=pattern_compiles)
        self.raw = raw
        self.schema = cleaned.schema
        self.draft = cleaned.draft
        self.unchecked = cleaned.unchecked
        self.definitions: dict[str, Any] = cleaned.schema.get("$defs", {})
        self.required: tuple[str, ...] = tuple(cleaned.schema.get("required", ()))
        self.declared = frozenset(cleaned.schema.get("properties", ())) | frozenset(self.required)
        self._validator = self._compile()
        self._may_cost = unfolded(self.schema, self.definitions) > MAX_UNFOLDED
        self._branches = has_alternatives(self.schema, self.definitions)

    def _compile(self) -> Any:
        if not self.schema:
            return None
        try:
            return _VALIDATORS[self.draft](
                self.schema, validate_formats=False, pattern_options=_regex(), retriever=_refuse
            )
        except Exception:  # whatever it dislikes, the call must not suffer for it
            self.unchecked += 1
            return None

    def is_checkable(self, value: Any) -> bool:
        """Whether holding `value` against the schema takes no more than `MAX_VISITS`."""
        return not self._may_cost or self._costs_at_most(MAX_VISITS, value)

    def _costs_at_most(self, most: int, value: Any, *, explaining: bool = False) -> bool:
        try:
            return Visits(self.definitions, explaining=explaining).count(self.schema, value) <= most
        except (TooCostly, RecursionError):
            return False

    def accepts(self, value: Any) -> bool:
        """Whether `value` fits; True where that cannot be decided, or costs too much."""
        if self._validator is None or not self.is_checkable(value):
            return True
        try:
            return bool(self._validator.is_valid(value))
        except (ValueError, TypeError, RecursionError, OverflowError):
            try:  # a lone surrogate is no UTF-8, but a good string
                return bool(self._validator.is_valid(without_surrogates(value)))
            except (ValueError, TypeError, RecursionError, OverflowError):
                return True

    def names(self, value: str) -> bool:
        """Whether the schema, as the client sent it, holds this text, be it as a default."""
        return json.dumps(value) in json.dumps(self.raw)

    def errors(self, value: Any, limit: int) -> list[Any]:
        """The first `limit` errors: `jsonschema_rs.ValidationError`s.

        `UNEXPLAINED` stands for them where collecting those of all branches costs too much.
        """
        if self._validator is None or not self.is_checkable(value):
            return []
        if self._branches and not self._costs_at_most(MAX_EXPLAINING, value, explaining=True):
            return [] if self.accepts(value) else [UNEXPLAINED]
        if limit == 1:
            return self._first_error(value)
        found: list[Any] = []
        for error in self._iterate(value):
            found.append(error)
            if len(found) >= limit:
                break
        return found

    def _first_error(self, value: Any) -> list[Any]:
        """The validator stops at it, where `iter_errors` would collect all."""
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        except (ValueError, TypeError, RecursionError, OverflowError):
            return list(self._iterate(value))[:1]
        return []

    def _iterate(self, value: Any) -> Iterator[Any]:
        try:
            return iter(self._validator.iter_errors(value))
        except (ValueError, TypeError, RecursionError, OverflowError):
            return iter(self._validator.iter_errors(without_surrogates(value)))


class ToolSet:
    """The tools of one request by name, each compiled when first asked for."""

    def __init__(self, schemas: Mapping[str, Any], ambiguous: frozenset[str] = frozenset()) -> None:
        self._schemas = schemas
        self._ambiguous = ambiguous
        self._compiled: dict[str, CompiledSchema] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The tools' names, in the request's order."""
        return tuple(self._schemas)

    def __contains__(self, name: object) -> bool:
        return name in self._schemas

    def __len__(self) -> int:
        return len(self._schemas)

    def schema(self, name: str) -> Any:
        """The parameters schema as the client sent it; None where there is none."""
        return self._schemas.get(name)

    def compiled(self, name: str) -> CompiledSchema | None:
        """The compiled schema of a tool, None for a name that is not offered."""
        found = self._compiled.get(name)
        if found is None and name in self._schemas:
            found = self._compiled[name] = compile_schema(self._schemas[name])
        return found

    @property
    def unchecked(self) -> int:
        """How many parts of all schemas cannot be checked. Compiles what isn't compiled yet."""
        compiled = [self.compiled(name) for name in self._schemas]
        return sum(schema.unchecked for schema in compiled if schema) + len(self._ambiguous)


_tool_sets: Recent[ToolSet] = Recent(MAX_TOOL_SETS, MAX_CACHED_BYTES)
_schemas: Recent[CompiledSchema] = Recent(MAX_SCHEMAS, MAX_CACHED_BYTES)
_reply_schemas: Recent[CompiledSchema] = Recent(MAX_TOOL_SETS, MAX_CACHED_BYTES)


def tool_set(tools: object) -> ToolSet:
    """The tool set of a request's `tools`, as the client sent them.

    Never raises: entries that are no tools are passed over. Equal content gives the same object.
    """
    key = _content(tools)
    known = _tool_sets.get(key) if key else None
    if known is not None:
        return known
    schemas: dict[str, Any] = {}
    ambiguous: set[str] = set()
    for name, schema in _entries(tools):
        if name in schemas and schemas[name] != schema:
            ambiguous.add(name)  # offered twice, differently: either may be meant
        schemas[name] = None if name in ambiguous else schema
    made = ToolSet(schemas, frozenset(ambiguous))
    if key:
        _tool_sets.put(key, made)
    return made


def _entries(tools: object) -> Iterator[tuple[str, Any]]:
    """Name and parameters of each tool: OpenAI's two forms, Responses', Anthropic's, custom."""
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        return
    for entry in tools:
        if not isinstance(entry, Mapping):
            continue
        inner = (entry.get(key) for key in ("function", "custom"))
        body = next((one for one in inner if isinstance(one, Mapping)), entry)
        name = body.get("name")
        if isinstance(name, str) and name:
            yield name, body.get("parameters", body.get("input_schema"))


def compile_schema(schema: Any) -> CompiledSchema:
    """A parameters schema, compiled once for each content."""
    return _compiled(schema, _schemas, whole_object=True)


def reply_schema(schema: Any) -> CompiledSchema:
    """The schema of a `response_format`: its root may be of any type."""
    return _compiled(schema, _reply_schemas, whole_object=False)


def _compiled(schema: Any, cache: Recent[CompiledSchema], *, whole_object: bool) -> CompiledSchema:
    key = _content(schema)
    if not key:
        return CompiledSchema(schema, whole_object=whole_object)
    made = cache.get(key)
    if made is None:
        # Of a copy: what is kept must not change when the request does.
        made = CompiledSchema(json.loads(key), whole_object=whole_object)
        cache.put(key, made)
    return made


def _content(value: object) -> bytes:
    """`value` as JSON; empty where it has none."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except (TypeError, ValueError, RecursionError):  # integers beyond 64 bits, lone surrogates
        try:
            return json.dumps(value).encode()
        except (TypeError, ValueError, RecursionError):
            return b""


def pattern_compiles(pattern: str) -> bool:
    """Whether the linear regex engine takes `pattern`."""
    return len(pattern) <= MAX_PATTERN and _compiles(pattern)


@lru_cache(maxsize=4_096)
def _compiles(pattern: str) -> bool:
    try:
        jsonschema_rs.Draft202012Validator(
            {"pattern": pattern}, validate_formats=False, pattern_options=_regex()
        )
    except Exception:  # ValidationError, or what its engine raises
        return False
    return True


def _regex() -> Any:
    return jsonschema_rs.RegexOptions(size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES)


def _refuse(uri: str) -> Any:
    raise LookupError(f"{uri} is not part of the schema")


def without_surrogates(value: Any) -> Any:
    """A copy in which each lone surrogate is U+FFFD, so that it has an encoding."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return value


def clear_caches() -> None:
    """Forget all compiled tool sets and schemas."""
    _tool_sets.clear()
    _schemas.clear()
    _reply_schemas.clear()
