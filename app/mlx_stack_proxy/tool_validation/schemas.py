"""Compile the schemas of arguments and replies, and hold values against them.

``clean_schema`` reduces a client's schema to what can be checked, and ``jsonschema-rs`` validates
by the result. A schema is compiled once for each content, in a bounded cache. No schema can hang
the process: the regex engine runs in linear time (``clean_schema`` leaves out patterns that it does
not know, with look-around or back-references), a large value is not checked against a large schema,
and nothing is fetched. ``format`` is not asserted.
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
from ..wire import shared, surrogates
from .clean_schema import REGEX, clean
from .explain import UNEXPLAINED

MAX_SCHEMAS: Final = 1_024
MAX_CACHED: Final = 16_000  # bytes of JSON: a larger schema is compiled each time
# Limit on the schema's characters times the value's: a validator holds each part of the value
# against each part of the schema at most once, and an error copies its part of the value.
MAX_WORK: Final = 1_000_000_000
# The validator raises one of these for a value that it can't take, such as a lone surrogate.
_NO_VALUE: Final = (ValueError, TypeError, RecursionError, OverflowError)


class CompiledSchema:
    """One schema of a tool's arguments or of a reply, ready to check values.

    ``whole_object``: the value is always an object, as a call's arguments are.
    """

    def __init__(self, raw: Any, *, whole_object: bool = True) -> None:
        self.raw = raw  # as the client sent it
        self.schema = clean(raw, whole_object=whole_object)  # the checkable part of `raw`
        self.properties: dict[str, Any] = self.schema.get("properties", {})
        self.required: tuple[str, ...] = tuple(self.schema.get("required", ()))
        self.declared = frozenset(self.properties) | frozenset(self.required)  # the root's names
        # Parameter → the words with which its text must begin and end.
        self.frames = dict(_frames(raw))
        self._validator = self._compile()
        self._size = len(json.dumps(self.schema))

    def _compile(self) -> Any:
        try:
            return jsonschema_rs.Draft202012Validator(
                self.schema,
                validate_formats=False,
                pattern_options=REGEX,
                retriever=_refuse,
                mask="it",  # the messages say "it" in place of the value
            )
        except Exception:  # a schema that doesn't compile must not make any call invalid
            return jsonschema_rs.Draft202012Validator(True)

    def is_checkable(self, value: Any) -> bool:
        """Whether ``value`` isn't too large to be checked; a small schema checks any value."""
        return self._size <= MAX_CACHED or self._work(value) <= MAX_WORK

    def _work(self, value: Any) -> int:
        return self._size * len(json.dumps(value))

    def accepts(self, value: Any) -> bool:
        """Whether ``value`` fits; True if validation costs too much or the validator can't tell."""
        if not self.is_checkable(value):
            return True
        try:
            return bool(self._validator.is_valid(value))
        except _NO_VALUE:
            try:  # a lone surrogate has no UTF-8 form, but is valid in a JSON string
                return bool(self._validator.is_valid(_without_surrogates(value)))
            except _NO_VALUE:
                return True

    def names(self, value: str) -> bool:
        """Whether the raw schema holds this text as a value: an option, a default, an example."""
        return json.dumps(value) in json.dumps(self.raw)

    def errors(self, value: Any, limit: int) -> list[Any]:
        """Return up to ``limit`` ``jsonschema_rs.ValidationError``s; none if ``value`` fits.

        ``[UNEXPLAINED]`` if collecting them would cost too much.
        """
        if self.accepts(value):
            return []
        if self._work(value) > MAX_WORK:
            return [UNEXPLAINED]
        try:
            return self._first_errors(value, limit)
        except _NO_VALUE:
            return self._first_errors(_without_surrogates(value), limit)

    def _first_errors(self, value: Any, limit: int) -> list[Any]:
        if limit > 1:
            return list(islice(self._validator.iter_errors(value), limit))
        try:  # `validate` stops at the first error, `iter_errors` collects all of them
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return [error]
        return []


def _frames(raw: Any) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the frames of a schema's parameters, which the wire's dialects note as ``x-frame``."""
    properties = raw.get("properties") if isinstance(raw, dict) else None
    for name, schema in properties.items() if isinstance(properties, dict) else ():
        match schema:
            case {shared.FRAME: [str(opening), str(closing)]}:
                yield name, (opening, closing)


def compile_schema(schema: Any, *, whole_object: bool = True) -> CompiledSchema:
    """Compile a schema; the result is cached by content if that is up to ``MAX_CACHED`` bytes."""
    try:
        text = orjson.dumps(schema)
    except (TypeError, ValueError, RecursionError):  # integers beyond 64 bits, lone surrogates
        return CompiledSchema(schema, whole_object=whole_object)
    if len(text) > MAX_CACHED:
        return CompiledSchema(schema, whole_object=whole_object)
    return _compiled(kept(text), whole_object)


@lru_cache(maxsize=MAX_SCHEMAS)
def _compiled(text: bytes, whole_object: bool) -> CompiledSchema:
    # Compile a copy: a cached schema must not change when the request does.
    return CompiledSchema(orjson.loads(text), whole_object=whole_object)


def reply_schema(schema: Any) -> CompiledSchema:
    """Compile the schema of a ``response_format``, whose root may be of any type."""
    return compile_schema(schema, whole_object=False)


def _refuse(uri: str) -> Any:
    raise LookupError(f"{uri} is not part of the schema")


def _without_surrogates(value: Any) -> Any:
    """Copy ``value`` with each lone surrogate replaced by U+FFFD, so that it encodes as UTF-8."""
    return surrogates.loads(json.dumps(value).encode(), huge=False)


def clear_caches() -> None:
    """Forget all compiled schemas."""
    _compiled.cache_clear()
