"""Schemas of arguments and replies; each is compiled once for its content, in a bounded cache.

`jsonschema-rs` decides. Its regex engine runs in linear time, so no pattern can hang the process;
patterns which that engine does not know (look-around, back-references) are left out by
`clean_schema`. Nothing is fetched, formats are not asserted. It runs only where `validation_cost`
has counted that checking, and explaining, come to an end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import jsonschema_rs
import orjson

from ..kept import kept
from ..wire import shared
from .clean_schema import REGEX, clean
from .explain import UNEXPLAINED
from .validation_cost import MAX_VISITS, TooCostly, Visits, fans_out

MAX_SCHEMAS: Final = 1_024
MAX_CACHED: Final = 16_000  # bytes of JSON: a larger schema is compiled each time
# Visits times the kilobytes of the value: each error holds a copy of its part; some 5 µs each.
MAX_EXPLAINING: Final = 20_000
# What the validator raises for values that it cannot take, such as lone surrogates.
_NO_VALUE: Final = (ValueError, TypeError, RecursionError, OverflowError)


class CompiledSchema:
    """One schema, as the client sent it (`raw`) and as it is checked (`schema`).

    `declared` are the names of the root's parameters, `frames` what the texts of some begin and end
    with.
    """

    def __init__(self, raw: Any, *, whole_object: bool = True) -> None:
        self.raw = raw
        cleaned = clean(raw, whole_object=whole_object)
        self.schema = {} if fans_out(cleaned, cleaned.get("$defs", {})) else cleaned
        self.definitions: dict[str, Any] = self.schema.get("$defs", {})
        self.properties: dict[str, Any] = self.schema.get("properties", {})
        self.required: tuple[str, ...] = tuple(self.schema.get("required", ()))
        self.declared = frozenset(self.properties) | frozenset(self.required)
        self.frames = dict(_frames(raw))
        self._validator = self._compile()
        # A small schema without references costs little for any value.
        self._may_cost = bool(self.definitions) or len(json.dumps(self.schema)) > MAX_CACHED

    def _compile(self) -> Any:
        try:
            return jsonschema_rs.Draft202012Validator(
                self.schema,
                validate_formats=False,
                pattern_options=REGEX,
                retriever=_refuse,
                mask="it",  # in messages, for the value
            )
        except Exception:  # whatever it dislikes, the call must not suffer for it
            return jsonschema_rs.Draft202012Validator(True)

    def is_checkable(self, value: Any) -> bool:
        """Whether holding `value` against the schema takes no more than `MAX_VISITS`."""
        return not self._may_cost or self._visits(value) <= MAX_VISITS

    def _visits(self, value: Any) -> int:
        try:
            return Visits(self.definitions).count(self.schema, value)
        except (TooCostly, RecursionError):
            return MAX_VISITS + 1

    def accepts(self, value: Any) -> bool:
        """Whether `value` fits; True where that cannot be decided, or costs too much."""
        if not self.is_checkable(value):
            return True
        try:
            return bool(self._validator.is_valid(value))
        except _NO_VALUE:
            try:  # a lone surrogate is no UTF-8, but a good string
                return bool(self._validator.is_valid(without_surrogates(value)))
            except _NO_VALUE:
                return True

    def names(self, value: str) -> bool:
        """Whether the schema, as the client sent it, holds this text, be it as a default."""
        return json.dumps(value) in json.dumps(self.raw)

    def errors(self, value: Any, limit: int) -> list[Any]:
        """The first `limit` errors: `jsonschema_rs.ValidationError`s.

        `UNEXPLAINED` stands for them where collecting them costs too much.
        """
        if self.accepts(value):
            return []
        if self._costs_too_much_to_explain(value):
            return [UNEXPLAINED]
        try:
            return self._first_errors(value, limit)
        except _NO_VALUE:
            return self._first_errors(without_surrogates(value), limit)

    def _costs_too_much_to_explain(self, value: Any) -> bool:
        """An error of `anyOf` or `oneOf` holds those of all its branches."""
        kilobytes = 1 + len(json.dumps(value)) // 1_000
        return self._visits(value) * kilobytes > MAX_EXPLAINING

    def _first_errors(self, value: Any, limit: int) -> list[Any]:
        if limit > 1:
            return list(islice(self._validator.iter_errors(value), limit))
        try:  # it stops at the first one, where `iter_errors` would collect all
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


def _frames(raw: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    """The frames of a schema's own parameters, as one of our dialects writes them."""
    properties = raw.get("properties") if isinstance(raw, dict) else None
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        match schema:
            case {shared.FRAME: [str(begin), str(end)]}:
                yield name, (begin, end)


def compile_schema(schema: Any, *, whole_object: bool = True) -> CompiledSchema:
    """A parameters schema, compiled once for each content unless that is large."""
    try:
        text = orjson.dumps(schema)
    except (TypeError, ValueError, RecursionError):  # integers beyond 64 bits, lone surrogates
        return CompiledSchema(schema, whole_object=whole_object)
    if len(text) > MAX_CACHED:
        return CompiledSchema(schema, whole_object=whole_object)
    return _compiled(kept(text), whole_object)


@lru_cache(maxsize=MAX_SCHEMAS)
def _compiled(text: bytes, whole_object: bool) -> CompiledSchema:
    # Of a copy: what is kept must not change when the request does.
    return CompiledSchema(orjson.loads(text), whole_object=whole_object)


def reply_schema(schema: Any) -> CompiledSchema:
    """The schema of a `response_format`: its root may be of any type."""
    return compile_schema(schema, whole_object=False)


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
    """Forget all compiled schemas."""
    _compiled.cache_clear()
